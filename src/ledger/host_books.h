/* The table of processes (host.h) joined with the books: which books are of which row.
 *
 * This is the only join. A row and books belong together if the PID is the same, the start time is the
 * same, and the PID of the books is proved (ledger_process_reachable()). Books whose figures do not
 * count (ledger_process_holds()) join no row. Of several books of one row, one joins
 * (ledger_process_precedence()).
 *
 * Readers of the ledger call host_books_join(). The writer of history runs on another thread than the
 * ledger's: it takes claims along, and joins those. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct host;
struct host_process;
struct ledger;
struct ledger_process;

/* What decides which row the books of a process join. Holds no pointer into the ledger. */
struct host_claim {
    uint64_t start_ticks; /* 0: unknown, fits any */
    pid_t pid;            /* 0: joins no row */
    uint32_t precedence;  /* of several claims to one row the lowest joins */
};

struct host_claim host_claim_of(const struct ledger_process *process);

/* Which claim joined a row: its number, HOST_JOIN_NONE if none did. */
#define HOST_JOIN_NONE UINT32_MAX
struct host_joined {
    uint32_t claim, precedence;
};

struct host_join {
    struct host_joined *joined;        /* one for each row, in the order of host_processes() */
    struct host_process *const *rows;  /* borrowed from the table until the next begin */
    size_t n_rows, cap_rows, next_row; /* next_row: where the row of the next claim probably is */
};

/* Begin a join with the rows of `host`. The first one starts with a zeroed struct; the memory is kept for
 * the next one until host_join_release(). -ENOMEM. */
int host_join_begin(struct host_join *join, const struct host *host);

/* Add claim number `number`. True if the table has the row of its process, whether this claim joined it
 * or one with precedence. A search from the row of the claim before on: claims in the order of PIDs are
 * the fastest. */
bool host_join_add(struct host_join *join, const struct host_claim *claim, uint32_t number);

void host_join_release(struct host_join *join);

/* For each row of host_processes(), in that order, the books of its process, or NULL. The caller frees
 * the array; the books stay the ledger's. `ledger` may be NULL. -ENOMEM. */
int host_books_join(const struct host *host, const struct ledger *ledger,
                    const struct ledger_process ***ret_books);

/* The table of processes (host.h) joined with the books: which books are of which row.
 *
 * This is the only join. A row and books belong together if the PID is the same, the start time is the
 * same, and the PID of the books is proved (ledger_process_reachable()). Books whose figures do not
 * count (ledger_process_holds()) join no row. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct host;
struct host_process;
struct ledger;
struct ledger_process;

/* The row of the process with this PID and start time, NULL if there is none. A start time of 0 is not
 * known and fits any. One lookup. */
struct host_process *host_process_of(const struct host *host, pid_t pid, uint64_t start_ticks);

/* For each row of host_processes(), in that order, the books of its process, or NULL. The caller frees
 * the array; the books stay the ledger's. `ledger` may be NULL. -ENOMEM. */
int host_books_join(const struct host *host, const struct ledger *ledger,
                    const struct ledger_process ***ret_books);

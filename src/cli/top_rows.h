/*
 * top_rows.h: the processes of `memoir top`: their figures, which of them are wanted, in what order.
 *
 * Rows are filled from the process table and the books (top_rows_take()), then arranged as the user wishes.
 * Arranging knows neither /proc nor screens. A figure that is not known is none; it is never 0.
 */
#ifndef MEMOIR_CLI_TOP_ROWS_H
#define MEMOIR_CLI_TOP_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ledger/host.h"

struct ledger;
struct ledger_process;

/* What can be added up over processes. */
enum top_figure {
    TOP_RSS,
    TOP_RATE_10S, /* bytes a second; negative where it shrinks */
    TOP_RATE_1MIN,
    TOP_RATE_10MIN,
    TOP_PSS,
    TOP_USS,
    TOP_DIRTY,
    TOP_SWAP,
    TOP_ANON,
    TOP_FILE,
    TOP_SHMEM,
    TOP_SHARED,
    TOP_VMS,
    TOP_PEAK,
    TOP_HEAP,
    TOP_PINNED,
    TOP_DEVICE,
    TOP_THREADS,
    TOP_MAJOR_FAULTS,
    TOP_FIGURES,
};

struct top_figures {
    uint32_t known;    /* bit of each figure that is */
    uint32_t partial;  /* of a sum: a part of it is not known, so it is at least so much */
    uint32_t estimate; /* counted from some calls only */
    int64_t value[TOP_FIGURES];
};

enum { TOP_TREND = 300 }; /* looks that are remembered: 5 minutes of seconds */

/* What top remembers of a process: its resident memory at the last looks. Ring by look; UINT32_MAX: none. */
struct top_trace {
    uint32_t kib[TOP_TREND];
    uint64_t first, last; /* looks in which it was first and last there */
};

struct top_row {
    pid_t pid, parent;
    uint64_t start_ticks;
    bool kernel;
    bool self; /* this very view, or its helper: its command line has the filter in it */
    char state;
    bool has_uid;
    uint32_t uid;
    const char *user, *name, *command; /* never NULL; any bytes */
    enum host_tracked tracked;
    uint64_t pss_ns; /* CLOCK_MONOTONIC; 0: never read */
    const struct host_process *process;
    const struct ledger_process *books; /* NULL: it has none */
    const struct top_trace *trace;      /* NULL: none */
    struct top_figures own;

    /* By top_arrange() with wish.tree. */
    struct top_figures sum; /* of it and all below it */
    uint32_t depth;
    uint32_t below; /* processes below it */
    uint64_t more;  /* bit d: at depth d another one follows on this line of the tree */
    bool folded;
    bool context; /* shown only because of one below it that the filter wants */
};

struct top_rows {
    struct top_row *rows; /* by pid */
    size_t n, room;
    size_t *order; /* indexes of the rows to show, from top to bottom */
    size_t shown;
    size_t user_processes,
        tracked; /* of all rows: those that are no kernel threads, and with a book of the heap */
    struct top_trace **traces;
    size_t n_traces, room_traces;
    uint64_t looks;
};

enum { TOP_FILTER_MAX = 128, TOP_FOLDED_MAX = 1024 };

struct top_wish {
    unsigned sort; /* enum top_column */
    bool ascending;
    /* part of program, user or command, or the start of a pid; "": all */
    char filter[TOP_FILTER_MAX];
    bool by_uid;
    uint32_t uid;
    bool tree;
    bool kernel; /* also threads of the kernel */
    bool only_tracked;
    const pid_t *folded; /* processes whose children are not shown, sorted */
    size_t n_folded;
};

void top_rows_release(struct top_rows *rows);

/* Fill from the last refresh of `host` and the last look at the books (NULL: none). Texts are borrowed until the
 * next refresh. A figure of the resident memory is remembered for each process. 0 or -ENOMEM. */
int top_rows_take(struct top_rows *rows, struct host *host, const struct ledger *books);

/* Fill `order`. Unknown values come last either way; of equal ones the larger is first, then the lower pid. With a tree, siblings are
 * ordered by what all of their family has. 0 or -ENOMEM. */
int top_arrange(struct top_rows *rows, const struct top_wish *wish);

/* Where a process is in `rows`; SIZE_MAX when there is none. */
size_t top_rows_index(const struct top_rows *rows, pid_t pid);

/* Where a process is in `order`; SIZE_MAX when it is not shown. */
size_t top_rows_find(const struct top_rows *rows, pid_t pid);

/* How much of its family a row stands for: that of itself, or, where it hides the others, of all. */
static inline const struct top_figures *top_row_figures(const struct top_row *row)
{
    return row->folded ? &row->sum : &row->own;
}

/* Is the user's filter true of a row? "" is of every one. */
bool top_row_matches(const struct top_row *row, const char *filter);

#endif

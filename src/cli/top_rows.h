/*
 * top_rows.h: the processes of `memoir top`: their figures, which of them are wanted, in what order.
 *
 * Rows come from the table `host` of the query core (top_rows_take()), then they are arranged as the user wishes.
 * Arranging knows neither /proc nor screens. A figure that is not known is absent; it is never 0.
 */
#ifndef MEMOIR_CLI_TOP_ROWS_H
#define MEMOIR_CLI_TOP_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct query;
struct query_world;

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

/* Numbers of a process that no sum can have. */
enum top_fact {
    TOP_FACT_OOM,
    TOP_FACT_RANK,
    TOP_FACT_HEADROOM,
    TOP_FACT_LIMIT, /* of its cgroup */
    TOP_FACT_AGE,   /* nanoseconds, as the next two */
    TOP_FACT_PSS_AGE,
    TOP_FACT_DETAILS_AGE,
    TOP_FACTS,
};

enum { TOP_TREND = 300 }; /* looks that are remembered: 5 minutes of seconds */

/* What top remembers of a process: its resident memory at the last looks. Ring by look; UINT32_MAX: none. */
struct top_trace {
    pid_t pid;
    uint64_t start_ticks;
    uint32_t kib[TOP_TREND];
    uint64_t first, last; /* looks in which it was first and last there */
};

struct top_row {
    pid_t pid, parent;
    uint64_t start_ticks; /* with the pid its identity */
    uint64_t start_ns;    /* the same since 1970, which is less exact */
    bool kernel;
    bool self; /* this very view, or its helper: its command line has the filter in it */
    char state;
    bool has_uid, has_book;
    uint32_t uid;
    /* Any bytes; NULL: not known. Borrowed until the next look. */
    const char *user, *name, *command, *exe, *tracked, *job, *container, *pod, *cgroup;
    const struct top_trace *trace; /* NULL: none */
    struct top_figures own;
    uint32_t facts_known, facts_unknown; /* bits of facts; neither: there is nothing of the kind */
    int64_t facts[TOP_FACTS];

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
    struct top_trace **traces; /* by pid */
    size_t n_traces;
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

/* The question whose rows these are, for query_free(). */
int top_rows_query(struct query **ret_query);

/* Fill with the rows of `query` (top_rows_query()) over `world`, whose texts are borrowed until it changes. The resident
 * memory of each process is remembered. 0 or -errno. */
int top_rows_take(struct top_rows *rows, const struct query *query,
                  const struct query_world *world);

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

static inline bool top_row_fact(const struct top_row *row, enum top_fact fact, int64_t *ret)
{
    *ret = row->facts[fact];
    return row->facts_known >> fact & 1;
}

/* Is the user's filter true of a row? "" is of every one. */
bool top_row_matches(const struct top_row *row, const char *filter);

#endif

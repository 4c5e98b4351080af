/* Columns, rows and values: what a table of the query core is made of. To give every view a new figure,
 * add one entry to a table's columns and write its getter. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct query_error;
struct query_world;

enum { QUERY_NAME_MAX = 64 };

/* What a value is: how it is read in expressions, printed, and combined. */
enum query_kind {
    QUERY_TEXT,    /* UTF-8 */
    QUERY_NUMBER,  /* a count or an identifier */
    QUERY_BYTES,   /* "1.5GB" */
    QUERY_AGE,     /* nanoseconds; "10m"; a bare number means seconds */
    QUERY_TIME,    /* nanoseconds since 1970; "2026-01-31T12:00" */
    QUERY_PERCENT, /* `number` out of `per`; "75%" */
    QUERY_SHARE,   /* the same, told to programs as a fraction from 0 to 1 */
    QUERY_YES,     /* 0 or 1; "yes", "no" */
    QUERY_RATE, /* signed, bytes a second unless the column has another unit; "-1.5MB". In thousandths, since slow
                    * leaks are slower than a byte a second */
    QUERY_POINTS, /* a series: pairs of time and value, in the order of their times */
    QUERY_FRAMES, /* a stack: texts, the outermost frame first */
};

/* How the rows of a group become one value. */
enum query_aggregate {
    QUERY_DEFAULT, /* of a column: by its kind. BYTES, NUMBER, RATE and POINTS sum, AGE max, PERCENT
                    * of the sums, the others same */
    QUERY_SUM,     /* of POINTS: of those with the same time; MAX and MIN likewise */
    QUERY_MAX,
    QUERY_MIN,
    QUERY_AVG,
    QUERY_COUNT, /* rows that have a value */
    QUERY_SAME,  /* the value that all rows have; absent where they differ */
    QUERY_ANY, /* one of the known values: the smallest, so that the order of rows does not matter */
};

/* Bits of query_value.state. A value that is not KNOWN is absent, never 0; a combined one may be both
 * KNOWN and UNKNOWN. 0: there is nothing of the kind (a process without device memory). */
enum query_state {
    QUERY_KNOWN = 1u << 0,
    QUERY_UNKNOWN = 1u << 1, /* there is something that could not, or may not, be read */
    QUERY_MIXED = 1u << 2,   /* QUERY_SAME of rows that differ; then not KNOWN */
};

enum query_marks {
    QUERY_ESTIMATE = 1u << 0, /* sampled */
    QUERY_AT_LEAST = 1u << 1, /* something is missing in it */
};

/* One point of a QUERY_POINTS. Series whose points shall be added need the same buckets: times that are
 * multiples of the same step. */
struct query_point {
    uint64_t time_ns; /* since 1970 */
    uint64_t value;
};
enum {
    QUERY_POINTS_MAX = 100000
}; /* of one cell; what a merge has beyond is dropped, oldest first */

struct query_value {
    uint64_t number; /* kinds without text; RATE: an int64_t */
    uint64_t per;    /* PERCENT: what `number` is a part of; averages: how many */
    const char
        *text; /* TEXT: len bytes; in a finished result also ended by NUL. FRAMES: a text with
                       * a line for each frame. POINTS: struct query_point, len bytes of them */
    uint32_t len;
    uint8_t state; /* enum query_state */
    uint8_t marks; /* enum query_marks */
};

struct ledger_process;
struct ledger_account;
struct ledger_device;
struct ledger_capacity;
struct book_block_view;
struct query_exited;
struct query_book;
struct host_process;
struct query_cgroup;
struct host_system;

/* One row of any table; what the table does not have is NULL. */
struct query_row {
    const struct ledger_process *process;
    const struct ledger_account *account;
    const struct ledger_device *device;
    const struct ledger_capacity *capacity;
    const struct book_block_view *block;
    struct query_book *book; /* of the block or site */
    uint32_t site;
    const struct query_exited *exited;
    const struct host_process *host; /* with `process`, which has no account if it keeps no book */
    const struct host_system *system;
    const struct query_cgroup *cgroup;
    const void *custom; /* of tables that others bring */
};

/* A column as it was named: "device.1.dram" is column "device" with a device and a space. */
struct query_field {
    const struct query_column *column;
    uint32_t space;  /* 0: all */
    int32_t ordinal; /* of a device; below 0: all */
};

struct query_column {
    const char *name; /* "device.dram"; NULL ends a list */
    const char
        *help; /* a sentence without full stop; NULL: as the vocabulary has it (vocabulary.h) */
    enum query_kind kind;
    enum query_aggregate aggregate;
    unsigned flags;   /* enum query_column_flags */
    unsigned needs;   /* enum query_needs: what this column needs apart from what its table does */
    const char *unit; /* NULL: the usual one of its kind, see query_column_unit() */
    uint32_t arg;     /* the getter's: a space, an index */
    /* Fill in `ret`, which is all 0 (absent). Texts need to stay until the row is done. */
    void (*get)(const struct query_world *world, const struct query_row *row,
                const struct query_field *field, struct query_value *ret);
};

enum query_column_flags {
    QUERY_PRIVATE = 1u << 0, /* for the owner of the row only: see query_world.viewer_uid */
    QUERY_DETAIL = 1u << 1,  /* costs: the table skips whole processes by the other columns first */
    QUERY_PER_NODE =
        1u << 2, /* the largest value of one node; nodes are added up: see query_sum_nodes() */
    QUERY_PRIVATE_ENDED =
        1u << 3, /* private once the process of the row ended: query_table.ended */
};

/* What a table or column is made of. A world is assembled with exactly what a question needs
 * (query_needs()); no other code asks which table it is. */
enum query_needs {
    QUERY_NEEDS_BOOKS = 1u << 0,     /* world.ledger with figures as of now */
    QUERY_NEEDS_FACTS = 1u << 1,     /* and with what /proc says of its processes */
    QUERY_NEEDS_BLOCKS = 1u << 2,    /* the files of books are read: blocks, call sites */
    QUERY_NEEDS_SYMBOLS = 1u << 3,   /* world.source_of, where there is one */
    QUERY_NEEDS_HOST = 1u << 4,      /* world.host */
    QUERY_NEEDS_PROBES = 1u << 5,    /* and what is costly to read there: see ledger/host.h */
    QUERY_NEEDS_CGROUPS = 1u << 6,   /* world.cgroups */
    QUERY_NEEDS_DRIVER = 1u << 7,    /* the driver's facts in the ledger: see ledger/driver.h */
    QUERY_NEEDS_EXITS = 1u << 8,     /* world.exited */
    QUERY_NEEDS_LEAKS = 1u << 9,     /* world.suspects */
    QUERY_NEEDS_HISTORY = 1u << 10,  /* world.history; its reading blocks */
    QUERY_NEEDS_EVENTS = 1u << 11,   /* world.events */
    QUERY_NEEDS_RETIRED = 1u << 12,  /* world.retired */
    QUERY_NEEDS_MAPPINGS = 1u << 13, /* world.explain; its reading blocks */
};

/* Calls `each` per row until it returns other than 0 (which is returned). `may_match` tells whether any
 * row of that process can match, by the columns without QUERY_DETAIL. */
struct query_scan {
    int (*each)(struct query_scan *scan, const struct query_row *row);
    bool (*may_match)(struct query_scan *scan, const struct query_row *row);
    const struct query_world *world;
    uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0: none */
    bool incomplete;      /* set by tables that could not read something */
};

struct query_table {
    const char *name;
    const char *help;
    const struct query_column *columns;
    const char *show;    /* usual columns of rows */
    const char *show_by; /* usual columns of groups, after the keys */
    const char *sort;    /* usual order of rows */
    unsigned needs;      /* enum query_needs */
    bool costly;         /* takes long, or as long as users like: askers take turns */
    bool
        driver_only; /* nothing is in it without an NVIDIA driver: that there is none is worth a word */
    /* Its texts are strings that stay until the world changes, not only until the next row. */
    bool lasting_texts;
    bool private_rows;                    /* rows of others are left out as a whole */
    int (*scan)(struct query_scan *scan); /* NULL: rows come by query_result_add() */
    /* The owner of the row; false: it has none, and every viewer may see it. */
    bool (*owner)(const struct query_row *row, uint32_t *ret_uid);
    /* Has the process of the row ended by now? For columns with QUERY_PRIVATE_ENDED: of a process that runs, every
     * viewer sees them in the table `host`. Asked only for viewers who are not the owner. */
    bool (*ended)(const struct query_row *row);
    /* Rows for which it is false (processes that are gone) come only where a question names the column
     * `unusual_by` in `where` or `by`. NULL: all rows are usual. */
    bool (*usual)(const struct query_row *row);
    const char *unusual_by;
    /* A figure that `where` must compare by = (see query_named()), and why, as the error says. NULL: it need not. */
    const char *named_by, *named_why;
    /* Names that are no plain column: "device.1.dram". False when it is none. NULL: there are none. */
    bool (*resolve)(const char *name, size_t len, struct query_field *ret_field);
};

/* How many nodes a group is on: 1 where one answers, the sum where a cluster does (query_sum_nodes()). Beside the column node. */
#define QUERY_COLUMN_NODES                                                     \
    {                                                                          \
        "nodes", "nodes of the cluster that have it", QUERY_NUMBER, QUERY_MAX, \
            .flags = QUERY_PER_NODE, .get = query_get_one                      \
    }
void query_get_one(const struct query_world *world, const struct query_row *row,
                   const struct query_field *field, struct query_value *ret);

/* The column node of tables whose rows are all of the node that answers. */
void query_get_node(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, struct query_value *ret);

/* For getters. */
static inline void query_set_number(struct query_value *value, uint64_t number)
{
    value->number = number;
    value->state = QUERY_KNOWN;
}
enum { QUERY_RATE_SCALE = 1000 };
/* What a RATE holds for a rate a second; at the ends of what fits. */
int64_t query_rate_of(double per_s);
static inline void query_set_rate(struct query_value *value, double per_s)
{
    query_set_number(value, (uint64_t)query_rate_of(per_s));
}
/* `number` is a part of `per`. */
static inline bool query_kind_is_part(enum query_kind kind)
{
    return kind == QUERY_PERCENT || kind == QUERY_SHARE;
}
void query_set_text(struct query_value *value, const char *text);
/* The node of a row: `node`, or the one that answers where that is NULL or empty. */
void query_set_node(struct query_value *value, const struct query_world *world, const char *node);
/* The user's name, or the number where no name is known: until the next call in this thread. */
void query_set_user(struct query_value *value, const struct query_world *world, uint32_t uid);
/* Sorted by time, each once; borrowed until the row is done. */
void query_set_points(struct query_value *value, const struct query_point *points, size_t n);
/* The frames stand in `text` with a line feed between them. */
void query_set_frames(struct query_value *value, const char *text);

/* Of a known QUERY_POINTS: how many, and one of them. */
static inline size_t query_points(const struct query_value *value)
{
    return value->len / sizeof(struct query_point);
}
struct query_point query_point(const struct query_value *value, size_t i);

/* "bytes", "seconds", "bytes/s": in which unit answers have the values of a column; "" where there is none. */
const char *query_column_unit(const struct query_column *column);

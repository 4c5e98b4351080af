/* The one query core: filter, group, sort and limit rows of the ledger, and merge partial answers.
 *
 *     struct query *query;
 *     struct query_error error;
 *     int r = query_new(&(struct query_spec){.by = "program", .where = "user=ann",
 *                                            .show = "rss,device.dram", .sort = "-device.dram"},
 *                       &query, &error);            // error.text tells what is wrong, and where
 *     struct query_result *result;
 *     r = query_result_new(query, 0, &result);
 *     r = query_run(query, &(struct query_world){.ledger = ledger, .sees_all = true}, result);
 *     r = query_result_finish(result);              // sorts and cuts
 *     query_result_json(result, &json);             // or query_result_value() cell by cell
 *
 * A query is a constant once made: it can be kept and run again and again, by several threads. A result
 * belongs to one thread and borrows its query; it copies every text, so that the ledger may change
 * after the run. Nothing here logs or makes a system call but the clock (and, for the tables buffers and
 * sites, the reading of books).
 *
 * Merging is associative and commutative: whatever rows went into which result, and in whatever order
 * results are merged, the answer is the same (test_query_merge). So a cluster's answer is a merge of
 * its nodes' partial ones, which travel as bytes: query_partial_write(), query_partial_read(). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <memoir/memoir.h>

#include "query/column.h"

struct buffer;
struct cgroups;
struct events_world;
struct explain_world;
struct history_world;
struct host;
struct json;
struct suspects;
struct ledger;
struct ledger_book;
struct profile_world;
struct query;
struct query_result;
struct retired_source;

enum {
    QUERY_TEXT_MAX = 4096,    /* bytes of each part of a spec */
    QUERY_BY_MAX = 8,         /* columns to group by */
    QUERY_OUTPUTS_MAX = 48,   /* columns shown or sorted by, those to group by included */
    QUERY_NODES_MAX = 256,    /* comparisons and operators of an expression */
    QUERY_DEPTH_MAX = 48,     /* parentheses in parentheses */
    QUERY_ROWS_MAX = 1000000, /* default of what a result holds; the rest is counted */
    QUERY_TABLES_MAX = 48,
    QUERY_ERROR_TEXT_MAX = 512,
};

/* ---- a query ---- */

/* What to ask, in words (doc/query.md has the language). NULL, "" and 0 leave a part out. Borrowed during
 * query_new() only. */
struct query_spec {
    const char *table; /* default "processes" */
    const char *by;    /* "program,node": one row for each group; else one for each row */
    const char *where; /* "user=ann and rss>1GB" */
    const char *show;  /* "rss,max(age),count"; default: the table's usual columns */
    const char *sort;  /* "-rss,program"; -x large first, +x small first, x figures large first */
    uint64_t limit;    /* rows; 0: all */
    bool others; /* with a limit: what the rows past it add up to, see query_result_others() */
    /* Columns of `show` and `sort` that the table does not have are left out: another version may have asked. */
    bool lenient;
};

/* What is wrong with a spec, for people: one line, and where it is. */
struct query_error {
    char text[QUERY_ERROR_TEXT_MAX]; /* "there is no column 'rsss', did you mean 'rss'?" */
    const char *part;                /* "where", "by" ...: a member of query_spec; or NULL */
    size_t at, len;                  /* the bytes of that part that are meant */
};

/* 0; -EINVAL with `ret_error` filled in; or -ENOMEM. `ret_error` may not be NULL. */
int query_new(const struct query_spec *spec, struct query **ret_query,
              struct query_error *ret_error);

/* The same over a table that is none of query_tables(), which must outlive the query. */
int query_new_over(const struct query_table *table, const struct query_spec *spec,
                   struct query **ret_query, struct query_error *ret_error);
void query_free(struct query *query); /* NULL is fine */
void query_freep(struct query **query);

/* The error as one to three lines for a terminal: what is wrong, the part of the spec, and a mark under
 * the place. `spec` is what query_new() got. 0 or the buffer's error. */
int query_error_print(const struct query_error *error, const struct query_spec *spec,
                      struct buffer *out);

/* Tables of this folder are there from the start. A program adds those that live beside their source (history,
 * profile ...) when it starts, before it makes threads or queries: 0; -EEXIST for a name that is taken; -ENOSPC. The
 * table must stay. */
int query_table_register(const struct query_table *table);

/* All tables, ended by NULL, the default first; one by its name, or NULL. */
const struct query_table *const *query_tables(void);
const struct query_table *query_table_find(const char *name);
const struct query_table *query_table_of(const struct query *query);

/* What query_new() got, without NULL; the table is named where it was the default. */
const struct query_spec *query_spec_of(const struct query *query);

/* The values of the table's column `named_by` that `where` names, each once: no row with another value matches.
 * 0; -ENOENT where rows with any value may match, or the table wants none; -E2BIG for more than `max`. Of a table
 * with `named_by` every query has at most QUERY_NAMED_MAX. */
enum { QUERY_NAMED_MAX = 16 };
int query_named(const struct query *query, uint64_t *ret_values, size_t max, size_t *ret_n);

/* What has to be in the world for this question: enum query_needs of its table and of all columns that it names. */
unsigned query_needs(const struct query *query);

/* Does it ask for rows that are not usual, too? See query_table.unusual_by. */
bool query_asks_unusual(const struct query *query);

/* Words for people: "bytes", "age"; and what groups show of a column unless told otherwise. */
const char *query_kind_name(enum query_kind kind);
uint64_t query_percent_hundredths(const struct query_value *value); /* of a known PERCENT */
/* "2026-01-31T12:00:00.123Z", as answers have it. Returns `text`. */
enum { QUERY_TIME_TEXT_MAX = 32 };
const char *query_time_text(char text[static QUERY_TIME_TEXT_MAX], uint64_t real_ns);
enum query_aggregate query_column_aggregate(const struct query_column *column);

/* ---- what it looks at ---- */

/* A process that ended, as the table `exited` takes it: memoird has them in memory, a command reads
 * them by query_exited_read(). Strings are borrowed; NULL: not known. */
struct query_exited {
    const char *program, *command, *exe, *user, *node, *cause, *cgroup;
    const char *kind; /* of the cause: "code", "signal", "oom", "exec", "unknown" */
    uint64_t pid;     /* 0: not known */
    uint32_t uid;
    uint64_t start_ns, end_ns; /* since 1970; 0: not known */
    uint64_t losses;
    bool has_book; /* else only the kernel told of it, and there are no accounts */
    /* What the kernel told: by query_exited_join(). */
    bool has_exit; /* it did, so the next ones are known */
    bool core, oom;
    bool peak_estimate;
    uint64_t sequence, parent, peak_rss, cpu_ns;
    uint64_t processes; /* 0 for one; else the row is a sum of so many */
    uint64_t lived_ns;  /* of a sum: the longest */
    bool has_exit_code, has_signal;
    int32_t exit_code, signal;
    bool figures_incomplete; /* some account could not be read at the end */
    /* What it still held; by query_exited_add_account(). */
    uint64_t bytes[MEMOIR_SPACE_MAX + 1], blocks, device_peak;
    uint32_t spaces; /* bit of each space that it had an account of */
    uint32_t sampled,
        partial; /* bits of those that were estimates, or counted from some moment on */
};

/* Add what an account of it held at the end. Spaces that have no number here are left out. */
void query_exited_add_account(struct query_exited *exited, uint32_t space, uint64_t live_bytes,
                              uint64_t live_blocks, uint64_t peak_bytes);
void query_exited_mark_account(struct query_exited *exited, uint32_t space, bool sampled,
                               bool partial);

/* A place in a program's code. */
struct query_code {
    const char *path; /* of its file, as the process saw it */
    const uint8_t *build_id;
    size_t build_id_len; /* may be 0 */
    uint64_t offset;     /* as in the file */
    pid_t pid;           /* 0: not known, or gone */
    uint64_t started_ns; /* when the process was started, since 1970; 0: not known */
};

/* What debug information says of it; NULL and 0: not known. */
struct query_source {
    const char *function, *file;
    uint32_t line;
};

/* The line that speaks for a call site of a book. Texts are NULL where they are not known. */
struct query_site {
    const char *text;  /* for people: "train.c:42 load" */
    const char *frame; /* "PATH+0xOFFSET"; of a script "FILE:LINE" */
    const char *function, *file;
    uint32_t line;
};

/* The rule about details, for every surface: root (`sees_all`) sees those of all processes, a user those of
 * that user's own. Details are command lines, paths, call sites, tags and single blocks; of a process that ended also
 * its program and how it ended. */
static inline bool query_may_see(bool sees_all, uint32_t viewer_uid, uint32_t owner_uid)
{
    return sees_all || (viewer_uid == owner_uid && owner_uid != UINT32_MAX);
}

/* The world as this run sees it. Everything is borrowed during query_run(). */
struct query_world {
    struct ledger *ledger; /* refreshed by the caller; NULL: no rows but of exited and own tables */
    const struct query_exited *exited;
    size_t n_exited;
    const struct suspects *suspects; /* of profile's table leaks; NULL: nothing was watched */
    const struct host *host;         /* refreshed by the caller; NULL: no rows of host and system */
    const struct cgroups *cgroups;   /* a whole look; NULL: no rows of cgroups */
    const struct retired_source *retired; /* retired_lines.h; NULL: no rows of exited_blocks */
    /* Of tables that live beside their source, which alone knows what is in there. NULL: no rows. */
    struct history_world *history;
    struct events_world *events;
    struct profile_world *profile; /* NULL: rows have no names */
    struct explain_world *explain;

    /* Who asks: see query_may_see(). A command that reads the files itself sees all that it can read. */
    bool sees_all;
    uint32_t viewer_uid;

    const char *node;     /* name of this machine; NULL: gethostname() */
    uint64_t now_real_ns; /* 0: the clock's */

    /* Name of a user where the ledger keeps none (a daemon's, since NSS may block). NULL, or a result
     * of NULL: the number. */
    const char *(*user_name)(uint32_t uid, void *context);
    /* Which line of the source a place in the code is; false: not known. Texts stay until the next call. NULL: places are
     * called by module and offset, "train+0x1234". */
    bool (*source_of)(const struct query_code *code, struct query_source *ret_source,
                      void *context);
    /* The line of the program's own code that asked at a site of a book, which may be further out than the caller
     * (profile/site_lines.h); false: not known, and source_of serves. Texts stay until the next book. NULL: none is. */
    bool (*site_of)(const struct ledger_book *book, uint32_t site, struct query_site *ret_site,
                    void *context);
    void *context; /* of the three */

    uint64_t time_max_ns; /* for the reading of blocks and sites; 0: no limit */
};

/* Look at every row of the query's table, and add those that match to `result`, which may hold rows
 * already (of other runs). 0; -ENOMEM; -ETIME when time_max_ns was over: the result then lacks rows and
 * says so (query_result_incomplete()). About 0.1 µs a process and column. */
int query_run(const struct query *query, const struct query_world *world,
              struct query_result *result);

/* Call `each` with every row that matches, and with its value for each output of a query without groups, in the order of
 * the table: nothing is copied, sorted or cut. For layouts that keep rows of their own, such as the screen of memoir top.
 * Texts stay until the next row; those of tables with `lasting_texts` until the world changes. Stops at the first result other
 * than 0 and returns it; -EINVAL for a query with groups. */
typedef int query_each_fn(const struct query_row *row, const struct query_value *values,
                          void *context);
int query_each(const struct query *query, const struct query_world *world, query_each_fn *each,
               void *context);

/* Add one row of one's own (see query_new_over()). 1 when it matched, 0 when not, or -ENOMEM. */
int query_result_add(struct query_result *result, const struct query_world *world,
                     const struct query_row *row);

/* ---- a result ---- */

/* `rows_max` (0: QUERY_ROWS_MAX): beyond it rows are counted in query_result_left_out(), not kept. A
 * query with a limit and no groups holds about twice the limit at most. */
int query_result_new(const struct query *query, size_t rows_max, struct query_result **ret_result);
void query_result_free(struct query_result *result); /* NULL is fine */
void query_result_freep(struct query_result **result);

/* Empty it for the next run, keeping its memory. */
void query_result_reset(struct query_result *result);

/* Add all of `from`, a result of the same query that stays as it is. -EINVAL for another query's. */
int query_result_merge(struct query_result *into, const struct query_result *from);

/* Sort and cut. More may be added later; then finish again. */
int query_result_finish(struct query_result *result);

/* After finish. Columns are those of query_output(); values borrow from the result. A value carries
 * marks: QUERY_AT_LEAST where something was left out of a sum, QUERY_ESTIMATE. */
size_t query_result_rows(const struct query_result *result);
struct query_value query_result_value(const struct query_result *result, size_t row, size_t column);

/* Rows (or groups) before the limit; those past rows_max; and whether a source could not be read whole. */
uint64_t query_result_matched(const struct query_result *result);
uint64_t query_result_left_out(const struct query_result *result);
bool query_result_incomplete(const struct query_result *result);

/* With spec.others, after finish: how many rows (or groups) the limit cut off, and what they add up to in a column, each
 * combined as groups combine it. */
uint64_t query_result_others(const struct query_result *result);
struct query_value query_result_other(const struct query_result *result, size_t column);

/* Was the column unknown to some machine whose part was merged? Its cells are not known there. */
bool query_result_missing(const struct query_result *result, size_t column);

/* Where its rows come from. */
struct query_origin {
    char node[QUERY_NAME_MAX]; /* "" when from several */
    bool sees_all;             /* what the viewer may see: all, or */
    uint32_t viewer_uid;       /* what is this user's */
    uint64_t time_ns;          /* of the oldest, since 1970 */
};
const struct query_origin *query_result_origin(const struct query_result *result);

/* A column of the answer. */
struct query_output {
    char name[QUERY_NAME_MAX]; /* as asked: "rss", "max(rss)", "count" */
    enum query_kind kind;
    bool key;                          /* one of --by */
    const struct query_column *column; /* NULL for count */
};
size_t query_outputs(const struct query *query);
const struct query_output *query_output(const struct query *query, size_t column);

/* The answer as fields of an open JSON object: "table", "columns" ([{"name","kind"}]), "rows" (objects
 * by column; null where nothing is known; "at_least" and "estimate" list the columns with such marks),
 * "matched", and "others" ({"rows": how many, and by column}), "left_out", "missing" (columns) and "incomplete" where there is
 * something to tell. Sizes are bytes, ages seconds, times ISO 8601, percentages numbers. */
void query_result_json(const struct query_result *result, struct json *json);

/* The same with rows as arrays in the order of the columns, which is about half as long and takes two thirds of the time; and
 * "at_least" and "estimate", where any cell has such a mark, are arrays of [row, column]. */
void query_result_arrays(const struct query_result *result, struct json *json);

/* One value as answers have it. */
void query_value_json(struct json *json, enum query_kind kind, const struct query_value *value);

/* The rows alone, one object a line. 0 or the buffer's error. */
int query_result_lines(const struct query_result *result, struct buffer *out);

/* ---- partial results between machines ---- */

/* Everything that a result holds, before or after finish, with the question, the node and the viewer (partial.h has the
 * bytes). 0 or the buffer's error. */
int query_partial_write(const struct query_result *result, struct buffer *out);

enum { QUERY_PARTIAL_MAX = 1 << 30 }; /* bytes; texts and lists in them are shorter than 2^31 */

/* Add such bytes to `into`. They are untrusted: -EINVAL when they are invalid or answer another question (then nothing was
 * added), -ENOMEM (then some of it may be). Another version may lack columns: their cells are unknown then, and
 * query_result_missing() says so. A part that was cut to fewer rows than `into` asks for makes it incomplete. */
int query_partial_read(struct query_result *into, const void *bytes, size_t len);

/* The same of a node that the reader knows by other means than by what the bytes say. */
struct query_partial_from {
    const char *node; /* its name, for the column `node` and the origin; NULL: as the bytes say */
    uint64_t *ret_missing; /* gets the bits of the outputs that it lacks; may be NULL */
};
int query_partial_read_from(struct query_result *into, const void *bytes, size_t len,
                            const struct query_partial_from *from);

/* For a query that only merges one partial result of each node, before the first: groups count their nodes. */
void query_sum_nodes(struct query *query);

/* Drop the rows past the limit of a finished result without groups, as if there had been many more: they are counted, and
 * added to `others`. Groups stay, since any may be among the first once all parts are merged. -ENOMEM. */
int query_result_trim(struct query_result *result);

/* What such bytes answer and where they come from, for free(). -EINVAL, -ENOMEM. */
struct query_partial_head {
    struct query_spec spec;
    struct query_origin origin;
};
int query_partial_head(const void *bytes, size_t len, struct query_partial_head **ret_head);

/* ---- processes that ended, from STATE/retired.jsonl ---- */

struct query_exited_list {
    struct query_exited *rows; /* latest first */
    size_t n;
    size_t skipped; /* invalid lines */
    void *texts;    /* owned */
    void *file;     /* the same */
};

struct exit_file;

/* Processes with a book, and what the kernel told of all that ended (query/exit_file.h, borrowed like the rows;
 * NULL: nothing) as one list: one row for each process, however many sources knew of it. -ENOMEM. */
int query_exited_join(const struct query_exited *rows, size_t n, const struct exit_file *file,
                      struct query_exited_list *ret_list);

/* Reads `state`/retired.jsonl.1, retired.jsonl and exits.ring. -ENOENT when there is none of them. */
int query_exited_read(const char *state, struct query_exited_list *ret_list);
void query_exited_release(struct query_exited_list *list);

/*
 * ps.h: how `memoir ps` lays out the rows of the views ps and accounts, and where the daemon's list of ended processes is.
 *
 * The largest blocks of ended processes (--exited --blocks) are no table of the query core: they are read from the daemon's
 * list here.
 */
#ifndef MEMOIR_CLI_PS_H
#define MEMOIR_CLI_PS_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/query_print.h"
#include "cli/table.h"

struct buffer;
struct ledger;
struct site_names;

/* ---- processes that live ---- */

/* The columns that the layouts need, and their order: of processes, and with `wide` of their accounts. */
extern const char ps_rows[], ps_sort[], ps_all_sort[], ps_wide_rows[], ps_wide_sort[];
struct query_style ps_layout(const struct query_style *style, bool wide);

/* The same rows of a ledger that is at hand, for query_sheet_free(); of one process, or with 0 of all. 0 or -errno. */
int ps_sheet(struct ledger *ledger, uint64_t pid, bool wide, struct query_sheet **ret_sheet);

/* ---- blocks of processes that ended ---- */

/* Which rows are wanted. */
struct ps_filter {
    uint64_t pid; /* 0: all */
    bool by_uid;
    uint32_t uid;
};

/* A table of processes, and one whose rows each belong to one of them. */
struct ps_view {
    struct table processes;
    struct table details;
    const char *details_name; /* in JSON: "spaces", "blocks" */
    size_t *owner;            /* row of `processes` for each row of `details` */
    size_t cap_owner;
};

/* The columns that start every row of `details` and that JSON does not repeat. */
enum { PS_OWN_COLUMNS = 3 };

extern const struct column ps_exited_columns[];
extern const struct column ps_block_columns[];

void ps_view_release(struct ps_view *view);

/* For those who fill views: start a row of `details` that belongs to the last row of `processes`. */
void ps_view_detail(struct ps_view *view);

/* The dead, latest first, from the daemon's list in the state directory `state` (NULL: see ps_state_find()).
 * `names` may be NULL: call sites then stay numbers. ret_skipped counts lines that made no sense.
 * -ENOENT when there is no list. */
int ps_view_exited(const char *state, const struct ps_filter *filter, struct site_names *names,
                   struct ps_view *ret_view, size_t *ret_skipped);

/* Where memoird keeps its state unless told otherwise; "" when there is no home directory. */
enum { PS_STATE_PATH_MAX = 512 };
void ps_state_default(char path[static PS_STATE_PATH_MAX]);

/* Where to look for it: `asked`, if it is not NULL; what the daemon that runs says, if it answers and we may read it; the
 * default. Asks once. */
const char *ps_state_find(const char *asked);

/* Where to change something in it: the same, but the daemon that runs must be of our own user, and its state directory,
 * too; the default only where none runs. Tells what is wrong. An exit code of command.h, or -errno. */
int ps_state_find_own(char ret_path[static PS_STATE_PATH_MAX]);

/* ---- printing ---- */

enum ps_format { PS_TEXT, PS_CSV, PS_JSON };

struct ps_style {
    enum ps_format format;
    bool header;
    bool details;       /* text and CSV: the details rather than the processes */
    bool both;          /* text: the processes, then the details */
    const char *sort;   /* a column of what is shown, or NULL for the order of rows */
    const char *schema; /* "memoir.ps/1" */
};

/* Returns -EINVAL when `sort` is no column. */
int ps_print(const struct ps_view *view, const struct ps_style *style, const struct term *term,
             struct buffer *out);

#endif

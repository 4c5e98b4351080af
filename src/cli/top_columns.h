/*
 * top_columns.h: the columns of `memoir top`: how wide, what they say of a row, how they compare.
 *
 * Keys, titles and help are those of top_fields, which the exports and the manual use as well.
 */
#ifndef MEMOIR_CLI_TOP_COLUMNS_H
#define MEMOIR_CLI_TOP_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/table.h"
#include "cli/term.h"
#include "cli/top_rows.h"

struct buffer;
struct host_system;

/* In the order in which they stand on the screen. */
enum top_column {
    TOP_COLUMN_PID,
    TOP_COLUMN_PARENT,
    TOP_COLUMN_USER,
    TOP_COLUMN_PROGRAM,
    TOP_COLUMN_STATE,
    TOP_COLUMN_RSS,
    TOP_COLUMN_SHARE,
    TOP_COLUMN_RATE_10S,
    TOP_COLUMN_RATE_1MIN,
    TOP_COLUMN_RATE_10MIN,
    TOP_COLUMN_TREND,
    TOP_COLUMN_TREE,
    TOP_COLUMN_PSS,
    TOP_COLUMN_PSS_AGE,
    TOP_COLUMN_USS,
    TOP_COLUMN_DIRTY,
    TOP_COLUMN_SWAP,
    TOP_COLUMN_ANON,
    TOP_COLUMN_FILE,
    TOP_COLUMN_SHMEM,
    TOP_COLUMN_SHARED,
    TOP_COLUMN_VMS,
    TOP_COLUMN_PEAK,
    TOP_COLUMN_HEAP,
    TOP_COLUMN_PINNED,
    TOP_COLUMN_DEVICE,
    TOP_COLUMN_THREADS,
    TOP_COLUMN_MAJOR_FAULTS,
    TOP_COLUMN_OOM,
    TOP_COLUMN_HEADROOM,
    TOP_COLUMN_AGE,
    TOP_COLUMN_TRACKED,
    TOP_COLUMN_JOB,
    TOP_COLUMN_RANK,
    TOP_COLUMN_CONTAINER,
    TOP_COLUMN_POD,
    TOP_COLUMN_CGROUP,
    TOP_COLUMN_COMMAND,
    TOP_COLUMNS,
};

extern const struct column top_fields[]; /* TOP_COLUMNS of them, and the end */

/* One bit for each. */
typedef uint64_t top_column_set;
#define TOP_COLUMN_BIT(column) (UINT64_C(1) << (column))
extern const top_column_set top_columns_default;

/* "pid,rss" and back. -EINVAL for a word that is none, which `ret_word` then has (NULL is fine). */
int top_columns_parse(const char *text, top_column_set *ret_set, char ret_word[static 32]);
void top_columns_format(top_column_set set, struct buffer *out);

/* Is it one that people sort by? The trend is not. */
bool top_column_sorts(enum top_column column);

/* Sizes and numbers are first sorted from large to small, text from A to Z. */
bool top_column_ascends(enum top_column column);

/* The figure that it shows, or -1. */
int top_column_figure(enum top_column column);

/* What it says of a row where it shows no figure: a text ("": none), or a number; false: none. Ages are nanoseconds. */
const char *top_column_text(enum top_column column, const struct top_row *row);
bool top_column_number(enum top_column column, const struct top_row *row, int64_t *ret);

/* Below 0, 0, above 0, as `a` is before, beside or behind `b`; unknown values are behind in either order. `sums`:
 * of what their families have. */
int top_column_compare(enum top_column column, bool ascending, bool sums, const struct top_row *a,
                       const struct top_row *b);

/* Has the column anything to say of the row, a figure of 0 being nothing? */
bool top_column_tells(enum top_column column, const struct top_row *row);

/* ---- on the screen ---- */

struct top_layout {
    size_t n;
    enum top_column column[TOP_COLUMNS];
    unsigned start[TOP_COLUMNS], width[TOP_COLUMNS];
};

/* Which of `wanted` fit into `width`, and where they stand. Columns of which no row to show has anything to say may be
 * left out, those that matter least go first where room is short. PID, program and RSS always stay. */
void top_layout_make(const struct top_rows *rows, top_column_set wanted, bool tree, unsigned width,
                     struct top_layout *ret_layout);

/* What cells need to know besides their row. */
struct top_cells {
    const struct term *term;
    const struct host_system *system;
    uint64_t looks;
    bool tree;
};

/* The heading and a row, as wide as the layout. */
void top_heading_append(const struct term *term, const struct top_layout *layout,
                        enum top_column sort, bool ascending, struct buffer *out);
void top_row_append(const struct top_cells *cells, const struct top_layout *layout,
                    const struct top_row *row, struct buffer *out);

/* Sizes in five columns: "842k", "12.4M", "1.24G"; k is 1,000. Returns `text`. */
enum { TOP_SIZE_MAX = 16 };
const char *top_size(char text[static TOP_SIZE_MAX], uint64_t bytes);

/* Ages in four columns: "45s", "3m", "12h", "200d". Returns `text`. */
const char *top_age(char text[static TOP_SIZE_MAX], uint64_t ns);

/* How alarming is it that memory grows so fast? */
enum term_style top_rate_style(int64_t bytes_per_s, const struct host_system *system);

#endif

/* Inside the query core: what a result holds. */
#pragma once

#include "query/arena.h"
#include "query/plan.h"

/* One value, or what is known of it so far. Every operation on cells is associative and commutative, and
 * a cell has one form only for one meaning, so that results do not depend on the order of rows. */
struct cell {
    union {
        uint64_t number;  /* RATE: an int64_t */
        const char *text; /* in the result's arena, ended by NUL; or struct query_point */
    };
    uint64_t per; /* PERCENT: the whole; AVG: how many; else 0 */
    uint32_t len; /* of text, or of points in bytes */
    uint8_t state, marks;
};

struct query_result {
    const struct query *query;
    size_t rows_max;
    uint64_t seed;

    struct cell *cells; /* n_rows * query->n_outputs */
    size_t n_rows, cap_rows;
    uint64_t *hashes; /* of groups: n_rows */
    uint32_t *slots;  /* of groups: row + 1 by hash, 0: free */
    size_t n_slots;   /* a power of two, or 0 */
    struct arena texts;

    uint32_t *order; /* as of finish */
    size_t n_order;

    /* With spec.others: the rows that a limit dropped, added up; NULL: none was. Texts in `others_texts`. */
    struct cell *others;
    struct arena others_texts;
    struct cell *tail; /* as of finish: the same with the rows past the limit; or NULL */
    uint64_t n_tail;   /* how many rows it stands for */

    /* Rows with a greater key of the first sort than the last row that a limit kept would be dropped, too. */
    uint64_t bar;
    bool has_bar;

    struct query_origin origin;
    bool has_origin;
    uint64_t missing;  /* bits of outputs that some part lacked */
    uint64_t pruned;   /* rows without groups that a limit made us drop */
    uint64_t left_out; /* past rows_max */
    bool incomplete;
};

/* cell.c */
static inline bool cell_is_text(const struct output *output)
{
    return kind_is_text(output->o.kind);
}
static inline bool cell_is_points(const struct output *output)
{
    return output->o.kind == QUERY_POINTS;
}
/* Its value lies apart, at `text`, `len` bytes long. */
static inline bool cell_is_apart(const struct output *output)
{
    return cell_is_text(output) || cell_is_points(output);
}
static inline bool cell_is_signed(const struct output *output)
{
    return output->o.kind == QUERY_RATE;
}
/* points.c: merge those of `in` into `cell` by their times. -ENOMEM. */
int points_fold(enum query_aggregate aggregate, struct cell *cell, const struct cell *in,
                struct arena *arena);
/* Strictly in the order of time, and not too many. */
bool points_valid(const char *bytes, size_t len);
/* A value of one row as a cell; its text stays where it is. */
void cell_of_value(const struct output *output, const struct query_value *value, bool grouped,
                   struct cell *ret);
/* Add `in` to `cell`. A text that it takes over is copied. -ENOMEM. */
int cell_fold(const struct output *output, struct cell *cell, const struct cell *in,
              struct arena *texts);
/* Absent ones last; 0 only for cells that are the same in every respect. */
int cell_compare(const struct output *output, const struct cell *a, const struct cell *b,
                 bool descending);
/* Small where cell_compare() would put it first; equal where it cannot tell. Of a text, CELL_KEY_BYTES after
 * the first `skip`, which are the same in all: those of two texts are equal only if these bytes are. */
enum { CELL_KEY_BYTES = 7 };
uint64_t cell_sort_key(const struct output *output, const struct cell *cell, size_t skip,
                       bool descending);
uint64_t cell_hash(const struct output *output, const struct cell *cell, uint64_t hash);
bool cell_same(const struct output *output, const struct cell *a, const struct cell *b);
void cell_value(const struct output *output, const struct cell *cell, struct query_value *ret);

/* order.c: all rows in the order of the query, which no order in which they came can change; in
 * `*ret_memory`, which is for free(). NULL without memory. */
struct ranked {
    uint64_t key; /* order.c's own */
    uint32_t row;
};
const struct ranked *result_rank(const struct query_result *result, void **ret_memory);

/* limit.c: keep the first rows, as many as the query's limit, and no text of others. A caller may let
 * twice as many and RESULT_PRUNE_SLACK come together before. -ENOMEM. */
enum { RESULT_PRUNE_SLACK = 1024 };
int result_prune(struct query_result *result);
/* With `has_bar`: would a row with this cell in the output of the first sort be dropped by the next
 * result_prune()? Then it is dropped and counted. */
bool result_drop_late(struct query_result *result, const struct cell *cell);
/* Take over the texts of a row that lie elsewhere. -ENOMEM. */
int result_copy_texts(const struct query *q, struct cell *cells, struct arena *texts);

/* result.c: add a row, or what is known of a group, whose texts are elsewhere. */
int result_add_cells(struct query_result *result, const struct cell *cells);
/* Add rows that were dropped elsewhere; and where rows came from. */
int result_add_others(struct query_result *result, const struct cell *cells);
int result_finish_others(struct query_result *result, const uint32_t *order, size_t n);
void result_release_others(struct query_result *result);
void result_add_origin(struct query_result *result, const struct query_origin *origin);

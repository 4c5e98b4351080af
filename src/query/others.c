/* What rows that a limit cuts off add up to. See query_spec.others. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "query/result.h"

/* Add a row to `sum`, which is all 0 at first; texts go into `texts`. Cells are folded as those of groups. */
static int fold_row(const struct query *q, struct cell *sum, const struct cell *row,
                    struct arena *texts)
{
    int r = 0;
    for (size_t o = 0; o < q->n_outputs && r == 0; o++) {
        struct output output = q->outputs[o];
        struct cell cell = row[o];
        if (output.aggregate == QUERY_AVG && cell.state & QUERY_KNOWN && !cell.per)
            cell.per = 1; /* a single value, not an average yet */
        r = cell_fold(&output, &sum[o], &cell, texts);
    }
    return r;
}

int result_add_others(struct query_result *result, const struct cell *cells)
{
    const struct query *q = result->query;
    if (!result->others)
        result->others = calloc(q->n_outputs, sizeof(*result->others));
    return result->others ? fold_row(q, result->others, cells, &result->others_texts) : -ENOMEM;
}

/* `order` holds the rows from the limit on. */
int result_finish_others(struct query_result *result, const uint32_t *order, size_t n)
{
    const struct query *q = result->query;
    result->n_tail = 0;
    if (!q->spec.others || (n == 0 && !result->others))
        return 0;
    if (!result->tail)
        result->tail = malloc(q->n_outputs * sizeof(*result->tail));
    if (!result->tail)
        return -ENOMEM;
    memset(result->tail, 0, q->n_outputs * sizeof(*result->tail));
    int r = result->others ? fold_row(q, result->tail, result->others, &result->others_texts) : 0;
    for (size_t i = 0; i < n && r == 0; i++)
        r = fold_row(q, result->tail, result->cells + order[i] * q->n_outputs,
                     &result->others_texts);
    result->n_tail = n + result->pruned;
    return r;
}

void result_release_others(struct query_result *result)
{
    free(result->others);
    free(result->tail);
    arena_release(&result->others_texts);
    result->others = result->tail = NULL;
    result->n_tail = 0;
}

uint64_t query_result_others(const struct query_result *result)
{
    return result->n_tail;
}

struct query_value query_result_other(const struct query_result *result, size_t column)
{
    struct query_value value = {0};
    if (result->n_tail)
        cell_value(&result->query->outputs[column], &result->tail[column], &value);
    return value;
}

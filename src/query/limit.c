/* Rows that a limit drops while more of them come. See result.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "query/result.h"

int result_copy_texts(const struct query *q, struct cell *cells, struct arena *texts)
{
    for (size_t o = 0; o < q->n_outputs; o++) {
        if (!cell_is_apart(&q->outputs[o]) || !(cells[o].state & QUERY_KNOWN))
            continue;
        cells[o].text = arena_text(texts, cells[o].text, cells[o].len);
        if (!cells[o].text)
            return -ENOMEM;
    }
    return 0;
}

/* The output whose key tells that a row comes too late; NULL: none can. Texts are not clean yet when that is asked, and
 * dropped rows that are added up are needed whole. */
static const struct output *bar_output(const struct query *q)
{
    const struct output *output = q->n_sorts ? &q->outputs[q->sorts[0].output] : NULL;
    return output && !cell_is_apart(output) && !q->spec.others ? output : NULL;
}

static uint64_t bar_key(const struct query *q, const struct cell *cell)
{
    return cell_sort_key(&q->outputs[q->sorts[0].output], cell, 0, q->sorts[0].descending);
}

bool result_drop_late(struct query_result *result, const struct cell *cell)
{
    if (bar_key(result->query, cell) <= result->bar)
        return false;
    result->pruned++;
    return true;
}

int result_prune(struct query_result *result)
{
    const struct query *q = result->query;
    size_t keep = (size_t)q->limit;
    MEMOIR_CLEANUP(freep)
    void *memory = NULL;
    const struct ranked *ranked = result_rank(result, &memory);
    size_t cap = 2 * keep + RESULT_PRUNE_SLACK;
    struct cell *cells = calloc(cap * q->n_outputs, sizeof(*cells));
    struct arena texts = {0};
    int r = ranked && cells ? 0 : -ENOMEM;
    for (size_t i = 0; i < keep && r == 0; i++) {
        struct cell *to = cells + i * q->n_outputs;
        memcpy(to, result->cells + ranked[i].row * q->n_outputs, q->n_outputs * sizeof(*to));
        r = result_copy_texts(q, to, &texts);
    }
    for (size_t i = keep; i < result->n_rows && r == 0 && q->spec.others; i++)
        r = result_add_others(result, result->cells + ranked[i].row * q->n_outputs);
    if (r < 0) {
        free(cells);
        arena_release(&texts);
        return r;
    }
    free(result->cells);
    arena_release(&result->texts);
    result->cells = cells;
    result->texts = texts;
    result->cap_rows = cap;
    result->has_bar = bar_output(q) != NULL;
    if (result->has_bar)
        result->bar = bar_key(q, cells + (keep - 1) * q->n_outputs + q->sorts[0].output);
    result->pruned += result->n_rows - keep;
    result->n_rows = keep;
    result->n_order = 0;
    return 0;
}

int query_result_trim(struct query_result *result)
{
    const struct query *q = result->query;
    if (q->grouped || !q->limit || result->n_rows <= q->limit)
        return 0;
    int r = result_prune(result);
    return r < 0 ? r : query_result_finish(result);
}

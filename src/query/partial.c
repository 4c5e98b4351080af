/* Writing partial results. See partial.h for the bytes and query.h for what they are good for. */
#include "query/partial.h"

#include <string.h>

static void put_text(struct buffer *out, const char *text, size_t len)
{
    varint_put(out, len);
    buffer_append(out, text, len);
}

static void put_string(struct buffer *out, const char *text)
{
    put_text(out, text ? text : "", text ? strlen(text) : 0);
}

static void put_points(struct buffer *out, const struct cell *cell)
{
    struct query_value value = {.text = cell->text, .len = cell->len};
    uint64_t before = 0;
    varint_put(out, query_points(&value));
    for (size_t i = 0; i < query_points(&value); i++) {
        struct query_point point = query_point(&value, i);
        varint_put(out, point.time_ns - before);
        varint_put(out, point.value);
        before = point.time_ns;
    }
}

static void put_cell(struct buffer *out, const struct output *output, const struct cell *cell)
{
    unsigned head = cell->state | (unsigned)cell->marks << PARTIAL_MARKS_SHIFT;
    bool known = cell->state & QUERY_KNOWN;
    if (known && cell->per)
        head |= cell->per == 1 ? PARTIAL_PER_ONE : PARTIAL_PER;
    buffer_append_char(out, (char)head);
    if (!known)
        return;
    if (cell_is_points(output))
        put_points(out, cell);
    else if (cell_is_text(output))
        put_text(out, cell->text, cell->len);
    else
        varint_put(out, cell_is_signed(output) ? partial_zigzag(cell->number) : cell->number);
    if (head & PARTIAL_PER)
        varint_put(out, cell->per);
}

static void put_row(struct buffer *out, const struct query *q, const struct cell *cells)
{
    for (size_t o = 0; o < q->n_outputs; o++)
        put_cell(out, &q->outputs[o], &cells[o]);
}

static void put_head(struct buffer *out, const struct query_result *result)
{
    const struct query *q = result->query;
    const struct query_origin *from = &result->origin;
    buffer_append(out, PARTIAL_MAGIC, strlen(PARTIAL_MAGIC));
    buffer_append_char(out, PARTIAL_VERSION);
    put_string(out, q->table->name);
    put_string(out, q->spec.by);
    put_string(out, q->spec.where);
    put_string(out, q->spec.show);
    put_string(out, q->spec.sort);
    varint_put(out, q->limit);
    varint_put(out, q->spec.others);
    put_string(out, from->node);
    varint_put(out, from->sees_all ? 0 : (uint64_t)from->viewer_uid + 1);
    varint_put(out, from->time_ns);
    varint_put(out, q->n_by);
    varint_put(out, q->n_outputs);
    for (size_t o = 0; o < q->n_outputs; o++) {
        put_string(out, q->outputs[o].o.name);
        varint_put(out, q->outputs[o].o.kind);
    }
}

int query_partial_write(const struct query_result *result, struct buffer *out)
{
    const struct query *q = result->query;
    put_head(out, result);
    varint_put(out, result->pruned);
    varint_put(out, result->left_out);
    varint_put(out, result->incomplete ? PARTIAL_INCOMPLETE : 0);
    varint_put(out, result->missing);
    varint_put(out, result->others != NULL);
    if (result->others)
        put_row(out, q, result->others);
    varint_put(out, result->n_rows);
    for (size_t row = 0; row < result->n_rows && !out->error; row++)
        put_row(out, q, result->cells + row * q->n_outputs);
    return out->error;
}

/* Partial results from JSON. See partial.c for what they look like. */
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "query/result.h"

static int get_number(const json_t *value, uint64_t *ret)
{
    if (json_is_integer(value) && json_integer_value(value) >= 0) {
        *ret = (uint64_t)json_integer_value(value);
        return 0;
    }
    const char *text = json_string_value(value);
    if (!text || !isdigit((unsigned char)*text))
        return -EINVAL;
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (errno || *end)
        return -EINVAL;
    *ret = n;
    return 0;
}

static int get_plain(const struct output *output, const json_t *value, struct cell *cell)
{
    if (!cell_is_text(output))
        return get_number(value, &cell->number);
    if (!json_is_string(value) || json_string_length(value) > UINT32_MAX / 4)
        return -EINVAL;
    cell->text = json_string_value(value);
    cell->len = (uint32_t)json_string_length(value);
    return 0;
}

static int get_object(const struct output *output, const json_t *value, struct cell *cell)
{
    uint64_t state, marks;
    if (get_number(json_object_get(value, "state"), &state) < 0 ||
        get_number(json_object_get(value, "marks"), &marks) < 0)
        return -EINVAL;
    if ((state & ~(uint64_t)(QUERY_KNOWN | QUERY_UNKNOWN | QUERY_MIXED)) ||
        (marks & ~(uint64_t)(QUERY_ESTIMATE | QUERY_AT_LEAST)))
        return -EINVAL;
    cell->state = (uint8_t)state;
    cell->marks = (uint8_t)marks;
    if (!(state & QUERY_KNOWN))
        return 0;
    if (get_plain(output, json_object_get(value, "value"), cell) < 0)
        return -EINVAL;
    return get_number(json_object_get(value, "per"), &cell->per);
}

/* Only what a result of ours can hold may enter one: the arithmetic relies on it. */
static bool cell_fits(const struct query *q, const struct output *output, const struct cell *cell)
{
    bool known = cell->state & QUERY_KNOWN;
    bool fraction =
        output->o.kind == QUERY_PERCENT || (q->grouped && output->aggregate == QUERY_AVG);
    if (output->o.key && ((cell->state & ~QUERY_KNOWN) || cell->marks))
        return false;
    if (cell->state & QUERY_MIXED)
        return q->grouped && output->aggregate == QUERY_SAME && !known && !cell->marks;
    if (q->grouped && output->aggregate == QUERY_COUNT && !known)
        return false;
    return known && fraction ? cell->per > 0 : cell->per == 0;
}

static int get_cell(const struct query *q, size_t o, const json_t *value, struct cell *ret)
{
    const struct output *output = &q->outputs[o];
    struct cell cell = {0};
    int r = 0;
    if (json_is_object(value)) {
        r = get_object(output, value, &cell);
    } else if (!json_is_null(value)) {
        cell.state = QUERY_KNOWN;
        r = get_plain(output, value, &cell);
    }
    if (r == 0 && !cell_fits(q, output, &cell))
        r = -EINVAL;
    *ret = cell;
    return r;
}

static int get_row(const struct query *q, const json_t *row, struct cell *ret_cells)
{
    if (json_array_size(row) != q->n_outputs)
        return -EINVAL;
    for (size_t o = 0; o < q->n_outputs; o++) {
        int r = get_cell(q, o, json_array_get(row, o), &ret_cells[o]);
        if (r < 0)
            return r;
    }
    return 0;
}

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

/* The same table, and the same columns in the same roles. */
static bool same_query(const struct query *q, const json_t *document)
{
    const json_t *columns = json_object_get(document, "columns");
    uint64_t keys;
    if (!is_text(json_object_get(document, "schema"), PARTIAL_SCHEMA) ||
        !is_text(json_object_get(document, "table"), q->table->name) ||
        get_number(json_object_get(document, "keys"), &keys) < 0 || keys != q->n_by ||
        json_array_size(columns) != q->n_outputs)
        return false;
    for (size_t o = 0; o < q->n_outputs; o++)
        if (!is_text(json_array_get(columns, o), q->outputs[o].o.name))
            return false;
    return true;
}

static uint64_t add_counter(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static int read_document(struct query_result *into, const json_t *document)
{
    const struct query *q = into->query;
    const json_t *rows = json_object_get(document, "rows");
    uint64_t pruned, left_out;
    struct cell cells[QUERY_OUTPUTS_MAX];
    size_t i;
    json_t *row;
    if (!same_query(q, document) || !json_is_array(rows) ||
        get_number(json_object_get(document, "pruned"), &pruned) < 0 ||
        get_number(json_object_get(document, "left_out"), &left_out) < 0)
        return -EINVAL;
    json_array_foreach(rows, i, row)
    {
        if (get_row(q, row, cells) < 0)
            return -EINVAL;
    }
    json_array_foreach(rows, i, row)
    {
        int r = get_row(q, row, cells);
        if (r == 0)
            r = result_add_cells(into, cells);
        if (r < 0)
            return r;
    }
    into->pruned = add_counter(into->pruned, pruned);
    into->left_out = add_counter(into->left_out, left_out);
    into->incomplete |= json_is_true(json_object_get(document, "incomplete"));
    return 0;
}

int query_partial_read(struct query_result *into, const char *text, size_t len)
{
    json_t *document = json_loadb(text, len, 0, NULL);
    int r = json_is_object(document) ? read_document(into, document) : -EINVAL;
    json_decref(document);
    return r;
}

/* Partial results as JSON, between machines. See query.h and doc/query.md.
 *
 *     {"schema": "memoir.partial/1", "table": "processes", "keys": 1,
 *      "columns": ["program", "rss", "avg(age)"], "pruned": 0, "left_out": 0, "incomplete": false,
 *      "rows": [["train.py", 4096, {"value": 90, "per": 3, "state": 1, "marks": 0}], ...]}
 *
 * A cell is null where there is nothing, a plain value where that says it all, and else an object. Numbers
 * past 2^63, which JSON libraries read as they like, are texts. Reading is in partial_read.c: the names of jansson and of our own writer fall together. */
#include <inttypes.h>
#include <stdio.h>

#include "base/buffer.h"
#include "base/json.h"
#include "query/result.h"

static void put_number(struct json *json, uint64_t number)
{
    char text[24];
    if (number <= INT64_MAX) {
        json_u64(json, number);
        return;
    }
    snprintf(text, sizeof(text), "%" PRIu64, number);
    json_string(json, text);
}

static void put_plain(struct json *json, const struct output *output, const struct cell *cell)
{
    if (cell_is_text(output))
        json_string_n(json, cell->text, cell->len);
    else
        put_number(json, cell->number);
}

static void put_cell(struct json *json, const struct output *output, const struct cell *cell)
{
    if (cell->state == 0 && cell->marks == 0) {
        json_null(json);
        return;
    }
    if (cell->state == QUERY_KNOWN && cell->marks == 0 && cell->per == 0) {
        put_plain(json, output, cell);
        return;
    }
    json_object_begin(json);
    if (cell->state & QUERY_KNOWN) {
        json_key(json, "value");
        put_plain(json, output, cell);
        json_key(json, "per");
        put_number(json, cell->per);
    }
    json_field_u64(json, "state", cell->state);
    json_field_u64(json, "marks", cell->marks);
    json_object_end(json);
}

void query_partial_json(const struct query_result *result, struct json *json)
{
    const struct query *q = result->query;
    json_object_begin(json);
    json_field_string(json, "schema", PARTIAL_SCHEMA);
    json_field_string(json, "table", q->table->name);
    json_field_u64(json, "keys", q->n_by);
    json_key(json, "columns");
    json_array_begin(json);
    for (size_t o = 0; o < q->n_outputs; o++)
        json_string(json, q->outputs[o].o.name);
    json_array_end(json);
    json_field_u64(json, "pruned", result->pruned);
    json_field_u64(json, "left_out", result->left_out);
    json_field_bool(json, "incomplete", result->incomplete);
    json_key(json, "rows");
    json_array_begin(json);
    for (size_t row = 0; row < result->n_rows; row++) {
        json_array_begin(json);
        for (size_t o = 0; o < q->n_outputs; o++)
            put_cell(json, &q->outputs[o], &result->cells[row * q->n_outputs + o]);
        json_array_end(json);
    }
    json_array_end(json);
    json_object_end(json);
}

int query_partial_write(const struct query_result *result, struct buffer *out)
{
    struct json json;
    json_init(&json, out);
    query_partial_json(result, &json);
    return json_finish(&json);
}

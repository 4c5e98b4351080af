/* A finished result as JSON for people's programs. See query_result_json(). */
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "query/result.h"

enum { ISO_TIME_MAX = 40 };

const char *query_kind_name(enum query_kind kind)
{
    static const char *const names[] = {
        [QUERY_TEXT] = "text", [QUERY_NUMBER] = "number", [QUERY_BYTES] = "bytes",
        [QUERY_AGE] = "age",   [QUERY_TIME] = "time",     [QUERY_PERCENT] = "percent",
        [QUERY_YES] = "yes",
    };
    return names[kind];
}

static void put_time(struct json *json, uint64_t real_ns)
{
    char text[ISO_TIME_MAX];
    time_t seconds = (time_t)(real_ns / NS_PER_S);
    struct tm tm;
    size_t n = 0;
    if (gmtime_r(&seconds, &tm))
        n = strftime(text, sizeof(text), "%FT%T", &tm);
    snprintf(text + n, sizeof(text) - n, ".%03uZ", (unsigned)(real_ns % NS_PER_S / NS_PER_MS));
    json_string(json, text);
}

static void put_value(struct json *json, enum query_kind kind, const struct query_value *value)
{
    if (!(value->state & QUERY_KNOWN)) {
        json_null(json);
        return;
    }
    switch (kind) {
    case QUERY_TEXT:
        json_string_n(json, value->text, value->len);
        return;
    case QUERY_NUMBER:
    case QUERY_BYTES:
        json_u64(json, value->number);
        return;
    case QUERY_AGE:
        json_double(json, (double)(value->number / NS_PER_MS) / 1000);
        return;
    case QUERY_TIME:
        put_time(json, value->number);
        return;
    case QUERY_PERCENT: /* a hundredth is as fine as anybody needs */
        json_double(json,
                    (double)(uint64_t)((double)value->number / (double)value->per * 10000 + 0.5) /
                        100);
        return;
    case QUERY_YES:
        json_bool(json, value->number != 0);
        return;
    }
}

static void put_marks(struct json *json, const struct query_result *result, size_t row,
                      unsigned mark, const char *key)
{
    json_key(json, key);
    json_array_begin(json);
    for (size_t c = 0; c < result->query->n_shown; c++)
        if (query_result_value(result, row, c).marks & mark)
            json_string(json, result->query->outputs[c].o.name);
    json_array_end(json);
}

static void put_row(struct json *json, const struct query_result *result, size_t row)
{
    unsigned marks = 0;
    json_object_begin(json);
    for (size_t c = 0; c < result->query->n_shown; c++) {
        struct query_value value = query_result_value(result, row, c);
        marks |= value.marks;
        json_key(json, result->query->outputs[c].o.name);
        put_value(json, result->query->outputs[c].o.kind, &value);
    }
    if (marks & QUERY_AT_LEAST)
        put_marks(json, result, row, QUERY_AT_LEAST, "at_least");
    if (marks & QUERY_ESTIMATE)
        put_marks(json, result, row, QUERY_ESTIMATE, "estimate");
    json_object_end(json);
}

void query_result_json(const struct query_result *result, struct json *json)
{
    const struct query *q = result->query;
    json_field_string(json, "table", q->table->name);
    json_key(json, "columns");
    json_array_begin(json);
    for (size_t c = 0; c < q->n_shown; c++) {
        json_object_begin(json);
        json_field_string(json, "name", q->outputs[c].o.name);
        json_field_string(json, "kind", query_kind_name(q->outputs[c].o.kind));
        json_object_end(json);
    }
    json_array_end(json);
    json_key(json, "rows");
    json_array_begin(json);
    for (size_t row = 0; row < result->n_order; row++)
        put_row(json, result, row);
    json_array_end(json);
    json_field_u64(json, "matched", query_result_matched(result));
    if (result->left_out)
        json_field_u64(json, "left_out", result->left_out);
    if (result->incomplete)
        json_field_bool(json, "incomplete", true);
}

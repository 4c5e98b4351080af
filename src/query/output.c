/* A finished result as JSON for people's programs. See query_result_json(). */
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "query/result.h"

enum { VALUE_MAX = 64, PREFETCH = 4 };

const char *query_kind_name(enum query_kind kind)
{
    static const char *const names[] = {
        [QUERY_TEXT] = "text", [QUERY_NUMBER] = "number", [QUERY_BYTES] = "bytes",
        [QUERY_AGE] = "age",   [QUERY_TIME] = "time",     [QUERY_PERCENT] = "percent",
        [QUERY_YES] = "yes",
    };
    return names[kind];
}

/* ---- values ----
 * An answer may have many rows, whose objects all have the same keys, so rows are put together here and not
 * by the JSON writer, field by field. */

/* number / 10^decimals, without zeros at the end: fractions are exact in decimal and need no printf. */
static size_t put_decimal(char *to, uint64_t number, unsigned decimals)
{
    uint64_t scale = 1;
    for (unsigned i = 0; i < decimals; i++)
        scale *= 10;
    size_t len = json_digits(to, number / scale);
    uint64_t fraction = number % scale;
    if (fraction)
        to[len++] = '.';
    while (fraction) {
        scale /= 10;
        to[len++] = (char)('0' + fraction / scale);
        fraction %= scale;
    }
    return len;
}

/* `width` digits with zeros before them. */
static char *put_digits(char *to, unsigned number, int width)
{
    for (int i = width - 1; i >= 0; i--, number /= 10)
        to[i] = (char)('0' + number % 10);
    return to + width;
}

/* "2026-01-31T12:00:00.123Z" in quotes. Ten thousand rows have ten thousand times, and strftime() takes longer than
 * all the rest of a row. Years are counted from March on, so that leap days come last (the calendar repeats
 * itself every 400 years of 146,097 days). */
static size_t put_time(char *to, uint64_t real_ns)
{
    uint64_t seconds = real_ns / NS_PER_S;
    unsigned day_s = (unsigned)(seconds % 86400);
    uint64_t days = seconds / 86400 + 719468; /* since 1 March of the year 0 */
    unsigned era = (unsigned)(days / 146097), of_era = (unsigned)(days % 146097);
    unsigned year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    unsigned of_year = of_era - (365 * year + year / 4 - year / 100);
    unsigned month = (5 * of_year + 2) / 153; /* 0 is March */
    unsigned day = of_year - (153 * month + 2) / 5 + 1;
    unsigned civil_year = year + era * 400 + (month >= 10);
    char *at = to;
    *at++ = '"';
    at = put_digits(at, civil_year, 4);
    *at++ = '-';
    at = put_digits(at, month < 10 ? month + 3 : month - 9, 2);
    *at++ = '-';
    at = put_digits(at, day, 2);
    *at++ = 'T';
    at = put_digits(at, day_s / 3600, 2);
    *at++ = ':';
    at = put_digits(at, day_s / 60 % 60, 2);
    *at++ = ':';
    at = put_digits(at, day_s % 60, 2);
    *at++ = '.';
    at = put_digits(at, (unsigned)(real_ns % NS_PER_S / NS_PER_MS), 3);
    *at++ = 'Z';
    *at++ = '"';
    return (size_t)(at - to);
}

const char *query_time_text(char text[static QUERY_TIME_TEXT_MAX], uint64_t real_ns)
{
    char quoted[VALUE_MAX];
    size_t len = put_time(quoted, real_ns) - 2;
    memcpy(text, quoted + 1, len);
    text[len] = '\0';
    return text;
}

/* Hundredths of a percent, rounded: as fine as anybody needs. */
uint64_t query_percent_hundredths(const struct query_value *value)
{
    unsigned __int128 parts = (unsigned __int128)value->number * 10000 + value->per / 2;
    parts /= value->per;
    return parts > UINT64_MAX ? UINT64_MAX : (uint64_t)parts;
}

static size_t put_word(char *to, const char *word, size_t len)
{
    memcpy(to, word, len);
    return len;
}

/* A value that is no text, in at most VALUE_MAX bytes; how many. */
static size_t put_value(char *to, enum query_kind kind, const struct query_value *value)
{
    if (!(value->state & QUERY_KNOWN))
        return put_word(to, "null", 4);
    switch (kind) {
    case QUERY_AGE:
        return put_decimal(to, value->number / NS_PER_MS, 3);
    case QUERY_TIME:
        return put_time(to, value->number);
    case QUERY_PERCENT:
        return put_decimal(to, query_percent_hundredths(value), 2);
    case QUERY_YES:
        return value->number ? put_word(to, "true", 4) : put_word(to, "false", 5);
    case QUERY_TEXT:
    case QUERY_NUMBER:
    case QUERY_BYTES:
        break;
    }
    return json_digits(to, value->number);
}

/* A cell that is no text, likewise. Most are plain figures that are known. */
static inline size_t put_cell(char *to, const struct output *output, const struct cell *cell,
                              unsigned *marks)
{
    bool figure = output->o.kind == QUERY_BYTES || output->o.kind == QUERY_NUMBER;
    if (figure && output->plain && cell->state == QUERY_KNOWN) {
        *marks |= cell->marks;
        return json_digits(to, cell->number);
    }
    struct query_value value;
    cell_value(output, cell, &value);
    *marks |= value.marks;
    return put_value(to, output->o.kind, &value);
}

static bool is_known_text(const struct output *output, const struct cell *cell)
{
    return cell_is_text(output) && (cell->state & QUERY_KNOWN);
}

void query_value_json(struct json *json, enum query_kind kind, const struct query_value *value)
{
    char text[VALUE_MAX];
    if (kind == QUERY_TEXT && (value->state & QUERY_KNOWN))
        json_string_n(json, value->text, value->len);
    else
        json_raw(json, text, put_value(text, kind, value));
}

/* ---- rows ---- */

/* What stands before each value of a row: {"pid": and ,"user": */
struct keys {
    struct buffer text;
    size_t end[QUERY_OUTPUTS_MAX];
};

static void keys_init(struct keys *keys, const struct query *q)
{
    buffer_init(&keys->text, (QUERY_OUTPUTS_MAX + 1) * (6 * QUERY_NAME_MAX + 8));
    for (size_t c = 0; c < q->n_shown; c++) {
        buffer_append_char(&keys->text, c ? ',' : '{');
        json_quote(&keys->text, q->outputs[c].o.name, strlen(q->outputs[c].o.name));
        buffer_append_char(&keys->text, ':');
        keys->end[c] = keys->text.len;
    }
}

static void put_marks(struct buffer *out, const struct query_result *result, size_t row,
                      unsigned mark, const char *key)
{
    const char *separator = "";
    buffer_printf(out, ",\"%s\":[", key);
    for (size_t c = 0; c < result->query->n_shown; c++) {
        const char *name = result->query->outputs[c].o.name;
        if (!(query_result_value(result, row, c).marks & mark))
            continue;
        buffer_append_str(out, separator);
        json_quote(out, name, strlen(name));
        separator = ",";
    }
    buffer_append_char(out, ']');
}

static void put_row(struct buffer *out, const struct query_result *result, size_t row,
                    const struct keys *keys)
{
    const struct query *q = result->query;
    const struct cell *cells = result->cells + result->order[row] * q->n_outputs;
    unsigned marks = 0;
    for (size_t c = 0; c < q->n_shown; c++) {
        size_t begin = c ? keys->end[c - 1] : 0;
        size_t len = keys->end[c] - begin;
        char *to = buffer_reserve(out, len + VALUE_MAX);
        if (!to)
            return;
        memcpy(to, keys->text.data + begin, len);
        bool text = is_known_text(&q->outputs[c], &cells[c]);
        if (!text)
            len += put_cell(to + len, &q->outputs[c], &cells[c], &marks);
        buffer_commit(out, len);
        if (text)
            json_quote(out, cells[c].text, cells[c].len);
    }
    if (marks & QUERY_AT_LEAST)
        put_marks(out, result, row, QUERY_AT_LEAST, "at_least");
    if (marks & QUERY_ESTIMATE)
        put_marks(out, result, row, QUERY_ESTIMATE, "estimate");
    buffer_append_char(out, '}');
}

static void prefetch_row(const struct query_result *result, size_t row)
{
    size_t n = result->query->n_outputs;
    const char *cells = (const char *)(result->cells + result->order[row] * n);
    for (size_t at = 0; at < n * sizeof(struct cell); at += 64)
        __builtin_prefetch(cells + at);
}

static void put_rows(struct buffer *out, const struct query_result *result, bool lines)
{
    struct keys keys;
    keys_init(&keys, result->query);
    if (keys.text.error) /* the answer is not written without them: the error sticks in `out` */
        out->error = keys.text.error;
    for (size_t row = 0; row < result->n_order && !out->error; row++) {
        if (row && !lines)
            buffer_append_char(out, ',');
        if (row + PREFETCH < result->n_order) /* rows are sorted by now, not as they lie */
            prefetch_row(result, row + PREFETCH);
        put_row(out, result, row, &keys);
        if (lines)
            buffer_append_char(out, '\n');
    }
    buffer_release(&keys.text);
}

/* ---- rows as arrays ---- */

/* A row without its keys; the marks of all its cells, or-ed. */
static unsigned put_cells(struct buffer *out, const struct query_result *result, size_t row)
{
    const struct query *q = result->query;
    const struct cell *cells = result->cells + result->order[row] * q->n_outputs;
    unsigned marks = 0;
    char *to = buffer_reserve(out, (size_t)q->n_shown * (VALUE_MAX + 1) + 2);
    char *at = to;
    if (!to)
        return 0;
    for (size_t c = 0; c < q->n_shown; c++) {
        *at++ = c ? ',' : '[';
        if (!is_known_text(&q->outputs[c], &cells[c])) {
            at += put_cell(at, &q->outputs[c], &cells[c], &marks);
            continue;
        }
        buffer_commit(out, (size_t)(at - to));
        json_quote(out, cells[c].text, cells[c].len);
        to = at = buffer_reserve(out, (q->n_shown - c) * (VALUE_MAX + 1) + 2);
        if (!to)
            return 0;
    }
    if (q->n_shown == 0)
        *at++ = '[';
    *at++ = ']';
    buffer_commit(out, (size_t)(at - to));
    return marks;
}

/* Which cells carry a mark: [[row, column], ...]. Most answers have none, and are not walked again. */
static void put_marked(struct json *json, const struct query_result *result, unsigned all,
                       unsigned mark, const char *key)
{
    if (!(all & mark))
        return;
    json_key(json, key);
    json_array_begin(json);
    for (size_t row = 0; row < result->n_order; row++)
        for (size_t c = 0; c < result->query->n_shown; c++) {
            if (!(query_result_value(result, row, c).marks & mark))
                continue;
            json_array_begin(json);
            json_u64(json, row);
            json_u64(json, c);
            json_array_end(json);
        }
    json_array_end(json);
}

static unsigned put_arrays(struct buffer *out, const struct query_result *result)
{
    unsigned marks = 0;
    for (size_t row = 0; row < result->n_order && !out->error; row++) {
        if (row)
            buffer_append_char(out, ',');
        if (row + PREFETCH < result->n_order)
            prefetch_row(result, row + PREFETCH);
        marks |= put_cells(out, result, row);
    }
    return marks;
}

int query_result_lines(const struct query_result *result, struct buffer *out)
{
    put_rows(out, result, true);
    return out->error;
}

static void put_head(struct json *json, const struct query *q)
{
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
}

static void put_tail(struct json *json, const struct query_result *result)
{
    json_field_u64(json, "matched", query_result_matched(result));
    if (result->left_out)
        json_field_u64(json, "left_out", result->left_out);
    if (result->incomplete)
        json_field_bool(json, "incomplete", true);
}

void query_result_json(const struct query_result *result, struct json *json)
{
    put_head(json, result->query);
    put_rows(json->out, result, false);
    json_array_end(json);
    put_tail(json, result);
}

void query_result_arrays(const struct query_result *result, struct json *json)
{
    put_head(json, result->query);
    unsigned marks = put_arrays(json->out, result);
    json_array_end(json);
    put_marked(json, result, marks, QUERY_AT_LEAST, "at_least");
    put_marked(json, result, marks, QUERY_ESTIMATE, "estimate");
    put_tail(json, result);
}

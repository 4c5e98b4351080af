/* A finished result as JSON for people's programs. See query_result_json(). */
#include <assert.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "query/result.h"

enum { VALUE_MAX = 64, KEY_STEP = 16, PREFETCH = 4, EXPECT_MAX = 1 << 20 };

const char *query_kind_name(enum query_kind kind)
{
    static const char *const names[] = {
        [QUERY_TEXT] = "text",     [QUERY_NUMBER] = "number", [QUERY_BYTES] = "bytes",
        [QUERY_AGE] = "age",       [QUERY_TIME] = "time",     [QUERY_PERCENT] = "percent",
        [QUERY_YES] = "yes",       [QUERY_RATE] = "rate",     [QUERY_POINTS] = "points",
        [QUERY_FRAMES] = "frames", [QUERY_SHARE] = "share",
    };
    return names[kind];
}

const char *query_column_unit(const struct query_column *column)
{
    static const char *const units[] = {
        [QUERY_TEXT] = "",       [QUERY_NUMBER] = "",        [QUERY_BYTES] = "bytes",
        [QUERY_AGE] = "seconds", [QUERY_TIME] = "ISO 8601",  [QUERY_PERCENT] = "percent",
        [QUERY_YES] = "",        [QUERY_RATE] = "bytes/s",   [QUERY_POINTS] = "bytes",
        [QUERY_FRAMES] = "",     [QUERY_SHARE] = "fraction",
    };
    return column->unit ? column->unit : units[column->kind];
}

int64_t query_rate_of(double per_s)
{
    double scaled = per_s * QUERY_RATE_SCALE;
    if (scaled >= (double)INT64_MAX)
        return INT64_MAX;
    if (scaled <= (double)INT64_MIN)
        return INT64_MIN;
    return (int64_t)(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
}

/* ---- values ----
 * An answer may have many rows, whose objects all have the same keys, so rows are put together here and not
 * by the JSON writer, field by field. */

/* number / 10^decimals, without zeros at the end: fractions are exact in decimal and need no printf. Inline, so that the
 * divisors are constants. */
static inline __attribute__((always_inline)) size_t put_decimal(char *to, uint64_t number,
                                                                unsigned decimals)
{
    uint64_t scale = 1;
    for (unsigned i = 0; i < decimals; i++)
        scale *= 10;
    size_t len = json_digits(to, number / scale);
    uint64_t fraction = number % scale;
    if (!fraction)
        return len;
    to[len] = '.';
    for (unsigned i = decimals; i > 0; i--, fraction /= 10)
        to[len + i] = (char)('0' + fraction % 10);
    for (len += decimals; to[len] == '0'; len--)
        ;
    return len + 1;
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

/* Hundredths of a percent, rounded. */
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
    case QUERY_SHARE:
        return put_decimal(to, query_percent_hundredths(value), 4);
    case QUERY_YES:
        return value->number ? put_word(to, "true", 4) : put_word(to, "false", 5);
    case QUERY_RATE:
        *to = '-';
        return (int64_t)value->number < 0 ? 1 + put_decimal(to + 1, -value->number, 3)
                                          : put_decimal(to, value->number, 3);
    case QUERY_POINTS:
    case QUERY_FRAMES:
    case QUERY_TEXT:
    case QUERY_NUMBER:
    case QUERY_BYTES:
        break;
    }
    return json_digits(to, value->number);
}

/* [["2026-01-31T12:00:00.000Z", 4096], ...] would be long: times in points are seconds since 1970. */
static void put_points(struct buffer *out, const struct query_value *value)
{
    char text[VALUE_MAX];
    buffer_append_char(out, '[');
    for (size_t i = 0; i < query_points(value); i++) {
        struct query_point point = query_point(value, i);
        buffer_append_str(out, i ? ",[" : "[");
        buffer_append(out, text, put_decimal(text, point.time_ns / NS_PER_MS, 3));
        buffer_append_char(out, ',');
        buffer_append(out, text, json_digits(text, point.value));
        buffer_append_char(out, ']');
    }
    buffer_append_char(out, ']');
}

static void put_frames(struct buffer *out, const struct query_value *value)
{
    const char *at = value->text, *end = at + value->len;
    buffer_append_char(out, '[');
    while (at < end) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        if (at > value->text)
            buffer_append_char(out, ',');
        json_quote(out, at, (size_t)((line ? line : end) - at));
        at = line ? line + 1 : end;
    }
    buffer_append_char(out, ']');
}

/* A known value that lies apart. */
static void put_apart(struct buffer *out, enum query_kind kind, const struct query_value *value)
{
    if (kind == QUERY_POINTS)
        put_points(out, value);
    else if (kind == QUERY_FRAMES)
        put_frames(out, value);
    else
        json_quote(out, value->text, value->len);
}

static void put_cell_apart(struct buffer *out, const struct output *output, const struct cell *cell)
{
    put_apart(out, output->o.kind, &(struct query_value){.text = cell->text, .len = cell->len});
}

/* A cell, likewise: most are plain figures that are known, or short texts. 0: one that lies apart and does not fit, or
 * needs escapes. */
static inline size_t put_cell(char *to, const struct output *output, const struct cell *cell,
                              unsigned *marks)
{
    bool figure = output->o.kind == QUERY_BYTES || output->o.kind == QUERY_NUMBER;
    if (figure && output->plain && cell->state == QUERY_KNOWN) {
        *marks |= cell->marks;
        return json_digits(to, cell->number);
    }
    if (cell_is_apart(output) && (cell->state & QUERY_KNOWN)) {
        if (cell_is_points(output))
            *marks |= cell->marks;
        bool quick = output->o.kind == QUERY_TEXT && cell->len <= VALUE_MAX - 2;
        return quick ? json_plain(to, cell->text, cell->len) : 0;
    }
    struct query_value value;
    cell_value(output, cell, &value);
    *marks |= value.marks;
    return put_value(to, output->o.kind, &value);
}

void query_value_json(struct json *json, enum query_kind kind, const struct query_value *value)
{
    char text[VALUE_MAX];
    if (kind == QUERY_TEXT && (value->state & QUERY_KNOWN)) {
        json_string_n(json, value->text, value->len);
    } else if ((kind_is_text(kind) || kind == QUERY_POINTS) && (value->state & QUERY_KNOWN)) {
        json_raw(json, "", 0); /* a separator, if one is due */
        put_apart(json->out, kind, value);
    } else {
        json_raw(json, text, put_value(text, kind, value));
    }
}

/* ---- rows ---- */

/* What stands before each value of a row: {"pid": and ,"user": in an object; in an array nothing but [ and , does. */
struct keys {
    struct buffer text; /* with KEY_STEP bytes behind the last */
    size_t end[QUERY_OUTPUTS_MAX];
    bool arrays;
};

static void keys_init(struct keys *keys, const struct query *q, bool arrays)
{
    static const char behind[KEY_STEP] = "";
    keys->arrays = arrays;
    buffer_init(&keys->text, (QUERY_OUTPUTS_MAX + 1) * (6 * QUERY_NAME_MAX + 8) + KEY_STEP);
    for (size_t c = 0; c < q->n_shown && !arrays; c++) {
        buffer_append_char(&keys->text, c ? ',' : '{');
        json_quote(&keys->text, q->outputs[c].o.name, strlen(q->outputs[c].o.name));
        buffer_append_char(&keys->text, ':');
        keys->end[c] = keys->text.len;
    }
    buffer_append(&keys->text, behind, sizeof(behind));
}

static size_t key_begin(const struct keys *keys, size_t c)
{
    return c ? keys->end[c - 1] : 0;
}

/* Most are short: to copy one whole step takes less time than to copy just as many bytes. What it copies too much
 * is room of the value behind. */
_Static_assert(KEY_STEP <= VALUE_MAX, "a row has room for a step behind its last key");
static size_t put_key(char *to, const struct keys *keys, size_t c)
{
    if (keys->arrays) {
        *to = c ? ',' : '[';
        return 1;
    }
    size_t begin = key_begin(keys, c), len = keys->end[c] - begin;
    const char *key = keys->text.data + begin;
    if (len <= KEY_STEP)
        memcpy(to, key, KEY_STEP);
    else
        memcpy(to, key, len);
    return len;
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

/* The most that put_key() and put_cell() write for the columns from `c` on. */
static size_t cells_room(const struct query *q, const struct keys *keys, size_t c)
{
    size_t left = q->n_shown - c;
    size_t names = keys->arrays ? left : keys->end[q->n_shown - 1] - key_begin(keys, c);
    return names + left * VALUE_MAX;
}

/* Cells from `c` on without a check for each of them: there is room for all. Up to one that has to be quoted; the
 * column behind it. */
static size_t put_cells(struct buffer *out, const struct query *q, const struct cell *cells,
                        const struct keys *keys, size_t c, unsigned *marks)
{
    size_t room = cells_room(q, keys, c), len = 1;
    char *to = buffer_reserve(out, room), *at = to;
    if (!to)
        return q->n_shown;
    for (; c < q->n_shown && len; c++) {
        at += put_key(at, keys, c);
        len = put_cell(at, &q->outputs[c], &cells[c], marks);
        at += len;
        assert((size_t)(at - to) + cells_room(q, keys, c + 1) <= room);
    }
    buffer_commit(out, (size_t)(at - to));
    if (!len)
        put_cell_apart(out, &q->outputs[c - 1], &cells[c - 1]);
    return c;
}

/* One cell, where the limit is too near for what it could take: as much as it does take. */
static void put_last_cell(struct buffer *out, const struct query *q, const struct cell *cells,
                          const struct keys *keys, size_t c, unsigned *marks)
{
    char value[VALUE_MAX];
    if (keys->arrays)
        buffer_append_char(out, c ? ',' : '[');
    else
        buffer_append(out, keys->text.data + key_begin(keys, c), keys->end[c] - key_begin(keys, c));
    size_t len = put_cell(value, &q->outputs[c], &cells[c], marks);
    if (len)
        buffer_append(out, value, len);
    else
        put_cell_apart(out, &q->outputs[c], &cells[c]);
}

/* The marks of all its cells, or-ed. */
static unsigned put_row(struct buffer *out, const struct query_result *result, size_t row,
                        const struct keys *keys)
{
    const struct query *q = result->query;
    const struct cell *cells = result->cells + result->order[row] * q->n_outputs;
    unsigned marks = 0;
    for (size_t c = 0; c < q->n_shown && !out->error;) {
        if (cells_room(q, keys, c) <= out->limit - out->len)
            c = put_cells(out, q, cells, keys, c, &marks);
        else
            put_last_cell(out, q, cells, keys, c++, &marks);
    }
    if (!keys->arrays && marks & QUERY_AT_LEAST)
        put_marks(out, result, row, QUERY_AT_LEAST, "at_least");
    if (!keys->arrays && marks & QUERY_ESTIMATE)
        put_marks(out, result, row, QUERY_ESTIMATE, "estimate");
    buffer_append_char(out, keys->arrays ? ']' : '}');
    return marks;
}

static void prefetch_row(const struct query_result *result, size_t row)
{
    size_t n = result->query->n_outputs;
    const char *cells = (const char *)(result->cells + result->order[row] * n);
    for (size_t at = 0; at < n * sizeof(struct cell); at += 64)
        __builtin_prefetch(cells + at);
}

/* Rows are about as long as the first one, which is there from `begin` on: room for all of them at once, as far as that
 * may be wrong without harm. What they do not take is given back with the answer, by buffer_take(). */
static void expect_rows(struct buffer *out, size_t begin, size_t rows)
{
    size_t first = out->len - begin;
    buffer_expect(out, rows < EXPECT_MAX / (first + 1) ? rows * first : EXPECT_MAX);
}

enum form { OBJECTS, ARRAYS, LINES };

/* The marks of all cells, or-ed. */
static unsigned put_rows(struct buffer *out, const struct query_result *result, enum form form)
{
    struct keys keys;
    unsigned marks = 0;
    keys_init(&keys, result->query, form == ARRAYS);
    if (keys.text.error) /* the answer is not written without them: the error sticks in `out` */
        out->error = keys.text.error;
    for (size_t row = 0; row < result->n_order && !out->error; row++) {
        size_t begin = out->len;
        if (row && form != LINES)
            buffer_append_char(out, ',');
        if (row + PREFETCH < result->n_order) /* rows are sorted by now, not as they lie */
            prefetch_row(result, row + PREFETCH);
        marks |= put_row(out, result, row, &keys);
        if (form == LINES)
            buffer_append_char(out, '\n');
        if (row == 0)
            expect_rows(out, begin, result->n_order);
    }
    buffer_release(&keys.text);
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

int query_result_lines(const struct query_result *result, struct buffer *out)
{
    (void)put_rows(out, result, LINES);
    return out->error;
}

/* Counts have none, whatever they count. */
static const char *unit_of(const struct query_output *o)
{
    bool own = o->column && o->column->kind == o->kind;
    return own ? query_column_unit(o->column) : "";
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
        json_field_string(json, "unit", unit_of(&q->outputs[c].o));
        json_object_end(json);
    }
    json_array_end(json);
    json_key(json, "rows");
    json_array_begin(json);
}

static void put_others(struct json *json, const struct query_result *result)
{
    const struct query *q = result->query;
    json_key(json, "others");
    json_object_begin(json);
    json_field_u64(json, "rows", query_result_others(result));
    for (size_t c = 0; c < q->n_shown; c++) {
        struct query_value value = query_result_other(result, c);
        json_key(json, q->outputs[c].o.name);
        query_value_json(json, q->outputs[c].o.kind, &value);
    }
    json_object_end(json);
}

static void put_missing(struct json *json, const struct query_result *result)
{
    json_key(json, "missing");
    json_array_begin(json);
    for (size_t c = 0; c < result->query->n_shown; c++)
        if (query_result_missing(result, c))
            json_string(json, result->query->outputs[c].o.name);
    json_array_end(json);
}

static void put_tail(struct json *json, const struct query_result *result)
{
    if (query_result_others(result))
        put_others(json, result);
    json_field_u64(json, "matched", query_result_matched(result));
    if (result->missing)
        put_missing(json, result);
    if (result->left_out)
        json_field_u64(json, "left_out", result->left_out);
    if (result->incomplete)
        json_field_bool(json, "incomplete", true);
}

void query_result_json(const struct query_result *result, struct json *json)
{
    put_head(json, result->query);
    (void)put_rows(json->out, result, OBJECTS);
    json_array_end(json);
    put_tail(json, result);
}

void query_result_arrays(const struct query_result *result, struct json *json)
{
    put_head(json, result->query);
    unsigned marks = put_rows(json->out, result, ARRAYS);
    json_array_end(json);
    put_marked(json, result, marks, QUERY_AT_LEAST, "at_least");
    put_marked(json, result, marks, QUERY_ESTIMATE, "estimate");
    put_tail(json, result);
}

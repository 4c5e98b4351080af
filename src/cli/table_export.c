/* Tables for programs: CSV and JSON, in exact units. See table.h. */
#include "cli/table.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/utf8.h"

enum { ISO_TIME_MAX = 40 };

/* "2026-01-31T12:00:00.123Z" */
static void iso_time(char text[static ISO_TIME_MAX], uint64_t real_ns)
{
    time_t seconds = (time_t)(real_ns / NS_PER_S);
    struct tm tm;
    size_t n = 0;
    if (gmtime_r(&seconds, &tm))
        n = strftime(text, ISO_TIME_MAX, "%FT%T", &tm);
    snprintf(text + n, ISO_TIME_MAX - n, ".%03uZ", (unsigned)(real_ns % NS_PER_S / NS_PER_MS));
}

void table_set_device(struct table *table, size_t first, int ordinal, const char *name,
                      const char *uid)
{
    if (ordinal >= 0)
        table_set_number(table, first, (uint64_t)ordinal);
    table_set_text(table, first + 1, name);
    if (*uid)
        table_set_text(table, first + 2, uid);
}

/* Bytes of a character that terminals act on: U+0080 to U+009F as on ESC and a letter, others turn the line around. 0: none. */
static size_t harmful(const char *text)
{
    size_t n = utf8_sequence(text, strnlen(text, 4));
    uint32_t c = n > 1 ? utf8_decode(text, n) : 0;
    return n > 1 && (c < 0xa0 || utf8_deceives(c)) ? n : 0;
}

/* A field is quoted when it holds what would end it. */
static void csv_text(struct buffer *out, const char *text)
{
    bool quote = strpbrk(text, ",\"\r\n") || *text == ' ';
    if (quote)
        buffer_append_char(out, '"');
    for (const char *p = text; *p; p++) {
        if (*p == '"') {
            buffer_append_str(out, "\"\"");
        } else if (harmful(p) > 0) {
            buffer_append_char(out, '?');
            p += harmful(p) - 1;
        } else {
            buffer_append_char(out, (unsigned char)*p < 0x20 || *p == 0x7f ? '?' : *p);
        }
    }
    if (quote)
        buffer_append_char(out, '"');
}

static void csv_cell(struct buffer *out, const struct column *column, const struct cell *cell)
{
    char text[ISO_TIME_MAX];
    if (!cell->present)
        return;
    if (cell->text) {
        csv_text(out, cell->text);
        return;
    }
    switch (column->type) {
    case COLUMN_TEXT:
        break;
    case COLUMN_NUMBER:
    case COLUMN_BYTES:
        buffer_printf(out, "%llu", (unsigned long long)cell->number);
        break;
    case COLUMN_CHANGE:
    case COLUMN_CHANGE_BYTES:
    case COLUMN_RATE:
    case COLUMN_RATE_BYTES:
        buffer_printf(out, "%lld", (long long)(int64_t)cell->number);
        break;
    case COLUMN_YES:
        buffer_append_str(out, cell->number ? "true" : "false");
        break;
    case COLUMN_AGE:
        if (column->flags & COLUMN_EXACT)
            buffer_printf(out, "%llu.%09u", (unsigned long long)(cell->number / NS_PER_S),
                          (unsigned)(cell->number % NS_PER_S));
        else
            buffer_printf(out, "%llu.%03u", (unsigned long long)(cell->number / NS_PER_S),
                          (unsigned)(cell->number % NS_PER_S / NS_PER_MS));
        break;
    case COLUMN_TIME:
        iso_time(text, cell->number);
        buffer_append_str(out, text);
        break;
    case COLUMN_SHARE:
        buffer_printf(out, "%llu.%04u", (unsigned long long)(cell->number / 10000),
                      (unsigned)(cell->number % 10000));
        break;
    case COLUMN_PERCENT:
        buffer_printf(out, "%llu.%02u", (unsigned long long)(cell->number / 100),
                      (unsigned)(cell->number % 100));
        break;
    }
}

int table_print_csv(const struct table *table, const struct table_layout *layout,
                    struct buffer *out)
{
    if (table->error)
        return table->error;
    const char *comma = "";
    for (size_t c = 0; layout->header && c < table->n_columns; c++) {
        if (table->columns[c].flags & COLUMN_SCREEN_ONLY)
            continue;
        buffer_printf(out, "%s%s", comma, table->columns[c].key);
        comma = ",";
    }
    if (layout->header)
        buffer_append_str(out, "\r\n");
    for (size_t i = 0; i < table->n_rows; i++) {
        size_t row = layout->order ? layout->order[i] : i;
        comma = "";
        for (size_t c = 0; c < table->n_columns; c++) {
            if (table->columns[c].flags & COLUMN_SCREEN_ONLY)
                continue;
            buffer_append_str(out, comma);
            csv_cell(out, &table->columns[c], table_cell(table, row, c));
            comma = ",";
        }
        buffer_append_str(out, "\r\n");
    }
    return out->error;
}

void table_json_row(const struct table *table, size_t row, size_t first, struct json *json)
{
    for (size_t c = first; c < table->n_columns; c++) {
        const struct column *column = &table->columns[c];
        const struct cell *cell = table_cell(table, row, c);
        char text[ISO_TIME_MAX];
        if (column->flags & COLUMN_SCREEN_ONLY)
            continue;
        json_key(json, column->key);
        if (!cell->present) {
            json_null(json);
            continue;
        }
        switch (column->type) {
        case COLUMN_TEXT:
            json_string(json, cell->text);
            break;
        case COLUMN_NUMBER:
        case COLUMN_BYTES:
            json_u64(json, cell->number);
            break;
        case COLUMN_CHANGE:
        case COLUMN_CHANGE_BYTES:
        case COLUMN_RATE:
        case COLUMN_RATE_BYTES:
            json_i64(json, (int64_t)cell->number);
            break;
        case COLUMN_YES:
            json_bool(json, cell->number != 0);
            break;
        case COLUMN_AGE:
            json_double(json, column->flags & COLUMN_EXACT
                                  ? (double)cell->number / NS_PER_S
                                  : (double)(cell->number / NS_PER_MS) / 1000);
            break;
        case COLUMN_TIME:
            iso_time(text, cell->number);
            json_string(json, text);
            break;
        case COLUMN_SHARE:
            json_double(json, (double)cell->number / 10000);
            break;
        case COLUMN_PERCENT:
            json_double(json, (double)cell->number / 100);
            break;
        }
    }
}

void table_json_rows(const struct table *table, const char *key, struct json *json)
{
    json_key(json, key);
    json_array_begin(json);
    for (size_t row = 0; row < table->n_rows; row++) {
        json_object_begin(json);
        table_json_row(table, row, 0, json);
        json_object_end(json);
    }
    json_array_end(json);
}

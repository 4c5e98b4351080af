/* How answers of the query core look. See query_print.h. */
#include "cli/query_print.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/spark.h"
#include "query/query.h"
#include "query/vocabulary.h"

enum {
    ALWAYS_SHOWN = 3,  /* of the usual columns: who it is */
    SPARK_POINTS = 24, /* the latest ones of a series, on a terminal */
    LIST_MAX = 4 << 20,
};

static enum column_type type_of(enum query_kind kind)
{
    switch (kind) {
    case QUERY_TEXT:
        return COLUMN_TEXT;
    case QUERY_BYTES:
        return COLUMN_BYTES;
    case QUERY_AGE:
        return COLUMN_AGE;
    case QUERY_TIME:
        return COLUMN_TIME;
    case QUERY_PERCENT:
        return COLUMN_PERCENT;
    case QUERY_SHARE:
        return COLUMN_SHARE;
    case QUERY_YES:
        return COLUMN_YES;
    case QUERY_RATE:
        return COLUMN_RATE_BYTES;
    case QUERY_POINTS:
    case QUERY_FRAMES:
        return COLUMN_TEXT;
    case QUERY_NUMBER:
        break;
    }
    return COLUMN_NUMBER;
}

/* A rate of something that has no unit of memory, such as blocks. */
static bool is_count(const struct query_output *output)
{
    return output->kind == QUERY_RATE && output->column &&
           strcmp(query_column_unit(output->column), "bytes/s") != 0;
}

static const struct query_hint *hint_of(const struct query_style *style, const char *name)
{
    for (const struct query_hint *hint = style->hints; hint && hint->name; hint++)
        if (strcmp(hint->name, name) == 0)
            return hint;
    return NULL;
}

static void describe(const struct query *query, const struct query_style *style,
                     struct query_sheet *ret)
{
    size_t n = query_outputs(query);
    for (size_t c = 0; c < n; c++) {
        const struct query_output *output = query_output(query, c);
        const struct query_hint *hint = hint_of(style, output->name);
        const char *title = hint && hint->title ? hint->title : output->name;
        size_t i = 0;
        for (; title[i] && i + 1 < QUERY_NAME_MAX; i++)
            ret->titles[c][i] = (char)toupper((unsigned char)title[i]);
        ret->titles[c][i] = '\0';
        memcpy(ret->keys[c], output->name, QUERY_NAME_MAX);
        ret->columns[c] = (struct column){
            .key = ret->keys[c],
            .title = ret->titles[c],
            .type = is_count(output) ? COLUMN_RATE : type_of(output->kind),
            .flags = hint                         ? hint->flags
                     : output->kind == QUERY_TEXT ? COLUMN_STRETCH
                     : style->fine                ? COLUMN_FINE
                                                  : 0u,
            .rank = (unsigned char)(hint                              ? hint->rank
                                    : style->fit && c >= ALWAYS_SHOWN ? c
                                                                      : 0),
        };
    }
    ret->columns[n] = (struct column){0};
}

/* Lists in one field: frames as folded stacks have them, "main;load;malloc"; of a series "TIME VALUE;..." for programs and
 * a line of small bars for people. */
static void set_list(struct table *table, size_t c, enum query_kind kind,
                     const struct query_value *value, bool export)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(LIST_MAX);
    if (kind == QUERY_FRAMES) {
        for (uint32_t i = 0; i < value->len; i++)
            buffer_append_char(&text, value->text[i] == '\n' ? ';' : value->text[i]);
    } else if (export) {
        for (size_t i = 0; i < query_points(value); i++) {
            struct query_point point = query_point(value, i);
            buffer_printf(&text, "%s%llu.%03u %llu", i ? ";" : "",
                          (unsigned long long)(point.time_ns / NS_PER_S),
                          (unsigned)(point.time_ns % NS_PER_S / NS_PER_MS),
                          (unsigned long long)point.value);
        }
    } else {
        struct spark_point points[SPARK_POINTS];
        size_t n = query_points(value), shown = n < SPARK_POINTS ? n : SPARK_POINTS;
        uint64_t top = 0;
        for (size_t i = 0; i < shown; i++) {
            points[i] =
                (struct spark_point){.present = true, query_point(value, n - shown + i).value};
            top = points[i].value > top ? points[i].value : top;
        }
        spark_append(&text, true, points, shown, top);
    }
    table_set_text(table, c, buffer_string(&text));
}

static void set_cell(struct table *table, size_t c, enum query_kind kind,
                     const struct query_value *value, bool export)
{
    if (!(value->state & QUERY_KNOWN))
        return;
    if (kind == QUERY_TEXT)
        table_set_text(table, c, value->text);
    else if (kind == QUERY_FRAMES || kind == QUERY_POINTS)
        set_list(table, c, kind, value, export);
    else if (kind == QUERY_RATE)
        table_set_change(table, c, (int64_t)value->number / QUERY_RATE_SCALE);
    else if (query_kind_is_part(kind))
        table_set_number(table, c,
                         (uint64_t)((double)value->number / (double)value->per * 10000 + 0.5));
    else
        table_set_number(table, c, value->number);
    table_set_marks(table, c,
                    (value->marks & QUERY_ESTIMATE ? TABLE_MARK_ESTIMATE : 0u) |
                        (value->marks & QUERY_AT_LEAST ? TABLE_MARK_AT_LEAST : 0u));
}

static int print_json(const struct query_result *result, const struct query_style *style,
                      struct buffer *out)
{
    struct json json;
    command_json_begin(&json, out, "memoir.query/1");
    query_result_json(result, &json);
    if (style->cluster) {
        json_key(&json, "cluster");
        json_raw(&json, style->cluster->data, style->cluster->len);
    }
    json_object_end(&json);
    buffer_append_char(out, '\n');
    return json_finish(&json);
}

int query_sheet_new(const struct query_result *result, const struct query *query,
                    const struct query_style *style, struct query_sheet **ret_sheet)
{
    MEMOIR_CLEANUP(query_sheet_freep)
    struct query_sheet *sheet = calloc(1, sizeof(*sheet));
    if (!sheet)
        return -ENOMEM;
    describe(query, style, sheet);
    struct table *table = &sheet->table;
    table_init(table, sheet->columns);
    table->units = style->units;
    for (size_t row = 0; row < query_result_rows(result); row++) {
        table_row(table);
        for (size_t c = 0; c < table->n_columns; c++) {
            struct query_value value = query_result_value(result, row, c);
            set_cell(table, c, query_output(query, c)->kind, &value,
                     style->format == QUERY_FORMAT_CSV);
        }
        if (style->paint)
            style->paint(table, result, row);
    }
    if (table->error)
        return table->error;
    *ret_sheet = MEMOIR_TAKE(sheet);
    return 0;
}

void query_sheet_free(struct query_sheet *sheet)
{
    if (sheet && sheet->table.columns)
        table_release(&sheet->table);
    free(sheet);
}

void query_sheet_freep(struct query_sheet **sheet)
{
    query_sheet_free(*sheet);
}

int query_print(const struct query_result *result, const struct query *query,
                const struct query_style *style, const struct term *term, struct buffer *out)
{
    if (style->format == QUERY_FORMAT_JSON)
        return print_json(result, style, out);
    if (style->format == QUERY_FORMAT_LINES)
        return query_result_lines(result, out);
    MEMOIR_CLEANUP(query_sheet_freep)
    struct query_sheet *sheet = NULL;
    int r = query_sheet_new(result, query, style, &sheet);
    if (r < 0)
        return r;
    struct table_layout layout = {.header = style->header};
    return style->format == QUERY_FORMAT_CSV ? table_print_csv(&sheet->table, &layout, out)
                                             : table_print(&sheet->table, &layout, term, out);
}

/* ---- the columns that there are ---- */

enum { LIST_TABLE, LIST_COLUMN, LIST_KIND, LIST_GROUPS, LIST_PRIVATE, LIST_HELP };

static const struct column list_columns[] = {
    [LIST_TABLE] = {"table", "TABLE", "table", COLUMN_TEXT, COLUMN_HIDE_EMPTY},
    [LIST_COLUMN] = {"column", "COLUMN", "name of the column", COLUMN_TEXT},
    [LIST_KIND] = {"kind", "KIND", "what it is", COLUMN_TEXT},
    [LIST_GROUPS] = {"groups", "GROUPS", "what groups show", COLUMN_TEXT, 0, 1},
    [LIST_PRIVATE] = {"private", NULL, "only for who owns the process", COLUMN_YES,
                      COLUMN_EXPORT_ONLY},
    [LIST_HELP] = {"help", "WHAT IT IS", "what it is", COLUMN_TEXT, COLUMN_STRETCH},
    {0},
};

static const char *groups_text(const struct query_column *column)
{
    static const char *const names[] = {
        [QUERY_SUM] = "sum",     [QUERY_MAX] = "max",   [QUERY_MIN] = "min", [QUERY_AVG] = "avg",
        [QUERY_COUNT] = "count", [QUERY_SAME] = "same", [QUERY_ANY] = "any",
    };
    enum query_aggregate aggregate = query_column_aggregate(column);
    return query_kind_is_part(column->kind) && aggregate == QUERY_SUM ? "share" : names[aggregate];
}

static void list_table(struct table *list, const struct query_table *table)
{
    for (const struct query_column *c = table->columns; c->name; c++) {
        table_row(list);
        table_set_text(list, LIST_TABLE, table->name);
        table_set_text(list, LIST_COLUMN, c->name);
        table_set_text(list, LIST_KIND, query_kind_name(c->kind));
        table_set_text(list, LIST_GROUPS, groups_text(c));
        table_set_number(list, LIST_PRIVATE,
                         (c->flags & (QUERY_PRIVATE | QUERY_PRIVATE_ENDED)) != 0);
        table_set_text(list, LIST_HELP, query_column_help(c));
    }
}

static int list_json(const struct table *list, struct buffer *out)
{
    struct json json;
    command_json_begin(&json, out, "memoir.columns/1");
    table_json_rows(list, "columns", &json);
    json_object_end(&json);
    buffer_append_char(out, '\n');
    return json_finish(&json);
}

/* One table under its name, as text. */
static int list_text(const struct query_table *table, const struct query_style *style,
                     const struct term *term, struct buffer *out)
{
    MEMOIR_CLEANUP(table_release)
    struct table list;
    table_init(&list, list_columns + LIST_COLUMN);
    for (const struct query_column *c = table->columns; c->name; c++) {
        table_row(&list);
        table_set_text(&list, LIST_COLUMN - LIST_COLUMN, c->name);
        table_set_text(&list, LIST_KIND - LIST_COLUMN, query_kind_name(c->kind));
        table_set_text(&list, LIST_GROUPS - LIST_COLUMN, groups_text(c));
        table_set_text(&list, LIST_HELP - LIST_COLUMN, query_column_help(c));
    }
    buffer_printf(out, "%s%s%s: %s\n\n", term_style(term, STYLE_TITLE), table->name,
                  term_plain(term, STYLE_TITLE), table->help);
    return table_print(&list, &(struct table_layout){.header = style->header}, term, out);
}

int query_print_columns(const struct query_table *table, const struct query_style *style,
                        const struct term *term, struct buffer *out)
{
    MEMOIR_CLEANUP(table_release)
    struct table list;
    table_init(&list, list_columns);
    int r = 0;
    for (const struct query_table *const *t = query_tables(); *t && r == 0; t++) {
        if (table && *t != table)
            continue;
        if (style->format != QUERY_FORMAT_TEXT) {
            list_table(&list, *t);
            continue;
        }
        if (out->len)
            buffer_append_char(out, '\n');
        r = list_text(*t, style, term, out);
    }
    if (style->format == QUERY_FORMAT_JSON)
        r = list.error ? list.error : list_json(&list, out);
    else if (style->format == QUERY_FORMAT_CSV)
        r = table_print_csv(&list, &(struct table_layout){.header = style->header}, out);
    return r;
}

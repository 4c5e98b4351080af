/* The words of a query: table, columns to group by and to show, order, limit. See query.h. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/nearest.h"
#include "query/plan.h"

enum { COLUMNS_MAX = 128, WORD_SHOWN_MAX = 60 };

bool query_asks_unusual(const struct query *query)
{
    return query->unusual;
}

int query_fail(struct query_error *error, const char *part, size_t at, size_t len, const char *fmt,
               ...)
{
    *error = (struct query_error){.part = part, .at = at, .len = len};
    va_list args;
    va_start(args, fmt);
    vsnprintf(error->text, sizeof(error->text), fmt, args);
    va_end(args);
    return -EINVAL;
}

/* ---- names ---- */

static int shown(size_t len)
{
    return len < WORD_SHOWN_MAX ? (int)len : WORD_SHOWN_MAX;
}

/* Another registered table that has this column; or NULL. */
static const struct query_table *other_table(const struct query_table *table, const char *name)
{
    if (query_table_find(table->name) != table)
        return NULL;
    for (const struct query_table *const *t = query_tables(); *t; t++)
        for (const struct query_column *c = (*t)->columns; c->name; c++)
            if (*t != table && strcmp(c->name, name) == 0)
                return *t;
    return NULL;
}

static int fail_column(const struct query_table *table, const char *part, size_t at,
                       const char *name, size_t len, struct query_error *error)
{
    const char *words[COLUMNS_MAX + 1] = {NULL};
    size_t n = 0;
    for (const struct query_column *c = table->columns; c->name && n < COLUMNS_MAX; c++)
        words[n++] = c->name;
    char typed[QUERY_NAME_MAX] = "";
    if (len < sizeof(typed))
        memcpy(typed, name, len);
    const struct query_table *other = *typed ? other_table(table, typed) : NULL;
    if (other)
        return query_fail(error, part, at, len, "the table %s has no column '%s', the table %s has",
                          table->name, typed, other->name);
    const char *nearest = *typed ? nearest_word(typed, words) : NULL;
    return query_fail(error, part, at, len, "the table %s has no column '%.*s'%s%s%s", table->name,
                      shown(len), name, nearest ? ", did you mean '" : "", nearest ? nearest : "",
                      nearest ? "'?" : "");
}

int query_field_find(const struct query_table *table, const char *part, size_t at, const char *name,
                     size_t len, struct query_field *ret_field, struct query_error *error)
{
    for (const struct query_column *c = table->columns; c->name; c++)
        if (strlen(c->name) == len && memcmp(c->name, name, len) == 0) {
            *ret_field = (struct query_field){.column = c, .space = c->arg, .ordinal = -1};
            return 0;
        }
    if (table->resolve && table->resolve(name, len, ret_field))
        return 0;
    return fail_column(table, part, at, name, len, error);
}

static const struct query_table *find_table(const struct query_spec *spec,
                                            struct query_error *error)
{
    const struct query_table *const *tables = query_tables();
    const char *name = spec->table && *spec->table ? spec->table : tables[0]->name;
    const struct query_table *table = query_table_find(name);
    if (table)
        return table;
    const char *words[QUERY_TABLES_MAX + 1] = {NULL};
    char all[QUERY_TABLES_MAX * (QUERY_NAME_MAX + 2)] = "";
    for (size_t i = 0, used = 0; tables[i]; i++) {
        words[i] = tables[i]->name;
        used += (size_t)snprintf(all + used, sizeof(all) - used, "%s%s", i ? ", " : "", words[i]);
    }
    const char *nearest = nearest_word(name, words);
    if (nearest)
        query_fail(error, "table", 0, strlen(name), "there is no table '%.*s', did you mean '%s'?",
                   shown(strlen(name)), name, nearest);
    else
        query_fail(error, "table", 0, strlen(name), "there is no table '%.*s'; there are %s",
                   shown(strlen(name)), name, all);
    return NULL;
}

/* ---- lists of columns ---- */

struct item {
    const char *text; /* without spaces around */
    size_t at, len;
};

/* The next item of a list separated by commas; false at its end. */
static bool next_item(const char *list, size_t *pos, struct item *ret)
{
    const char *p = list + *pos;
    if (!*p)
        return false;
    size_t len = strcspn(p, ",");
    *pos += len + (p[len] == ',');
    while (len && (*p == ' ' || *p == '\t')) {
        p++;
        len--;
    }
    while (len && (p[len - 1] == ' ' || p[len - 1] == '\t'))
        len--;
    *ret = (struct item){.text = p, .at = (size_t)(p - list), .len = len};
    return true;
}

enum query_aggregate query_column_aggregate(const struct query_column *column)
{
    if (column->aggregate != QUERY_DEFAULT)
        return column->aggregate;
    switch (column->kind) {
    case QUERY_NUMBER:
    case QUERY_BYTES:
    case QUERY_PERCENT:
    case QUERY_SHARE:
    case QUERY_RATE:
    case QUERY_POINTS:
        return QUERY_SUM;
    case QUERY_AGE:
        return QUERY_MAX;
    case QUERY_TEXT:
    case QUERY_FRAMES:
    case QUERY_TIME:
    case QUERY_YES:
        break;
    }
    return QUERY_SAME;
}

/* Sums and averages of names, dates and process numbers mean nothing; a share of shares neither. */
static bool aggregate_fits(const struct query_column *column, enum query_aggregate aggregate)
{
    if (aggregate != QUERY_SUM && aggregate != QUERY_AVG)
        return true;
    bool adds = column->kind == QUERY_BYTES || column->kind == QUERY_AGE ||
                column->kind == QUERY_RATE ||
                (column->kind == QUERY_NUMBER && column->aggregate != QUERY_SAME);
    return adds ||
           (aggregate == QUERY_SUM && (column->kind == QUERY_YES || column->kind == QUERY_POINTS));
}

static const struct {
    const char *name;
    enum query_aggregate aggregate;
} aggregates[] = {
    {"sum", QUERY_SUM},     {"max", QUERY_MAX},   {"min", QUERY_MIN}, {"avg", QUERY_AVG},
    {"count", QUERY_COUNT}, {"same", QUERY_SAME}, {"any", QUERY_ANY},
};

static int parse_aggregate(const char *part, const struct item *item, size_t open,
                           enum query_aggregate *ret, struct query_error *error)
{
    const char *words[sizeof(aggregates) / sizeof(aggregates[0]) + 1] = {NULL};
    for (size_t i = 0; i < sizeof(aggregates) / sizeof(aggregates[0]); i++) {
        words[i] = aggregates[i].name;
        if (strlen(words[i]) == open && memcmp(words[i], item->text, open) == 0) {
            *ret = aggregates[i].aggregate;
            return 0;
        }
    }
    return query_fail(error, part, item->at, open,
                      "'%.*s' is no way to combine rows: sum, max, min, avg, count, same or any",
                      shown(open), item->text);
}

/* "rss", "max(rss)", "count" or "count(rss)". */
static int parse_output(const struct query_table *table, const char *part, const struct item *item,
                        struct output *ret, bool *ret_explicit, struct query_error *error)
{
    struct output output = {0};
    if (item->len == 0)
        return query_fail(error, part, item->at, 1, "a column name is missing");
    if (item->len >= QUERY_NAME_MAX)
        return query_fail(error, part, item->at, item->len, "this is too long for a column name");
    memcpy(output.o.name, item->text, item->len);
    const char *open = memchr(item->text, '(', item->len);
    *ret_explicit = open || strcmp(output.o.name, "count") == 0;
    if (*ret_explicit && !open) {
        output.aggregate = QUERY_COUNT;
        output.o.kind = QUERY_NUMBER;
        *ret = output;
        return 0;
    }
    size_t head = open ? (size_t)(open - item->text) + 1 : 0;
    if (open && item->text[item->len - 1] != ')')
        return query_fail(error, part, item->at + head - 1, item->len - head + 1,
                          "'(' is never closed");
    size_t len = item->len - head - (open ? 1 : 0);
    int r = query_field_find(table, part, item->at + head, item->text + head, len, &output.field,
                             error);
    if (r < 0)
        return r;
    const struct query_column *column = output.field.column;
    output.o.column = column;
    output.o.kind = column->kind;
    output.aggregate = query_column_aggregate(column);
    if (open) {
        r = parse_aggregate(part, item, head - 1, &output.aggregate, error);
        if (r < 0)
            return r;
        if (!aggregate_fits(column, output.aggregate))
            return query_fail(error, part, item->at, item->len, "'%s' cannot be added up",
                              column->name);
    }
    if (output.aggregate == QUERY_COUNT ||
        (output.aggregate == QUERY_SUM && column->kind == QUERY_YES))
        output.o.kind = QUERY_NUMBER;
    *ret = output;
    return 0;
}

static struct output *find_output(struct query *q, const char *name, size_t len)
{
    for (size_t i = 0; i < q->n_outputs; i++)
        if (strlen(q->outputs[i].o.name) == len && memcmp(q->outputs[i].o.name, name, len) == 0)
            return &q->outputs[i];
    return NULL;
}

static int add_output(struct query *q, const char *part, const struct item *item,
                      const struct output *output, struct query_error *error)
{
    if (q->n_outputs == QUERY_OUTPUTS_MAX)
        return query_fail(error, part, item->at, item->len, "these are more than %d columns",
                          QUERY_OUTPUTS_MAX);
    q->outputs[q->n_outputs++] = *output;
    return 0;
}

static int parse_by(struct query *q, const char *by, struct query_error *error)
{
    size_t pos = 0;
    struct item item;
    while (by && next_item(by, &pos, &item)) {
        struct output output;
        bool combined;
        int r = parse_output(q->table, "by", &item, &output, &combined, error);
        if (r < 0)
            return r;
        if (combined)
            return query_fail(error, "by", item.at, item.len,
                              "rows are grouped by plain columns, not by what combines them");
        if (output.o.kind == QUERY_POINTS)
            return query_fail(error, "by", item.at, item.len, "a series makes no groups");
        if (find_output(q, item.text, item.len))
            continue;
        if (q->n_outputs == QUERY_BY_MAX)
            return query_fail(error, "by", item.at, item.len, "more than %d columns to group by",
                              QUERY_BY_MAX);
        output.o.key = true;
        output.aggregate = QUERY_SAME;
        r = add_output(q, "by", &item, &output, error);
        if (r < 0)
            return r;
    }
    q->n_by = q->n_outputs;
    q->grouped = q->n_by > 0;
    return 0;
}

/* A well-formed item whose column the table does not have. */
static bool names_unknown(const struct query_table *table, const struct item *item)
{
    const char *open = memchr(item->text, '(', item->len);
    size_t head = open ? (size_t)(open - item->text) + 1 : 0;
    struct query_field field;
    struct query_error ignored;
    if (item->len == 0 || item->len >= QUERY_NAME_MAX || (open && item->text[item->len - 1] != ')'))
        return false;
    size_t len = item->len - head - (open ? 1 : 0);
    return query_field_find(table, "show", 0, item->text + head, len, &field, &ignored) < 0;
}

static int parse_show(struct query *q, const char *show, struct query_error *error)
{
    size_t pos = 0;
    struct item item;
    while (next_item(show, &pos, &item)) {
        struct output output;
        bool combined;
        int r = parse_output(q->table, "show", &item, &output, &combined, error);
        if (r < 0 && q->spec.lenient && names_unknown(q->table, &item))
            continue;
        if (r < 0)
            return r;
        q->grouped |= combined;
        if (find_output(q, item.text, item.len))
            continue;
        r = add_output(q, "show", &item, &output, error);
        if (r < 0)
            return r;
    }
    q->n_shown = q->n_outputs;
    if (q->n_shown == 0)
        return query_fail(error, "show", 0, strlen(show), "the table %s has none of these columns",
                          q->table->name);
    return 0;
}

static int parse_sort(struct query *q, const char *sort, struct query_error *error)
{
    size_t pos = 0;
    struct item item;
    while (next_item(sort, &pos, &item)) {
        char sign = item.len && (*item.text == '-' || *item.text == '+') ? *item.text : 0;
        item.text += sign != 0;
        item.at += sign != 0;
        item.len -= sign != 0;
        struct output *known = find_output(q, item.text, item.len);
        if (!known) {
            struct output output;
            bool combined;
            int r = parse_output(q->table, "sort", &item, &output, &combined, error);
            if (r < 0 && q->spec.lenient && names_unknown(q->table, &item))
                continue;
            if (r < 0)
                return r;
            if (combined && !q->grouped)
                return query_fail(error, "sort", item.at, item.len,
                                  "single rows have nothing to combine; group them with 'by'");
            r = add_output(q, "sort", &item, &output, error);
            if (r < 0)
                return r;
            known = &q->outputs[q->n_outputs - 1];
        }
        if (q->n_sorts == QUERY_OUTPUTS_MAX)
            return query_fail(error, "sort", item.at, item.len, "these are more than %d columns",
                              QUERY_OUTPUTS_MAX);
        q->sorts[q->n_sorts++] = (struct sort_key){
            .output = (size_t)(known - q->outputs),
            .descending = sign ? sign == '-' : !kind_is_text(known->o.kind),
        };
    }
    return 0;
}

/* Default order of groups: the first figure, large first. */
static void sort_groups(struct query *q)
{
    for (size_t i = q->n_by; i < q->n_shown && !q->n_sorts; i++)
        if (!kind_is_text(q->outputs[i].o.kind) && q->outputs[i].o.kind != QUERY_POINTS)
            q->sorts[q->n_sorts++] = (struct sort_key){.output = i, .descending = true};
}

static bool names_column(const struct query *q, const char *name)
{
    for (size_t i = 0; i < q->n_by; i++)
        if (strcmp(q->outputs[i].o.column->name, name) == 0)
            return true;
    for (size_t i = 0; i < q->where.n; i++)
        if (q->where.nodes[i].field.column &&
            strcmp(q->where.nodes[i].field.column->name, name) == 0)
            return true;
    return false;
}

/* Most columns of most questions: those that make no groups. */
static void mark_plain(struct query *q)
{
    for (size_t i = 0; i < q->n_outputs && !q->grouped; i++)
        q->outputs[i].plain = !query_kind_is_part(q->outputs[i].o.kind);
}

static const char *const parts[] = {"table", "by", "where", "show", "sort"};
enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

/* NULL: not given, or no part. */
static const char *part_text(const struct query_spec *spec, const char *part)
{
    const char *const texts[PARTS] = {spec->table, spec->by, spec->where, spec->show, spec->sort};
    for (size_t i = 0; i < PARTS; i++)
        if (strcmp(parts[i], part) == 0)
            return texts[i];
    return NULL;
}

static int check_lengths(const struct query_spec *spec, struct query_error *error)
{
    for (size_t i = 0; i < PARTS; i++) {
        const char *text = part_text(spec, parts[i]);
        if (text && strlen(text) > QUERY_TEXT_MAX)
            return query_fail(error, parts[i], QUERY_TEXT_MAX, 1, "'%s' is longer than %d bytes",
                              parts[i], QUERY_TEXT_MAX);
    }
    return 0;
}

/* ---- a query ---- */

static int keep_spec(struct query *q, const struct query_spec *spec)
{
    const char *const texts[PARTS] = {q->table->name, spec->by, spec->where, spec->show,
                                      spec->sort};
    const char *words[PARTS];
    size_t size = 0;
    for (size_t i = 0; i < PARTS; i++)
        size += (texts[i] ? strlen(texts[i]) : 0) + 1;
    char *to = q->words = malloc(size);
    if (!to)
        return -ENOMEM;
    for (size_t i = 0; i < PARTS; i++) {
        words[i] = to;
        to = stpcpy(to, texts[i] ? texts[i] : "") + 1;
    }
    q->spec = (struct query_spec){.table = words[0],
                                  .by = words[1],
                                  .where = words[2],
                                  .show = words[3],
                                  .sort = words[4],
                                  .limit = spec->limit,
                                  .others = spec->others,
                                  .lenient = spec->lenient};
    return 0;
}

int query_new_over(const struct query_table *table, const struct query_spec *spec,
                   struct query **ret_query, struct query_error *ret_error)
{
    MEMOIR_CLEANUP(query_freep)
    struct query *q = malloc(sizeof(*q));
    *ret_error = (struct query_error){0};
    if (!q)
        return -ENOMEM;
    memset(q, 0, offsetof(struct query, outputs)); /* most of it is room for many columns */
    q->table = table;
    q->limit = spec->limit;
    int r = check_lengths(spec, ret_error);
    if (r == 0)
        r = keep_spec(q, spec);
    if (r == 0)
        r = parse_by(q, spec->by, ret_error);
    if (r == 0)
        r = parse_show(q,
                       spec->show && *spec->show ? spec->show
                       : q->grouped              ? table->show_by
                                                 : table->show,
                       ret_error);
    if (r == 0 && spec->sort && *spec->sort)
        r = parse_sort(q, spec->sort, ret_error);
    else if (r == 0 && q->grouped)
        sort_groups(q);
    else if (r == 0 && table->sort)
        r = parse_sort(q, table->sort, ret_error);
    if (r == 0 && spec->where && *spec->where)
        r = expression_parse(table, spec->where, &q->where, ret_error);
    if (r == 0)
        r = query_check_named(q, ret_error);
    if (r < 0)
        return r;
    mark_plain(q);
    q->unusual = !table->usual || names_column(q, table->unusual_by);
    *ret_query = MEMOIR_TAKE(q);
    return 0;
}

int query_new(const struct query_spec *spec, struct query **ret_query,
              struct query_error *ret_error)
{
    int r = check_lengths(spec, ret_error);
    if (r < 0)
        return r;
    const struct query_table *table = find_table(spec, ret_error);
    return table ? query_new_over(table, spec, ret_query, ret_error) : -EINVAL;
}

void query_free(struct query *query)
{
    if (!query)
        return;
    expression_release(&query->where);
    free(query->words);
    free(query);
}

void query_freep(struct query **query)
{
    query_free(*query);
}

const struct query_table *query_table_of(const struct query *query)
{
    return query->table;
}

const struct query_spec *query_spec_of(const struct query *query)
{
    return &query->spec;
}

unsigned query_needs(const struct query *query)
{
    unsigned needs = query->table->needs;
    for (size_t i = 0; i < query->n_outputs; i++)
        if (query->outputs[i].field.column)
            needs |= query->outputs[i].field.column->needs;
    for (size_t i = 0; i < query->where.n; i++) {
        const struct node *node = &query->where.nodes[i];
        if (node->field.column)
            needs |= node->field.column->needs;
        if (node->other.column)
            needs |= node->other.column->needs;
    }
    return needs;
}

size_t query_outputs(const struct query *query)
{
    return query->n_shown;
}

const struct query_output *query_output(const struct query *query, size_t column)
{
    return &query->outputs[column].o;
}

/* ---- errors ---- */

int query_error_print(const struct query_error *error, const struct query_spec *spec,
                      struct buffer *out)
{
    buffer_append_str(out, error->text);
    const char *text = error->part ? part_text(spec, error->part) : NULL;
    if (!text || strpbrk(text, "\n\t\r") || error->at > strlen(text) || strlen(text) > 200)
        return out->error; /* a mark would point at nothing */
    buffer_printf(out, "\n  %s: %s\n  %*s", error->part, text,
                  (int)(strlen(error->part) + 2 + error->at), "");
    for (size_t i = 0; i < (error->len ? error->len : 1); i++)
        buffer_append_char(out, '^');
    return out->error;
}

void query_sum_nodes(struct query *query)
{
    for (size_t i = 0; i < query->n_outputs; i++)
        if (query->outputs[i].field.column &&
            query->outputs[i].field.column->flags & QUERY_PER_NODE &&
            query->outputs[i].aggregate == QUERY_MAX)
            query->outputs[i].aggregate = QUERY_SUM;
}

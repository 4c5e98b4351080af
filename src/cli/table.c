/* Tables as text. See table.h. */
#include "cli/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/units.h"

enum {
    COLUMNS_MAX = 48,
    GAP = 2,            /* columns between columns */
    STRETCH_MIN = 12,   /* a program's name is still a name at this width */
    WIDE_MIN = 36,      /* and a function with its file and line at this one */
    TEXT_CELL_MAX = 64, /* of a formatted number */
    TAIL_MIN = 12,      /* columns: less of a tail tells nothing */
};

void table_init(struct table *table, const struct column *columns)
{
    *table = (struct table){.columns = columns};
    while (columns[table->n_columns].key)
        table->n_columns++;
}

void table_release(struct table *table)
{
    for (size_t i = 0; i < table->n_rows * table->n_columns; i++) {
        free(table->cells[i].text);
        free(table->cells[i].tail);
    }
    free(table->cells);
    table_init(table, table->columns);
}

void table_row(struct table *table)
{
    if (table->error)
        return;
    if (table->n_rows == table->cap_rows) {
        size_t cap = table->cap_rows ? table->cap_rows * 2 : 16;
        struct cell *cells = reallocarray(table->cells, cap * table->n_columns, sizeof(*cells));
        if (!cells) {
            table->error = -ENOMEM;
            return;
        }
        table->cells = cells;
        table->cap_rows = cap;
    }
    memset(table->cells + table->n_rows * table->n_columns, 0,
           table->n_columns * sizeof(struct cell));
    table->n_rows++;
}

static struct cell *last(struct table *table, size_t column)
{
    return &table->cells[(table->n_rows - 1) * table->n_columns + column];
}

void table_set_text(struct table *table, size_t column, const char *text)
{
    if (table->error)
        return;
    char *copy = strdup(text);
    if (!copy) {
        table->error = -ENOMEM;
        return;
    }
    struct cell *cell = last(table, column);
    free(cell->text);
    cell->text = copy;
    cell->present = true;
}

void table_set_via(struct table *table, size_t column, const char *via)
{
    char *text = NULL;
    if (table->error)
        return;
    if (asprintf(&text, "  via %s", via) < 0) {
        table->error = -ENOMEM;
        return;
    }
    struct cell *cell = last(table, column);
    free(cell->tail);
    cell->tail = text;
}

void table_set_number(struct table *table, size_t column, uint64_t number)
{
    if (table->error)
        return;
    struct cell *cell = last(table, column);
    cell->number = number;
    cell->present = true;
}

void table_set_change(struct table *table, size_t column, int64_t change)
{
    table_set_number(table, column, (uint64_t)change);
}

void table_set_style(struct table *table, size_t column, enum term_style style)
{
    if (!table->error)
        last(table, column)->style = (unsigned char)style;
}

void table_set_marks(struct table *table, size_t column, unsigned marks)
{
    if (!table->error)
        last(table, column)->marks = (unsigned char)marks;
}

int table_column_find(const struct column *columns, const char *name)
{
    for (int i = 0; columns[i].key; i++)
        if (strcmp(columns[i].key, name) == 0 ||
            (columns[i].title && strcasecmp(columns[i].title, name) == 0))
            return i;
    return -ENOENT;
}

/* ---- sorting ---- */

int table_sort_parse(const struct column *columns, const char *text, struct table_sort *ret_sort)
{
    bool has_sign = *text == '-' || *text == '+';
    int column = table_column_find(columns, text + has_sign);
    if (column < 0)
        return column;
    *ret_sort = (struct table_sort){
        .column = (size_t)column,
        .descending = has_sign ? *text == '-' : columns[column].type != COLUMN_TEXT,
    };
    return 0;
}

static bool is_rate(enum column_type type)
{
    return type == COLUMN_RATE || type == COLUMN_RATE_BYTES;
}

static bool is_signed(enum column_type type)
{
    return type == COLUMN_CHANGE || type == COLUMN_CHANGE_BYTES || is_rate(type);
}

struct sort_context {
    const struct table *table;
    const struct table_sort *sort;
};

static int compare_rows(const void *a, const void *b, void *context)
{
    const struct sort_context *by = context;
    size_t row_a = *(const size_t *)a, row_b = *(const size_t *)b;
    const struct cell *x = table_cell(by->table, row_a, by->sort->column);
    const struct cell *y = table_cell(by->table, row_b, by->sort->column);
    int order = 0;
    if (x->present != y->present)
        return x->present ? -1 : 1;
    if (x->present && by->table->columns[by->sort->column].type == COLUMN_TEXT)
        order = strcmp(x->text, y->text);
    else if (x->present && is_signed(by->table->columns[by->sort->column].type))
        order =
            ((int64_t)x->number > (int64_t)y->number) - ((int64_t)x->number < (int64_t)y->number);
    else if (x->present)
        order = (x->number > y->number) - (x->number < y->number);
    if (order)
        return by->sort->descending ? -order : order;
    return (row_a > row_b) - (row_a < row_b);
}

int table_sort(const struct table *table, const struct table_sort *sort, size_t **ret_order)
{
    size_t *order = malloc((table->n_rows + 1) * sizeof(*order));
    if (!order)
        return -ENOMEM;
    for (size_t i = 0; i < table->n_rows; i++)
        order[i] = i;
    struct sort_context context = {table, sort};
    qsort_r(order, table->n_rows, sizeof(*order), compare_rows, &context);
    *ret_order = order;
    return 0;
}

/* ---- text ---- */

/* "+25.5 MB", "-3", "+1.2 kB/s", "0" */
static const char *change_text(const struct table *table, const struct column *column,
                               const struct cell *cell, char text[static TEXT_CELL_MAX])
{
    int64_t change = (int64_t)cell->number;
    uint64_t size = change < 0 ? -(uint64_t)change : (uint64_t)change;
    const char *sign = change > 0 ? "+" : change < 0 ? "-" : "";
    const char *per = is_rate(column->type) && change && table->units != TABLE_PLAIN ? "/s" : "";
    bool count = column->type == COLUMN_CHANGE || column->type == COLUMN_RATE;
    char number[UNITS_TEXT_MAX];
    if (count || table->units == TABLE_PLAIN)
        snprintf(text, TEXT_CELL_MAX, "%s%llu%s", sign, (unsigned long long)size, per);
    else
        snprintf(text, TEXT_CELL_MAX, "%s%s%s", sign,
                 units_format_bytes(number, size,
                                    table->units == TABLE_BINARY ? UNITS_BINARY : UNITS_DECIMAL),
                 per);
    return text;
}

/* The text of a cell without its marks: its own, or the number in people's units in `text`. */
static const char *plain_text(const struct table *table, const struct column *column,
                              const struct cell *cell, char text[static TEXT_CELL_MAX])
{
    if (!cell->present)
        return "-";
    if (cell->text)
        return cell->text;
    switch (column->type) {
    case COLUMN_TEXT:
        return "";
    case COLUMN_BYTES:
        if (table->units == TABLE_PLAIN)
            break;
        return units_format_bytes(text, cell->number,
                                  table->units == TABLE_BINARY ? UNITS_BINARY : UNITS_DECIMAL);
    case COLUMN_AGE: /* whole seconds: "16s", "4m12s" */
        if (cell->number >= 60 * NS_PER_S || column->flags & COLUMN_FINE)
            return units_format_duration(text, cell->number);
        snprintf(text, TEXT_CELL_MAX, "%us", (unsigned)(cell->number / NS_PER_S));
        return text;
    case COLUMN_TIME: {
        time_t seconds = (time_t)(cell->number / NS_PER_S);
        struct tm tm;
        if (!localtime_r(&seconds, &tm) ||
            !strftime(text, TEXT_CELL_MAX, table->today ? "%T" : "%F %T", &tm))
            return "-";
        return text;
    }
    case COLUMN_YES:
        return cell->number ? "yes" : "no";
    case COLUMN_SHARE:
    case COLUMN_PERCENT: {
        unsigned long long tenths = (cell->number + 5) / 10;
        snprintf(text, TEXT_CELL_MAX, "%llu.%llu %%", tenths / 10, tenths % 10);
        return text;
    }
    case COLUMN_CHANGE:
    case COLUMN_CHANGE_BYTES:
    case COLUMN_RATE:
    case COLUMN_RATE_BYTES:
        return change_text(table, column, cell, text);
    case COLUMN_NUMBER:
        break;
    }
    snprintf(text, TEXT_CELL_MAX, "%llu", (unsigned long long)cell->number);
    return text;
}

static const char *cell_text(const struct table *table, const struct column *column,
                             const struct cell *cell, char text[static TEXT_CELL_MAX])
{
    char plain[TEXT_CELL_MAX];
    if (!cell->present || !cell->marks || column->type == COLUMN_TEXT)
        return plain_text(table, column, cell, text);
    snprintf(text, TEXT_CELL_MAX, "%s%s%s", cell->marks & TABLE_MARK_ESTIMATE ? "~" : "",
             plain_text(table, column, cell, plain), cell->marks & TABLE_MARK_AT_LEAST ? "+" : "");
    return text;
}

/* Which columns to show, and how wide each is. */
struct plan {
    bool shown[COLUMNS_MAX];
    bool empty[COLUMNS_MAX]; /* no row has a value worth the room */
    unsigned width[COLUMNS_MAX];
    size_t n;
};

static void plan_measure(struct plan *plan, const struct table *table,
                         const struct table_layout *layout, const struct term *term)
{
    plan->n = table->n_columns < COLUMNS_MAX ? table->n_columns : COLUMNS_MAX;
    for (size_t c = 0; c < plan->n; c++) {
        const struct column *column = &table->columns[c];
        plan->shown[c] = !(column->flags & COLUMN_EXPORT_ONLY);
        plan->empty[c] = true;
        plan->width[c] =
            layout->header ? term_columns(term, column->title ? column->title : "") : 0;
        for (size_t row = 0; row < table->n_rows; row++) {
            const struct cell *cell = table_cell(table, row, c);
            char text[TEXT_CELL_MAX];
            unsigned width = term_columns(term, cell_text(table, column, cell, text));
            width += cell->tail ? term_columns(term, cell->tail) : 0;
            if (width > plan->width[c])
                plan->width[c] = width;
            if (cell->present && (column->type == COLUMN_TEXT ? *cell->text != '\0' : cell->number))
                plan->empty[c] = false;
        }
        if ((column->flags & COLUMN_HIDE_EMPTY) && plan->empty[c])
            plan->shown[c] = false;
    }
}

static unsigned plan_width(const struct plan *plan)
{
    unsigned width = 0;
    for (size_t c = 0; c < plan->n; c++)
        if (plan->shown[c])
            width += plan->width[c] + (width ? GAP : 0);
    return width;
}

/* Take `excess` columns from the stretching column; what is left of the excess. */
static unsigned plan_shrink(struct plan *plan, const struct table *table, unsigned excess)
{
    for (size_t c = 0; c < plan->n && excess; c++) {
        unsigned flags = table->columns[c].flags;
        unsigned least = flags & COLUMN_WIDE ? WIDE_MIN : STRETCH_MIN;
        if (!plan->shown[c] || !(flags & COLUMN_STRETCH) || plan->width[c] <= least)
            continue;
        unsigned can = plan->width[c] - least;
        unsigned give = can < excess ? can : excess;
        plan->width[c] -= give;
        excess -= give;
    }
    return excess;
}

/* The shown column to give up next: an empty one first, then the highest rank; -1 when all stay. */
static int plan_least(const struct plan *plan, const struct table *table)
{
    int least = -1;
    unsigned least_rank = 0;
    for (size_t c = 0; c < plan->n; c++) {
        unsigned rank = table->columns[c].rank;
        if (!plan->shown[c] || !rank)
            continue;
        if (plan->empty[c])
            rank += 256;
        if (rank > least_rank) {
            least_rank = rank;
            least = (int)c;
        }
    }
    return least;
}

static void plan_fit(struct plan *plan, const struct table *table, const struct term *term)
{
    if (!term->width)
        return;
    for (;;) {
        unsigned width = plan_width(plan);
        if (width <= term->width)
            return;
        /* Try on a copy: a column that goes may give the stretching one its room back. */
        struct plan tight = *plan;
        if (plan_shrink(&tight, table, width - term->width) == 0) {
            *plan = tight;
            return;
        }
        int least = plan_least(plan, table);
        if (least < 0) {
            *plan = tight;
            return;
        }
        plan->shown[least] = false;
    }
}

/* What there is room for beside the text; how many columns it took. */
static unsigned print_tail(const char *tail, unsigned room, const struct term *term,
                           struct buffer *out)
{
    unsigned need = term_columns(term, tail);
    if (room < TAIL_MIN && need > room)
        return 0;
    buffer_append_str(out, term_style(term, STYLE_DIM));
    term_append(term, out, tail, room);
    buffer_append_str(out, term_plain(term, STYLE_DIM));
    return need < room ? need : room;
}

static void print_cell(const struct plan *plan, const struct table *table, size_t c,
                       const char *text, const struct cell *cell, bool at_end,
                       const struct term *term, struct buffer *out)
{
    enum term_style style = cell ? (enum term_style)cell->style : STYLE_TITLE;
    const struct column *column = &table->columns[c];
    bool right = column->type != COLUMN_TEXT;
    unsigned width = plan->width[c];
    unsigned need = term_columns(term, text);
    unsigned pad = need < width ? width - need : 0;
    if (right)
        buffer_printf(out, "%*s", (int)pad, "");
    buffer_append_str(out, term_style(term, style));
    term_append(term, out, text, width);
    buffer_append_str(out, term_plain(term, style));
    if (cell && cell->tail && pad)
        pad -= print_tail(cell->tail, pad, term, out);
    if (!right && !at_end)
        buffer_printf(out, "%*s", (int)pad, "");
}

static void print_line(const struct plan *plan, const struct table *table, int row,
                       const struct term *term, struct buffer *out)
{
    size_t end = plan->n;
    while (end > 0 && !plan->shown[end - 1])
        end--;
    bool first = true;
    for (size_t c = 0; c < end; c++) {
        if (!plan->shown[c])
            continue;
        if (!first)
            buffer_printf(out, "%*s", GAP, "");
        first = false;
        char formatted[TEXT_CELL_MAX];
        const struct cell *cell = row < 0 ? NULL : table_cell(table, (size_t)row, c);
        const char *text =
            cell ? cell_text(table, &table->columns[c], cell, formatted) : table->columns[c].title;
        print_cell(plan, table, c, text, cell, c + 1 == end, term, out);
    }
    buffer_append_char(out, '\n');
}

/* Are all times of this day? A date that every row repeats takes the room of a figure. */
static bool all_today(const struct table *table)
{
    time_t now = (time_t)(clock_real_ns() / NS_PER_S);
    struct tm today, tm;
    if (!localtime_r(&now, &today))
        return false;
    for (size_t c = 0; table->columns[c].key; c++)
        for (size_t i = 0; table->columns[c].type == COLUMN_TIME && i < table->n_rows; i++) {
            const struct cell *cell = table_cell(table, i, c);
            time_t time = (time_t)(cell->number / NS_PER_S);
            if (cell->present && (!localtime_r(&time, &tm) || tm.tm_yday != today.tm_yday ||
                                  tm.tm_year != today.tm_year))
                return false;
        }
    return true;
}

int table_print(const struct table *table, const struct table_layout *layout,
                const struct term *term, struct buffer *out)
{
    if (table->error)
        return table->error;
    struct plan plan = {0};
    struct table shown = *table;
    shown.today = term->width && all_today(table);
    plan_measure(&plan, &shown, layout, term);
    plan_fit(&plan, &shown, term);
    if (layout->header)
        print_line(&plan, &shown, -1, term, out);
    for (size_t i = 0; i < shown.n_rows; i++)
        print_line(&plan, &shown, (int)(layout->order ? layout->order[i] : i), term, out);
    return out->error;
}

/* One picture. See top_print.h. */
#include "cli/top_print.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/table.h"
#include "cli/top.h"
#include "ledger/host.h"

/* ---- rows ---- */

static unsigned marks_of(const struct top_figures *f, int figure)
{
    return (f->estimate >> figure & 1 ? TABLE_MARK_ESTIMATE : 0u) |
           (f->partial >> figure & 1 ? TABLE_MARK_AT_LEAST : 0u);
}

static void set_figure(struct table *table, int column, const struct top_figures *f, int figure)
{
    if (!(f->known >> figure & 1))
        return;
    table_set_number(table, (size_t)column, (uint64_t)f->value[figure]);
    table_set_marks(table, (size_t)column, marks_of(f, figure));
}

/* A text, or a number that is no figure. */
static void set_fact(struct table *table, enum top_column column, const struct top_row *row)
{
    int64_t number;
    const char *text = top_column_text(column, row);
    if (column == TOP_COLUMN_STATE)
        table_set_text(table, column, (char[2]){row->state});
    else if (*text)
        table_set_text(table, column, text);
    else if (top_column_number(column, row, &number))
        table_set_number(table, column, (uint64_t)number);
}

static void set_share(struct table *table, const struct top_row *row,
                      const struct host_system *system)
{
    if (row->own.known >> TOP_RSS & 1 && system->total_bytes)
        table_set_number(
            table, TOP_COLUMN_SHARE,
            (uint64_t)(10000.0 * (double)row->own.value[TOP_RSS] / (double)system->total_bytes +
                       0.5));
}

/* Indented on screen only: programs have the parent's pid. */
static void set_program(struct table *table, const struct top_row *row, bool tree)
{
    char text[1024];
    unsigned depth = row->depth < 40 ? row->depth : 40;
    snprintf(text, sizeof(text), "%*s%s", tree ? (int)(2 * depth) : 0, "",
             top_column_text(TOP_COLUMN_PROGRAM, row));
    table_set_text(table, TOP_COLUMN_PROGRAM, text);
}

static void row_add(struct table *table, const struct top_row *row, const struct top_source *source,
                    bool tree)
{
    table_row(table);
    for (int c = 0; c < TOP_COLUMNS; c++) {
        int figure = top_column_figure((enum top_column)c);
        if (c == TOP_COLUMN_SHARE)
            set_share(table, row, host_system(source->host));
        else if (c == TOP_COLUMN_PROGRAM)
            set_program(table, row, tree);
        else if (c == TOP_COLUMN_TREE && (row->below || tree))
            set_figure(table, c, &row->sum, TOP_RSS);
        else if (c != TOP_COLUMN_TREE && figure >= 0)
            set_figure(table, c, &row->own, figure);
        else if (c != TOP_COLUMN_TREE)
            set_fact(table, (enum top_column)c, row);
    }
}

/* ---- the machine ---- */

static void print_machine(const struct host_system *s, const struct top_rows *rows,
                          const struct term *term, struct buffer *out)
{
    char text[3][UNITS_TEXT_MAX];
    if (!(s->valid & HOST_HAS_TOTAL))
        return;
    buffer_printf(out, "%sMemory%s %s", term_style(term, STYLE_TITLE),
                  term_plain(term, STYLE_TITLE),
                  units_format_bytes(text[0], s->total_bytes, UNITS_DECIMAL));
    if (s->valid & HOST_HAS_AVAILABLE)
        buffer_printf(out, ", available %s",
                      units_format_bytes(text[0], s->available_bytes, UNITS_DECIMAL));
    if (s->swap_total_bytes)
        buffer_printf(
            out, ", swap %s of %s",
            units_format_bytes(text[1], s->swap_total_bytes - s->swap_free_bytes, UNITS_DECIMAL),
            units_format_bytes(text[2], s->swap_total_bytes, UNITS_DECIMAL));
    buffer_printf(out, "; %s processes, %zu tracked\n",
                  units_format_count(text[0], rows->user_processes), rows->tracked);
    buffer_append_str(out, "  = ");
    const char *comma = "";
    for (int p = 0; p < HOST_PARTS; p++) {
        if (!s->parts[p])
            continue;
        char name[32];
        snprintf(name, sizeof(name), "%s", host_part_name((enum host_part)p));
        for (char *c = name; *c; c++)
            *c = *c == '_' ? ' ' : *c;
        buffer_printf(out, "%s%s %s", comma, name,
                      units_format_bytes(text[0], s->parts[p], UNITS_DECIMAL));
        comma = " + ";
    }
    buffer_append_str(out, "\n\n");
}

int top_print(struct top_source *source, const struct top_wish *wish, const struct top_style *style,
              const struct term *term, struct buffer *out, size_t *ret_rows)
{
    struct top_rows *rows = &source->rows;
    int r = top_arrange(rows, wish);
    if (r < 0)
        return r;
    MEMOIR_CLEANUP(table_release)
    struct table table;
    table_init(&table, top_fields);
    size_t n = style->limit && style->limit < rows->shown ? style->limit : rows->shown;
    for (size_t i = 0; i < n; i++)
        row_add(&table, &rows->rows[rows->order[i]], source, wish->tree);
    *ret_rows = rows->shown;
    struct table_layout layout = {.header = style->header};
    if (style->header)
        print_machine(host_system(source->host), rows, term, out);
    return table_print(&table, &layout, term, out);
}

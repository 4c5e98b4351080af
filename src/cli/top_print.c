/* One picture. See top_print.h. */
#include "cli/top_print.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/table.h"
#include "cli/top.h"
#include "ledger/host.h"

/* ---- rows ---- */

static void set_text(struct table *table, enum top_column column, bool known, const char *text)
{
    if (known && *text)
        table_set_text(table, column, text);
}

static void set_number(struct table *table, enum top_column column, bool known, uint64_t number)
{
    if (known)
        table_set_number(table, column, number);
}

static uint64_t since(uint64_t now_ns, uint64_t then_ns)
{
    return now_ns > then_ns ? now_ns - then_ns : 0;
}

static void set_process(struct table *table, const struct top_row *row)
{
    const struct host_process *p = row->process;
    const struct host_cgroup *cgroup = p->valid & HOST_HAS_CGROUP ? p->cgroup : NULL;
    set_number(table, TOP_COLUMN_OOM, p->valid & HOST_HAS_OOM, p->oom_score);
    set_number(table, TOP_COLUMN_RANK, p->valid & HOST_HAS_RANK, p->rank);
    set_number(table, TOP_COLUMN_HEADROOM, cgroup && cgroup->known && cgroup->limited,
               cgroup ? cgroup->headroom_bytes : 0);
    set_number(table, TOP_COLUMN_AGE, p->start_realtime_ns,
               since(clock_real_ns(), p->start_realtime_ns));
    set_text(table, TOP_COLUMN_JOB, p->valid & HOST_HAS_JOB, p->job);
    set_text(table, TOP_COLUMN_CONTAINER, p->valid & HOST_HAS_CONTAINER, p->container);
    set_text(table, TOP_COLUMN_POD, p->valid & HOST_HAS_POD, p->pod);
    set_text(table, TOP_COLUMN_CGROUP, cgroup, cgroup ? cgroup->path : "");
}

static void row_add(struct table *table, const struct top_row *row, const struct top_source *source,
                    bool tree)
{
    char text[1024], number[16];
    const struct host_system *system = host_system(source->host);
    const struct top_figures *own = &row->own;
    table_row(table);
    for (int c = 0; c < TOP_COLUMNS; c++) {
        int figure = top_column_figure((enum top_column)c);
        if (figure < 0 || c == TOP_COLUMN_SHARE || c == TOP_COLUMN_TREE ||
            !(own->known >> figure & 1))
            continue;
        table_set_number(table, (size_t)c, (uint64_t)own->value[figure]);
        table_set_marks(table, (size_t)c,
                        (own->estimate >> figure & 1 ? TABLE_MARK_ESTIMATE : 0u) |
                            (own->partial >> figure & 1 ? TABLE_MARK_AT_LEAST : 0u));
    }
    set_number(table, TOP_COLUMN_PID, true, (uint64_t)row->pid);
    set_number(table, TOP_COLUMN_PARENT, row->parent > 0, (uint64_t)row->parent);
    snprintf(number, sizeof(number), "%u", row->uid);
    set_text(table, TOP_COLUMN_USER, true, *row->user ? row->user : row->has_uid ? number : "");
    /* Indented on screen only: programs have the parent's pid. */
    snprintf(text, sizeof(text), "%*s%s", tree ? (int)(2 * (row->depth < 40 ? row->depth : 40)) : 0,
             "", row->name);
    set_text(table, TOP_COLUMN_PROGRAM, true, text);
    set_text(table, TOP_COLUMN_STATE, true, (char[2]){row->state});
    if (own->known >> TOP_RSS & 1 && system->total_bytes)
        table_set_number(
            table, TOP_COLUMN_SHARE,
            (uint64_t)(10000.0 * (double)own->value[TOP_RSS] / (double)system->total_bytes + 0.5));
    if (row->below || tree) {
        set_number(table, TOP_COLUMN_TREE, row->sum.known >> TOP_RSS & 1,
                   (uint64_t)row->sum.value[TOP_RSS]);
        table_set_marks(table, TOP_COLUMN_TREE,
                        row->sum.partial >> TOP_RSS & 1 ? TABLE_MARK_AT_LEAST : 0u);
    }
    set_number(table, TOP_COLUMN_PSS_AGE, row->pss_ns,
               since(host_time_ns(source->host), row->pss_ns));
    set_text(table, TOP_COLUMN_TRACKED, row->tracked != HOST_TRACKED_UNKNOWN,
             host_tracked_name(row->tracked));
    set_text(table, TOP_COLUMN_COMMAND, true, row->command);
    set_process(table, row);
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

/* One picture. See top_print.h. */
#include "cli/top_print.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
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

static void json_pressure(struct json *json, const char *key, const struct host_pressure *p)
{
    json_key(json, key);
    json_object_begin(json);
    json_field_double(json, "avg10_percent", (double)p->avg10 / 100);
    json_field_double(json, "avg60_percent", (double)p->avg60 / 100);
    json_field_double(json, "avg300_percent", (double)p->avg300 / 100);
    json_field_u64(json, "total_us", p->total_us);
    json_object_end(json);
}

static void json_system(struct json *json, const struct host_system *s)
{
    json_key(json, "machine");
    json_object_begin(json);
    if (s->valid & HOST_HAS_TOTAL) {
        json_field_u64(json, "total_bytes", s->total_bytes);
        json_field_u64(json, "free_bytes", s->free_bytes);
        json_field_u64(json, "active_bytes", s->active_bytes);
        json_field_u64(json, "inactive_bytes", s->inactive_bytes);
        json_field_u64(json, "dirty_bytes", s->dirty_bytes);
        json_field_u64(json, "swap_total_bytes", s->swap_total_bytes);
        json_field_u64(json, "swap_free_bytes", s->swap_free_bytes);
        json_key(json, "parts_bytes");
        json_object_begin(json);
        for (int p = 0; p < HOST_PARTS; p++)
            json_field_u64(json, host_part_name((enum host_part)p), s->parts[p]);
        json_object_end(json);
    }
    if (s->valid & HOST_HAS_AVAILABLE) {
        json_field_u64(json, "available_bytes", s->available_bytes);
        json_field_u64(json, "used_bytes", s->used_bytes);
    } else {
        json_field_null(json, "available_bytes");
        json_field_null(json, "used_bytes");
    }
    if (s->valid & HOST_HAS_PSI) {
        json_pressure(json, "pressure_some", &s->some);
        json_pressure(json, "pressure_full", &s->full);
    } else {
        json_field_null(json, "pressure_some");
        json_field_null(json, "pressure_full");
    }
    json_object_end(json);
}

static int print_json(const struct top_source *source, const struct table *table,
                      struct buffer *out)
{
    struct json json;
    if (table->error)
        return table->error;
    command_json_begin(&json, out, "memoir.top/1");
    json_system(&json, host_system(source->host));
    json_key(&json, "processes");
    json_array_begin(&json);
    for (size_t i = 0; i < table->n_rows; i++) {
        json_object_begin(&json);
        table_json_row(table, i, 0, &json);
        json_object_end(&json);
    }
    json_array_end(&json);
    json_object_end(&json);
    int r = json_finish(&json);
    buffer_append_char(out, '\n');
    return r < 0 ? r : out->error;
}

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
    bool text = style->format == TOP_TEXT;
    size_t n = style->limit && style->limit < rows->shown ? style->limit : rows->shown;
    for (size_t i = 0; i < n; i++)
        row_add(&table, &rows->rows[rows->order[i]], source, text && wish->tree);
    *ret_rows = rows->shown;
    struct table_layout layout = {.header = style->header};
    if (style->format == TOP_JSON)
        return print_json(source, &table, out);
    if (style->format == TOP_CSV)
        return table_print_csv(&table, &layout, out);
    if (style->header)
        print_machine(host_system(source->host), rows, term, out);
    return table_print(&table, &layout, term, out);
}

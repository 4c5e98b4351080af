/* The pages of the full screen, as text. See watch.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "cli/absent.h"
#include "cli/bar.h"
#include "cli/buffers.h"
#include "cli/chart.h"
#include "cli/devices.h"
#include "cli/ps.h"
#include "cli/watch.h"
#include "cli/world.h"
#include "ledger/follow.h"
#include "ledger/ledger.h"

enum {
    BUFFERS_SHOWN = 500,
    CHART_ROWS_MIN = 3,
    CHART_ROWS_MAX = 8,
    AXIS = 9, /* columns: "12.9 GB |" */
    COLUMNS_MAX = 1000,
};

const unsigned watch_zooms[] = {1, 2, 5, 10, 30, 0};
const char *const watch_sorts[] = {"device", "rss", "heap",    "blocks",
                                   "age",    "pid", "program", NULL};

static void nothing_yet(struct watch *w)
{
    if (w->options->device) {
        buffer_append_str(&w->text, "  No process has told of device ");
        term_append(&w->term, &w->text, w->options->device, 40);
        buffer_append_str(&w->text, ".\n");
        return;
    }
    term_wrap(&w->text,
              "No process has told of a device yet. Programs that report their memory link with "
              "-lmemoir. To see what it looks like, type in another terminal:\n",
              2, w->term.width);
    buffer_append_str(&w->text, "\n    memoir demo");
    absent_dir(w->options->dir, &w->term, &w->text);
    buffer_append_char(&w->text, '\n');
    if (geteuid() != 0)
        buffer_append_str(&w->text, "\n  (Only root sees books of other users.)\n");
}

/* ---- 1 overview ---- */

int watch_page_overview(struct watch *w)
{
    MEMOIR_CLEANUP(devices_view_release)
    struct devices_view view = {0};
    int r = devices_view_take(follow_ledger(w->follow), w->options->device, &view);
    if (r < 0)
        return r;
    if (view.n == 0)
        nothing_yet(w);
    devices_print(&view, &(struct devices_style){.owners = true}, &w->term, &w->text);
    if (view.gone) {
        char bytes[UNITS_TEXT_MAX];
        buffer_printf(&w->text, "\n%s%zu gone, %s no longer counted%s\n",
                      term_style(&w->term, STYLE_DIM), view.gone,
                      units_format_bytes(bytes, view.gone_bytes, UNITS_DECIMAL),
                      term_plain(&w->term, STYLE_DIM));
    }
    return w->text.error;
}

/* ---- 2 charts ---- */

/* Where no size is known, the chart is as high as its highest point. */
static double top_of(const struct series *s, const double *points, size_t n)
{
    double most = (double)s->capacity;
    for (size_t i = 0; s->capacity == 0 && i < n; i++)
        most = points[i] > most ? points[i] : most;
    return most > 0 ? most : 1;
}

static void chart_title(struct watch *w, const struct series *s)
{
    char used[UNITS_TEXT_MAX], capacity[UNITS_TEXT_MAX], percent[BAR_PERCENT_MAX];
    bool there = s->last == w->samples.looks;
    enum term_style style = bar_style(s->used, s->capacity);
    buffer_printf(&w->text, "%sDevice ", term_style(&w->term, STYLE_TITLE));
    term_append(&w->term, &w->text, s->key, 60);
    buffer_append_str(&w->text, term_plain(&w->term, STYLE_TITLE));
    if (!there) {
        buffer_append_str(&w->text, "  gone\n");
        return;
    }
    buffer_printf(&w->text, "  %s / %s  %s%s%s\n", units_format_bytes(used, s->used, UNITS_DECIMAL),
                  s->capacity ? units_format_bytes(capacity, s->capacity, UNITS_DECIMAL) : "?",
                  term_style(&w->term, style), bar_percent(percent, s->used, s->capacity),
                  term_plain(&w->term, style));
}

static void chart(struct watch *w, const struct series *s, unsigned columns, unsigned rows)
{
    double points[COLUMNS_MAX * 2];
    size_t n = (size_t)columns * chart_density(&w->term);
    samples_points(&w->samples, s, watch_zooms[w->zoom], points, n);
    double top = top_of(s, points, n);
    for (size_t i = 0; i < n; i++)
        points[i] = points[i] < 0 ? -1 : points[i] / top;
    enum term_style style = s->capacity ? bar_style(s->used, s->capacity) : STYLE_GOOD;
    const char *line = w->term.utf8 ? "\xe2\x94\x82" : "|";
    for (unsigned row = 0; row < rows; row++) {
        char label[UNITS_TEXT_MAX] = "";
        if (row == 0)
            units_format_bytes(label, (uint64_t)top, UNITS_DECIMAL);
        else if (row == rows - 1)
            snprintf(label, sizeof(label), "0");
        buffer_printf(&w->text, "%*s %s%s", AXIS - 1, label, line, term_style(&w->term, style));
        chart_append_row(&w->term, &w->text, points, columns, rows, row);
        buffer_printf(&w->text, "%s\n", term_plain(&w->term, style));
    }
}

/* "-2m20s                 now" */
static void time_axis(struct watch *w, unsigned columns)
{
    char text[UNITS_TEXT_MAX];
    uint64_t points = (uint64_t)columns * chart_density(&w->term) * watch_zooms[w->zoom];
    units_format_duration(text, points * w->options->interval_ns);
    int used = (int)strlen(text) + 1;
    buffer_printf(&w->text, "%s%*s-%s%*s%s\n", term_style(&w->term, STYLE_DIM), AXIS + 1, "", text,
                  (int)columns > used ? (int)columns - used : 4, "now",
                  term_plain(&w->term, STYLE_DIM));
}

int watch_page_charts(struct watch *w)
{
    unsigned columns = w->term.width > AXIS + 3 ? w->term.width - AXIS - 2 : 1;
    columns = columns < COLUMNS_MAX ? columns : COLUMNS_MAX;
    size_t n = w->samples.n;
    if (n == 0) {
        nothing_yet(w);
        return w->text.error;
    }
    /* As high as the screen allows for all of them; more than that scrolls. */
    unsigned room = w->term.height > 4 ? w->term.height - 4 : 1;
    unsigned rows = room / (unsigned)n > 1 ? room / (unsigned)n - 1 : 0;
    rows = rows < CHART_ROWS_MIN ? CHART_ROWS_MIN : rows > CHART_ROWS_MAX ? CHART_ROWS_MAX : rows;
    for (size_t i = 0; i < n; i++) {
        chart_title(w, &w->samples.series[i]);
        chart(w, &w->samples.series[i], columns, rows);
    }
    time_axis(w, columns);
    return w->text.error;
}

/* ---- 3 processes ---- */

/* The order of rows that `watch.sort` asks for; for free(). */
static int order_of(const struct watch *w, const struct table *table, size_t **ret_order)
{
    struct table_sort sort;
    int r = table_sort_parse(table->columns, watch_sorts[w->sort], &sort);
    if (r < 0)
        return r;
    sort.descending ^= w->reverse;
    return table_sort(table, &sort, ret_order);
}

/* Which row is chosen: the same process as before, wherever it is now. */
static void choose(struct watch *w, const struct table *table, const size_t *order)
{
    int column = table_column_find(table->columns, "pid");
    w->n_rows = 0;
    pid_t *pids = reallocarray(w->pids, table->n_rows + 1, sizeof(*pids));
    if (!pids)
        return;
    w->pids = pids;
    size_t at = SIZE_MAX;
    for (size_t i = 0; i < table->n_rows; i++) {
        const struct cell *cell = table_cell(table, order[i], (size_t)column);
        pids[i] = cell->present ? (pid_t)cell->number : 0;
        if (pids[i] == w->chosen && at == SIZE_MAX)
            at = i;
    }
    w->n_rows = table->n_rows;
    if (at == SIZE_MAX) /* it is gone: take the row that is there now */
        at = w->chosen_at < w->n_rows ? w->chosen_at : w->n_rows ? w->n_rows - 1 : 0;
    w->chosen_at = at;
    if (w->n_rows)
        w->chosen = pids[at];
}

int watch_page_processes(struct watch *w)
{
    MEMOIR_CLEANUP(query_sheet_freep)
    struct query_sheet *sheet = NULL;
    int r = ps_sheet(follow_ledger(w->follow), 0, false, &sheet);
    if (r < 0)
        return r;
    const struct table *table = &sheet->table;
    if (table->n_rows == 0) {
        w->n_rows = 0;
        nothing_yet(w);
        return w->text.error;
    }
    MEMOIR_CLEANUP(freep)
    size_t *order = NULL;
    r = order_of(w, table, &order);
    if (r < 0)
        return r;
    choose(w, table, order);
    w->fixed = 1;
    struct table_layout layout = {.header = true, .order = order};
    return table_print(table, &layout, &w->term, &w->text);
}

/* ---- the chosen process's buffers ---- */

int watch_page_buffers(struct watch *w)
{
    struct ledger *ledger = follow_ledger(w->follow);
    const struct ledger_process *p = ledger_process_find(ledger, w->chosen);
    char where[64];
    snprintf(where, sizeof(where), "pid=%d and state!=none", (int)w->chosen);
    struct query_spec spec = {.table = "buffers",
                              .where = where,
                              .show = buffers_rows,
                              .sort = buffers_sort,
                              .limit = BUFFERS_SHOWN,
                              .others = true};
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    struct query_result *result = NULL;
    struct buffers_sum sum;
    int r = world_ask_ledger(ledger, w->symbols, &spec, &query, &result);
    if (r < 0)
        return r;
    buffers_sum(result, &sum);
    char count[UNITS_TEXT_MAX], bytes[UNITS_TEXT_MAX];
    buffer_append_str(&w->text, term_style(&w->term, STYLE_TITLE));
    term_append(&w->term, &w->text, p ? p->name : "process", 40);
    buffer_printf(&w->text, " (PID %d)%s: %s block%s, %s%s\n", (int)w->chosen,
                  term_plain(&w->term, STYLE_TITLE), units_format_count(count, sum.blocks),
                  sum.blocks == 1 ? "" : "s", units_format_bytes(bytes, sum.bytes, UNITS_DECIMAL),
                  !p                         ? ", it is gone"
                  : sum.shown < sum.blocks   ? "; the largest:"
                  : !ledger_process_holds(p) ? "; it has ended"
                                             : "");
    w->fixed = 2;
    struct query_style style = buffers_layout(&(struct query_style){.header = true});
    r = query_print(result, query, &style, &w->term, &w->text);
    query_result_free(result);
    return r;
}

/* ---- help ---- */

int watch_page_help(struct watch *w)
{
    static const char *const lines[][2] = {
        {"1", "overview: how full each memory is, and who holds it"},
        {"2", "charts: the last minutes, kept while this runs"},
        {"3", "processes: who holds how much"},
        {"Tab, left, right", "the next page, the one before"},
        {"up, down, PgUp, PgDn", "scroll; on page 3 choose a process"},
        {"Enter", "on page 3: the process's buffers; Esc leads back"},
        {"s, r", "on page 3: sort by another column, turn the order round"},
        {"+, -", "on page 2: less or more time in a chart"},
        {"?", "this help, and back"},
        {"q, Ctrl-C", "end"},
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        buffer_printf(&w->text, "  %s%-20s%s  %s\n", term_style(&w->term, STYLE_TITLE), lines[i][0],
                      term_plain(&w->term, STYLE_TITLE), lines[i][1]);
    buffer_append_char(&w->text, '\n');
    term_wrap(
        &w->text,
        "Bars are yellow from 75 and red from 90 percent on. L1 total is what buffers, "
        "circular buffers and kernels take of the on-chip memory together. Only processes that "
        "live count; the figures are read from their books, no daemon is needed.",
        2, w->term.width < 90 ? w->term.width : 90);
    return w->text.error;
}

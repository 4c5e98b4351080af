/* Charts of the process page. See top.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "cli/chart.h"
#include "cli/ps.h"
#include "cli/top.h"
#include "history/read.h"
#include "ledger/host.h"

#define KEPT_NS (10 * NS_PER_S) /* reading history costs milliseconds */

enum {
    ROWS = 6,
    AXIS = 10, /* columns: "12.9 GB |" */
    COLUMNS_MAX = 500,
    HISTORY_S = 3600,
    HISTORY_POINTS = 360, /* of 10 seconds each */
    START_SLACK_S = 2,    /* the daemon and we round the start of a process differently */
};

static unsigned columns_of(const struct top *t)
{
    unsigned columns = t->term.width > AXIS + 4 ? t->term.width - AXIS - 2 : 1;
    return columns < COLUMNS_MAX ? columns : COLUMNS_MAX;
}

/* `points` in bytes, below 0 where there is none, chart_density() for each column; they become shares. */
static void append(struct top *t, const char *title, double *points, unsigned columns,
                   uint64_t span_ns)
{
    unsigned n = columns * chart_density(&t->term);
    double top = 1;
    for (unsigned i = 0; i < n; i++)
        top = points[i] > top ? points[i] : top;
    for (unsigned i = 0; i < n; i++)
        points[i] = points[i] < 0 ? -1 : points[i] / top;
    buffer_printf(&t->text, "\n%s%s%s\n", term_style(&t->term, STYLE_TITLE), title,
                  term_plain(&t->term, STYLE_TITLE));
    for (unsigned r = 0; r < ROWS; r++) {
        char label[UNITS_TEXT_MAX] = "";
        if (r == 0)
            units_format_bytes(label, (uint64_t)top, UNITS_DECIMAL);
        else if (r == ROWS - 1)
            snprintf(label, sizeof(label), "0");
        buffer_printf(&t->text, "%*s %s%s", AXIS - 1, label, t->term.utf8 ? "│" : "|",
                      term_style(&t->term, STYLE_CYAN));
        chart_append_row(&t->term, &t->text, points, columns, ROWS, r);
        buffer_printf(&t->text, "%s\n", term_plain(&t->term, STYLE_CYAN));
    }
    char span[UNITS_TEXT_MAX];
    units_format_duration(span, span_ns);
    int used = (int)strlen(span) + 1;
    buffer_printf(&t->text, "%s%*s-%s%*s%s\n", term_style(&t->term, STYLE_DIM), AXIS + 1, "", span,
                  (int)columns > used ? (int)columns - used : 4, "now",
                  term_plain(&t->term, STYLE_DIM));
}

void top_chart_recent(struct top *t, const struct top_row *row)
{
    double points[2 * COLUMNS_MAX];
    const struct top_trace *trace = row->trace;
    uint64_t looks = t->source.rows.looks;
    if (!trace || trace->last == trace->first)
        return;
    unsigned density = chart_density(&t->term), columns = columns_of(t);
    columns = columns < TOP_TREND / density ? columns : TOP_TREND / density;
    unsigned n = columns * density;
    for (unsigned i = 0; i < n; i++) {
        uint64_t back = n - 1 - i, look = looks - back;
        points[i] = -1;
        if (looks <= back || look < trace->first || look > trace->last)
            continue;
        uint32_t kib = trace->kib[look % TOP_TREND];
        if (kib != UINT32_MAX)
            points[i] = (double)kib * 1024;
    }
    append(t, "Resident memory since this view was opened", points, columns,
           (uint64_t)n * t->interval_ns);
}

/* ---- what memoird noted ---- */

/* The process's own line: a pid may have been another's within the hour. */
static const struct read_line *line_of(const struct read_result *result, const struct top_row *row)
{
    uint64_t began_s = row->start_ns / NS_PER_S;
    for (size_t i = 0; i < result->n_lines; i++) {
        const struct read_line *line = &result->lines[i];
        uint64_t apart =
            line->began_s > began_s ? line->began_s - began_s : began_s - line->began_s;
        if (line->any && line->pid == row->pid && line->began_s && apart <= START_SLACK_S)
            return line;
    }
    return NULL;
}

static int take(struct top_history *history, const char *state, const struct top_row *row)
{
    char path[PS_STATE_PATH_MAX + 4096];
    if (snprintf(path, sizeof(path), "%s/%s", ps_state_find(state), HISTORY_FILE) >=
        (int)sizeof(path))
        return -ENAMETOOLONG;
    uint64_t now_s = clock_real_ns() / NS_PER_S;
    struct read_query query = {
        .since_s = now_s - HISTORY_S,
        .until_s = now_s + 1, /* this second is part of it */
        .step_s = HISTORY_S / HISTORY_POINTS,
        .by = READ_BY_PROCESS,
        .pid = row->pid,
        .by_space = true, /* 0: the resident size */
    };
    MEMOIR_CLEANUP(read_release)
    struct read_result result = {0};
    int r = read_history(path, &query, &result);
    if (r < 0)
        return r;
    const struct read_line *line = line_of(&result, row);
    if (!line || !result.n_steps)
        return -ENODATA;
    double *points = calloc(result.n_steps, sizeof(*points));
    if (!points)
        return -ENOMEM;
    for (size_t i = 0; i < result.n_steps; i++)
        points[i] = line->points[i].present ? (double)line->points[i].max : -1;
    free(history->points);
    history->points = points;
    history->n = (unsigned)result.n_steps;
    return 0;
}

void top_chart_history(struct top *t, const struct top_row *row)
{
    struct top_history *history = t->history;
    uint64_t now_ns = clock_monotonic_ns();
    bool same = history->pid == row->pid && history->start_ticks == row->start_ticks;
    if (!same || !history->taken_ns || now_ns - history->taken_ns >= KEPT_NS) {
        history->pid = row->pid;
        history->start_ticks = row->start_ticks;
        history->n = 0;
        take(history, t->options->state, row); /* without a daemon there is none */
        history->taken_ns = now_ns;
    }
    if (!history->n)
        return;
    /* Each point of the chart is the most of what falls into it. */
    double points[2 * COLUMNS_MAX];
    unsigned columns = columns_of(t), n = columns * chart_density(&t->term);
    for (unsigned i = 0; i < n; i++) {
        size_t from = (size_t)i * history->n / n, to = (size_t)(i + 1) * history->n / n;
        points[i] = -1;
        for (size_t k = from; k < (to > from ? to : from + 1); k++)
            points[i] = history->points[k] > points[i] ? history->points[k] : points[i];
    }
    append(t, "Resident memory in the last hour, as memoird noted it", points, columns,
           HISTORY_S * NS_PER_S);
}

/* Which series a query asks for, and into which line each goes. */
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "history/read_internal.h"
#include "history/store_internal.h"
#include <memoir/memoir.h>

/* Processes are marked as seen once a window, so the mark may be that much behind. */
#define SEEN_SLACK_S (3 * history_window_s(0))

static const char select_sql[] =
    "SELECT s.id, s.metric, s.space, s.process, s.device, p.pid, p.uid, p.program, p.node, p.began, "
    "d.kind, d.ordinal, d.name, d.uid, d.bus, d.node, p.boot, p.start FROM series s "
    "LEFT JOIN process p ON p.id = s.process LEFT JOIN device d ON d.id = s.device "
    "WHERE (s.process = 0 OR (p.last >= ?1 AND p.first < ?2)) AND s.space BETWEEN 0 AND ?3 ORDER BY s.id";

enum {
    COLUMN_ID,
    COLUMN_METRIC,
    COLUMN_SPACE,
    COLUMN_PROCESS,
    COLUMN_DEVICE,
    COLUMN_PID,
    COLUMN_UID,
    COLUMN_PROGRAM,
    COLUMN_NODE,
    COLUMN_BEGAN,
    COLUMN_KIND,
    COLUMN_ORDINAL,
    COLUMN_NAME,
    COLUMN_DEVICE_UID,
    COLUMN_BUS,
    COLUMN_DEVICE_NODE,
    COLUMN_BOOT,
    COLUMN_START,
};

/* A series with what its line will say; equal keys are one line. */
struct candidate {
    struct read_series series;
    int64_t process, device;
    /* Which process it was: the file has another row for it once it keeps a book, and after exec. */
    int64_t boot, start, pid;
    struct read_line line;
};

struct candidates {
    struct candidate *list;
    size_t n, cap;
};

static void candidates_release(struct candidates *c)
{
    free(c->list);
}

static const char *text(sqlite3_stmt *s, int column)
{
    const char *value = (const char *)sqlite3_column_text(s, column);
    return value ? value : "";
}

static void copy(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from);
}

static bool asks_for_processes(const struct read_query *q)
{
    return q->pid || q->program || q->by_uid || q->by != READ_BY_DEVICE;
}

static bool device_matches(const struct read_query *q, sqlite3_stmt *s)
{
    bool host = sqlite3_column_int64(s, COLUMN_DEVICE) == 0;
    if (q->device_id) {
        char id[LEDGER_DEVICE_ID_MAX];
        const char *node = text(s, COLUMN_DEVICE_NODE);
        ledger_device_id(id, text(s, COLUMN_DEVICE_UID), text(s, COLUMN_BUS),
                         sqlite3_column_int(s, COLUMN_ORDINAL), text(s, COLUMN_NAME),
                         *node     ? node
                         : q->node ? q->node
                                   : "");
        if (host || strcmp(id, q->device_id) != 0)
            return false;
    }
    if (!q->device)
        return true;
    if (host || strcasecmp(q->device, "host") == 0)
        return host && strcasecmp(q->device, "host") == 0;
    char ordinal[16];
    snprintf(ordinal, sizeof(ordinal), "%d", sqlite3_column_int(s, COLUMN_ORDINAL));
    return strcmp(q->device, ordinal) == 0 || strcmp(q->device, text(s, COLUMN_DEVICE_UID)) == 0 ||
           strcasecmp(q->device, text(s, COLUMN_BUS)) == 0 ||
           fnmatch(q->device, text(s, COLUMN_NAME), 0) == 0;
}

/* Sums over all processes have series of their own. */
static bool matches(const struct read_query *q, sqlite3_stmt *s)
{
    int64_t process = sqlite3_column_int64(s, COLUMN_PROCESS);
    int metric = sqlite3_column_int(s, COLUMN_METRIC);
    uint32_t space = (uint32_t)sqlite3_column_int(s, COLUMN_SPACE);
    if (q->system != (metric == HISTORY_SYSTEM || metric == HISTORY_PRESSURE))
        return false;
    if (q->system)
        return process == 0;
    if (asks_for_processes(q) != (process != 0))
        return false;
    if (metric == HISTORY_CAPACITY ? q->blocks : q->blocks != (metric == HISTORY_BLOCKS))
        return false;
    if (q->by_space && q->pss != (metric == HISTORY_PSS))
        return false;
    if (q->by_space && (space != q->space || (space == 0 && metric == HISTORY_BLOCKS)))
        return false;
    return (!q->pid || sqlite3_column_int64(s, COLUMN_PID) == q->pid) &&
           (!q->by_uid || (uint32_t)sqlite3_column_int64(s, COLUMN_UID) == q->uid) &&
           (!q->program || fnmatch(q->program, text(s, COLUMN_PROGRAM), 0) == 0) &&
           device_matches(q, s);
}

static void candidate_fill(struct candidate *c, const struct read_query *q, sqlite3_stmt *s)
{
    struct read_line *line = &c->line;
    c->series.id = (uint64_t)sqlite3_column_int64(s, COLUMN_ID);
    c->series.metric = (uint32_t)sqlite3_column_int(s, COLUMN_METRIC);
    c->process = sqlite3_column_int64(s, COLUMN_PROCESS);
    c->device = sqlite3_column_int64(s, COLUMN_DEVICE);
    c->boot = sqlite3_column_int64(s, COLUMN_BOOT);
    c->start = sqlite3_column_int64(s, COLUMN_START);
    c->pid = sqlite3_column_int64(s, COLUMN_PID);
    line->space = (uint32_t)sqlite3_column_int(s, COLUMN_SPACE);
    line->what = c->series.metric == HISTORY_PSS        ? READ_PSS
                 : c->series.metric == HISTORY_SYSTEM   ? READ_SYSTEM
                 : c->series.metric == HISTORY_PRESSURE ? READ_PRESSURE
                                                        : READ_ACCOUNT;
    line->on_device = c->device != 0;
    if (line->on_device) {
        line->kind = (uint32_t)sqlite3_column_int(s, COLUMN_KIND);
        line->ordinal = sqlite3_column_int(s, COLUMN_ORDINAL);
        copy(line->device, sizeof(line->device), text(s, COLUMN_NAME));
        copy(line->device_uid, sizeof(line->device_uid), text(s, COLUMN_DEVICE_UID));
        copy(line->bus, sizeof(line->bus), text(s, COLUMN_BUS));
        copy(line->node, sizeof(line->node), text(s, COLUMN_DEVICE_NODE));
        copy(line->device_node, sizeof(line->device_node), text(s, COLUMN_DEVICE_NODE));
    }
    if (q->by == READ_BY_PROCESS) {
        line->pid = sqlite3_column_int64(s, COLUMN_PID);
        line->began_s = (uint64_t)sqlite3_column_int64(s, COLUMN_BEGAN);
        copy(line->node, sizeof(line->node), text(s, COLUMN_NODE));
    }
    if (q->by == READ_BY_PROCESS || q->by == READ_BY_USER)
        line->uid = (uint32_t)sqlite3_column_int64(s, COLUMN_UID);
    if (q->by == READ_BY_PROCESS || q->by == READ_BY_PROGRAM)
        copy(line->program, sizeof(line->program), text(s, COLUMN_PROGRAM));
}

static int candidates_load(struct reading *reading, struct candidates *all)
{
    const struct read_query *q = reading->query;
    uint64_t since_s = q->since_s, step_s = q->step_s;
    uint64_t slack_s = SEEN_SLACK_S + (step_s > HISTORY_STEP_MAX_S ? step_s : HISTORY_STEP_MAX_S);
    sqlite3_stmt *s = NULL;
    int code = sqlite3_prepare_v2(reading->db, select_sql, -1, &s, NULL);
    sqlite3_bind_int64(s, 1, since_s > slack_s ? (int64_t)(since_s - slack_s) : 0);
    sqlite3_bind_int64(s, 2, (int64_t)(q->until_s + slack_s));
    sqlite3_bind_int64(s, 3, MEMOIR_SPACE_MAX);
    while (code == SQLITE_OK && (code = sqlite3_step(s)) == SQLITE_ROW) {
        code = SQLITE_OK;
        if (!matches(q, s))
            continue;
        if (all->n == all->cap) {
            size_t cap = all->cap ? all->cap * 2 : 256;
            struct candidate *grown = reallocarray(all->list, cap, sizeof(*grown));
            if (!grown) {
                code = SQLITE_NOMEM;
                break;
            }
            all->list = grown;
            all->cap = cap;
        }
        struct candidate *c = &all->list[all->n++];
        memset(c, 0, sizeof(*c));
        candidate_fill(c, q, s);
    }
    int r = store_errno(reading->db, code);
    sqlite3_finalize(s);
    return r;
}

#define COMPARE(a, b)                  \
    do {                               \
        if ((a) != (b))                \
            return (a) < (b) ? -1 : 1; \
    } while (0)

static int compare_processes(const struct candidate *a, const struct candidate *b)
{
    COMPARE(a->boot, b->boot);
    COMPARE(a->start, b->start);
    COMPARE(a->pid, b->pid);
    return strcmp(a->line.node, b->line.node);
}

/* The order of lines: devices by number before the host, spaces, pressure, then who. */
static int compare_lines(const struct candidate *a, const struct candidate *b, enum read_by by)
{
    const struct read_line *x = &a->line, *y = &b->line;
    COMPARE(y->on_device, x->on_device);
    COMPARE(x->ordinal, y->ordinal);
    COMPARE(a->device, b->device);
    COMPARE(x->what == READ_PRESSURE, y->what == READ_PRESSURE);
    COMPARE(x->space, y->space);
    COMPARE(x->what, y->what);
    COMPARE(x->pid, y->pid);
    if (by == READ_BY_PROCESS && compare_processes(a, b))
        return compare_processes(a, b);
    if (by == READ_BY_USER)
        COMPARE(x->uid, y->uid);
    return by == READ_BY_PROGRAM ? strcmp(x->program, y->program) : 0;
}

static int compare_candidates(const void *a, const void *b, void *by)
{
    int order = compare_lines(a, b, *(const enum read_by *)by);
    order = order ? order : compare_processes(a, b);
    const struct candidate *x = a, *y = b;
    return order ? order : (x->process > y->process) - (x->process < y->process);
}

static int compare_series(const void *a, const void *b)
{
    const struct read_series *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

int read_select(struct reading *reading)
{
    MEMOIR_CLEANUP(candidates_release)
    struct candidates all = {0};
    enum read_by by = reading->query->by;
    int r = candidates_load(reading, &all);
    if (r < 0 || all.n == 0)
        return r;
    if (all.n > UINT32_MAX)
        return -E2BIG;
    qsort_r(all.list, all.n, sizeof(*all.list), compare_candidates, &by);
    reading->series = calloc(all.n, sizeof(*reading->series));
    reading->result.lines = calloc(all.n, sizeof(*reading->result.lines));
    if (!reading->series || !reading->result.lines)
        return -ENOMEM;
    size_t lines = 0;
    for (size_t i = 0; i < all.n; i++) {
        const struct candidate *c = &all.list[i], *before = i ? c - 1 : NULL;
        if (!before || compare_lines(before, c, by) != 0) {
            reading->result.lines[lines++] = c->line;
            before = NULL;
        }
        struct read_line *line = &reading->result.lines[lines - 1];
        line->processes += c->process != 0 && (!before || compare_processes(before, c) != 0);
        line->boot = c->boot;
        line->start_ticks = c->start;
        if (by == READ_BY_PROCESS) /* the latest name of it */
            memcpy(line->program, c->line.program, sizeof(line->program));
        reading->series[i] = c->series;
        reading->series[i].line = (uint32_t)(lines - 1);
    }
    reading->n_series = all.n;
    reading->result.n_lines = lines;
    qsort(reading->series, reading->n_series, sizeof(*reading->series), compare_series);
    return 0;
}

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

/* Processes are marked as seen once a window, so the mark may be that much behind. The ends of the answer are moved
 * to whole steps of it, which is less than HISTORY_STEP_MAX_S longer than the step asked for. */
#define SEEN_SLACK_S (3 * history_window_s(0))

static const char select_sql[] =
    "SELECT s.id, s.metric, s.space, s.process, s.device, p.pid, p.uid, p.program, p.node, p.began, "
    "d.kind, d.ordinal, d.name, d.uid, d.bus, d.node, p.boot, p.start FROM series s "
    "LEFT JOIN process p ON p.id = s.process LEFT JOIN device d ON d.id = s.device "
    "WHERE (s.process = 0 OR (p.last + ?3 >= ?1 AND p.first < ?2 + ?3)) AND s.space BETWEEN 0 AND ?4";

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

/* A series with what its line will say. */
struct candidate {
    struct read_series series;
    int64_t process, device;
    /* Which process it was: the file has another row for it once it keeps a book, and after exec. */
    int64_t boot, start, pid;
    char node[64];
    struct read_line line;
};

enum { CANDIDATES_FIRST = 256 };

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

static bool device_is(const struct read_query *q, sqlite3_stmt *s)
{
    char id[LEDGER_DEVICE_ID_MAX];
    const char *node = text(s, COLUMN_DEVICE_NODE), *here = q->node ? q->node : "";
    ledger_device_id(id, text(s, COLUMN_DEVICE_UID), text(s, COLUMN_BUS),
                     sqlite3_column_int(s, COLUMN_ORDINAL), text(s, COLUMN_NAME),
                     *node ? node : here);
    return strcmp(id, q->device_id) == 0;
}

static bool device_called(const struct read_query *q, sqlite3_stmt *s)
{
    char ordinal[16];
    snprintf(ordinal, sizeof(ordinal), "%d", sqlite3_column_int(s, COLUMN_ORDINAL));
    return strcmp(q->device, ordinal) == 0 || strcmp(q->device, text(s, COLUMN_DEVICE_UID)) == 0 ||
           strcasecmp(q->device, text(s, COLUMN_BUS)) == 0 ||
           fnmatch(q->device, text(s, COLUMN_NAME), 0) == 0;
}

static bool device_matches(const struct read_query *q, sqlite3_stmt *s)
{
    bool host = q->device && strcasecmp(q->device, "host") == 0;
    if (sqlite3_column_int64(s, COLUMN_DEVICE) == 0)
        return !q->device_id && (!q->device || host);
    return !host && (!q->device_id || device_is(q, s)) && (!q->device || device_called(q, s));
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
        return true;
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

static void device_fill(struct read_line *line, sqlite3_stmt *s)
{
    line->on_device = true;
    line->kind = (uint32_t)sqlite3_column_int(s, COLUMN_KIND);
    line->ordinal = sqlite3_column_int(s, COLUMN_ORDINAL);
    copy(line->device, sizeof(line->device), text(s, COLUMN_NAME));
    copy(line->device_uid, sizeof(line->device_uid), text(s, COLUMN_DEVICE_UID));
    copy(line->bus, sizeof(line->bus), text(s, COLUMN_BUS));
    copy(line->node, sizeof(line->node), text(s, COLUMN_DEVICE_NODE));
    copy(line->device_node, sizeof(line->device_node), text(s, COLUMN_DEVICE_NODE));
}

static void process_fill(struct candidate *c, sqlite3_stmt *s)
{
    c->line.pid = c->pid;
    c->line.boot = c->boot;
    c->line.start_ticks = c->start;
    c->line.began_s = (uint64_t)sqlite3_column_int64(s, COLUMN_BEGAN);
    copy(c->line.node, sizeof(c->line.node), c->node);
}

static struct candidate candidate_of(const struct read_query *q, sqlite3_stmt *s)
{
    uint32_t metric = (uint32_t)sqlite3_column_int(s, COLUMN_METRIC);
    struct candidate c = {
        .series.id = (uint64_t)sqlite3_column_int64(s, COLUMN_ID),
        .series.metric = metric,
        .process = sqlite3_column_int64(s, COLUMN_PROCESS),
        .device = sqlite3_column_int64(s, COLUMN_DEVICE),
        .boot = sqlite3_column_int64(s, COLUMN_BOOT),
        .start = sqlite3_column_int64(s, COLUMN_START),
        .pid = sqlite3_column_int64(s, COLUMN_PID),
        .line.space = (uint32_t)sqlite3_column_int(s, COLUMN_SPACE),
        .line.what = metric == HISTORY_PSS        ? READ_PSS
                     : metric == HISTORY_SYSTEM   ? READ_SYSTEM
                     : metric == HISTORY_PRESSURE ? READ_PRESSURE
                                                  : READ_ACCOUNT,
    };
    copy(c.node, sizeof(c.node), text(s, COLUMN_NODE));
    if (c.device != 0)
        device_fill(&c.line, s);
    if (q->by == READ_BY_PROCESS)
        process_fill(&c, s);
    if (q->by == READ_BY_PROCESS || q->by == READ_BY_USER)
        c.line.uid = (uint32_t)sqlite3_column_int64(s, COLUMN_UID);
    if (q->by == READ_BY_PROCESS || q->by == READ_BY_PROGRAM)
        copy(c.line.program, sizeof(c.line.program), text(s, COLUMN_PROGRAM));
    return c;
}

static int candidate_add(struct candidates *all, const struct candidate *c)
{
    if (all->n == all->cap) {
        size_t cap = all->cap ? all->cap * 2 : CANDIDATES_FIRST;
        struct candidate *grown = reallocarray(all->list, cap, sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        all->list = grown;
        all->cap = cap;
    }
    all->list[all->n++] = *c;
    return 0;
}

static int candidates_load(struct reading *reading, struct candidates *all)
{
    const struct read_query *q = reading->query;
    sqlite3_stmt *s = NULL;
    int code = sqlite3_prepare_v2(reading->db, select_sql, -1, &s, NULL);
    sqlite3_bind_int64(s, 1, (int64_t)q->since_s);
    sqlite3_bind_int64(s, 2, (int64_t)q->until_s);
    sqlite3_bind_int64(s, 3, (int64_t)(SEEN_SLACK_S + HISTORY_STEP_MAX_S + q->step_s));
    sqlite3_bind_int64(s, 4, MEMOIR_SPACE_MAX);
    if (code == SQLITE_OK)
        code = sqlite3_step(s);
    int r = 0;
    for (; r == 0 && code == SQLITE_ROW; code = sqlite3_step(s)) {
        if (!matches(q, s))
            continue;
        struct candidate c = candidate_of(q, s);
        r = candidate_add(all, &c);
    }
    r = r < 0 ? r : store_errno(reading->db, code);
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
    COMPARE(a->pid, b->pid);
    COMPARE(a->boot, b->boot);
    COMPARE(a->start, b->start);
    return strcmp(a->node, b->node);
}

/* The order of lines: devices by number before the host, spaces, pressure, then the group. Equal ones are one line. */
static int compare_lines(const struct candidate *a, const struct candidate *b, enum read_by by)
{
    const struct read_line *x = &a->line, *y = &b->line;
    COMPARE(y->on_device, x->on_device);
    COMPARE(x->ordinal, y->ordinal);
    COMPARE(a->device, b->device);
    COMPARE(x->what == READ_PRESSURE, y->what == READ_PRESSURE);
    COMPARE(x->space, y->space);
    COMPARE(x->what, y->what);
    if (by == READ_BY_PROCESS)
        return compare_processes(a, b);
    COMPARE(x->uid, y->uid); /* set by user only, and the program by program only */
    return strcmp(x->program, y->program);
}

/* Lines, in them processes, of these the rows in the order in which they began. */
static int compare_candidates(const void *a, const void *b, void *by)
{
    const struct candidate *x = a, *y = b;
    int order = compare_lines(x, y, *(const enum read_by *)by);
    order = order ? order : compare_processes(x, y);
    return order ? order : (x->process > y->process) - (x->process < y->process);
}

static int compare_series(const void *a, const void *b)
{
    const struct read_series *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Make lines of candidates in order. */
static void lines_make(struct reading *reading, const struct candidates *all)
{
    struct read_line *line = NULL;
    for (size_t i = 0; i < all->n; i++) {
        const struct candidate *c = &all->list[i];
        struct read_series *series = &reading->series[i];
        bool same_line = line && compare_lines(c - 1, c, reading->query->by) == 0;
        bool same_process = same_line && compare_processes(c - 1, c) == 0;
        if (!same_line)
            line = &reading->result.lines[reading->result.n_lines++];
        uint32_t processes = line->processes + (c->process != 0 && !same_process);
        *line = c->line; /* the latest name of a process */
        line->processes = processes;
        *series = c->series;
        series->line = reading->result.n_lines - 1;
        if (!same_process)
            continue;
        if (!series[-1].joint)
            series[-1].joint = ++reading->n_joints;
        series->joint = reading->n_joints;
    }
    reading->n_series = all->n;
}

int read_select(struct reading *reading)
{
    MEMOIR_CLEANUP(candidates_release)
    struct candidates all = {0};
    enum read_by by = reading->query->by;
    int r = candidates_load(reading, &all);
    if (r < 0 || all.n == 0)
        return r;
    qsort_r(all.list, all.n, sizeof(*all.list), compare_candidates, &by);
    reading->series = calloc(all.n, sizeof(*reading->series));
    reading->result.lines = calloc(all.n, sizeof(*reading->result.lines));
    if (!reading->series || !reading->result.lines)
        return -ENOMEM;
    lines_make(reading, &all);
    qsort(reading->series, reading->n_series, sizeof(*reading->series), compare_series);
    return 0;
}

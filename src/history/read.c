/* Reading history. See read.h.
 *
 * Series are grouped into lines first. Then time is walked over window by window, each in the tier that has
 * it: the points of a window are added up by line and slot, and the slots folded into steps. */
#include "history/read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "history/merge.h"
#include "history/read_internal.h"
#include "history/store_internal.h"

enum { BUSY_MS = 2000 };

/* ---- opening ---- */

/* A file on a disk that cannot be written has no log to follow: then it is read as it is. */
static int open_unchanging(const char *path, sqlite3 **ret_db)
{
    size_t room = strlen(path) * 3 + 32, n = 0;
    MEMOIR_CLEANUP(freep)
    char *uri = malloc(room);
    if (!uri)
        return SQLITE_NOMEM;
    n += (size_t)snprintf(uri, room, "file:");
    for (const char *p = path; *p; p++)
        n += (size_t)snprintf(uri + n, room - n, strchr("%?#", *p) ? "%%%02x" : "%c",
                              (unsigned char)*p);
    snprintf(uri + n, room - n, "?immutable=1");
    return sqlite3_open_v2(uri, ret_db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL);
}

/* One picture of all, which also a writer that just begins the file cannot change between two looks. */
static int open_checked(sqlite3 *const *at, int code)
{
    sqlite3 *db = *at;
    if (code == SQLITE_OK)
        code = sqlite3_busy_timeout(db, BUSY_MS);
    if (code == SQLITE_OK)
        code = sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
    return code == SQLITE_OK ? store_check(db) : store_errno(db, code);
}

static int open_db(const char *path, sqlite3 **ret_db)
{
    sqlite3 *db = NULL;
    if (access(path, R_OK) < 0)
        return -errno;
    int r = open_checked(&db, sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL));
    if (r == -EROFS || r == -ENOENT || r == -EACCES) {
        sqlite3_close(db);
        db = NULL;
        r = open_checked(&db, open_unchanging(path, &db));
    }
    if (r < 0)
        sqlite3_close(db);
    else
        *ret_db = db;
    return r == -ENODATA ? -ENOENT : r; /* as good as none yet */
}

static int number(sqlite3 *db, const char *sql, int64_t a, int64_t b, int64_t *ret)
{
    sqlite3_stmt *s = NULL;
    int code = sqlite3_prepare_v2(db, sql, -1, &s, NULL);
    sqlite3_bind_int64(s, 1, a);
    sqlite3_bind_int64(s, 2, b);
    if (code == SQLITE_OK)
        code = sqlite3_step(s);
    if (code == SQLITE_ROW)
        *ret = sqlite3_column_int64(s, 0);
    int r = store_errno(db, code);
    sqlite3_finalize(s);
    return r < 0 ? r : code == SQLITE_ROW;
}

/* What each tier has: from the oldest window to the first that is not closed. */
struct spans {
    uint64_t from_s[HISTORY_TIERS], to_s[HISTORY_TIERS];
    uint64_t recent_s; /* start of the oldest row of `recent`, UINT64_MAX without */
};

static int spans_load(sqlite3 *db, struct spans *spans)
{
    for (unsigned tier = 0; tier < HISTORY_TIERS; tier++) {
        int64_t closed = 0, id = -1;
        int r = number(db, store_sql(SQL_CLOSED_GET), tier, history_step_s[tier], &closed);
        if (r <= 0 || closed < 0 || (uint64_t)closed >= WINDOW_MAX)
            return r < 0 ? r : -EBADMSG;
        r = number(db, store_sql(SQL_CHUNK_FIRST + (int)tier), 0, 0, &id);
        if (r < 0)
            return r;
        spans->to_s[tier] = (uint64_t)closed * history_window_s(tier);
        spans->from_s[tier] =
            r > 0 && id >= 0 ? ((uint64_t)id >> 32) * history_window_s(tier) : UINT64_MAX;
    }
    int64_t id = -1;
    int r = number(db, store_sql(SQL_RECENT_FIRST), 0, 0, &id);
    spans->recent_s =
        r > 0 && id >= 0 ? (uint64_t)id / RECENT_PER_WINDOW_MAX * history_window_s(0) : UINT64_MAX;
    return r < 0 ? r : 0;
}

static uint64_t spans_oldest(const struct spans *spans)
{
    uint64_t least = spans->recent_s;
    for (unsigned tier = 0; tier < HISTORY_TIERS; tier++)
        least = spans->from_s[tier] < least ? spans->from_s[tier] : least;
    return least == UINT64_MAX ? 0 : least;
}

/* The tier to read at `time_s`: the wished one, else a finer one, because coarser windows are closed later;
 * HISTORY_TIERS when none has it. */
static unsigned spans_tier(const struct spans *spans, unsigned wish, uint64_t time_s)
{
    for (unsigned tier = wish + 1; tier > 0; tier--)
        if (time_s >= spans->from_s[tier - 1] && time_s < spans->to_s[tier - 1])
            return tier - 1;
    return HISTORY_TIERS;
}

/* The oldest moment that a tier finer than this one has. */
static uint64_t spans_finer_from(const struct spans *spans, unsigned tier)
{
    uint64_t least = spans->recent_s;
    while (tier-- > 0)
        least = spans->from_s[tier] < least ? spans->from_s[tier] : least;
    return least;
}

/* ---- adding up ---- */

static void line_add(struct reading *reading, const struct read_series *series, uint64_t start_s,
                     uint32_t step_s, const struct pack_points *points)
{
    struct read_line *line = &reading->result.lines[series->line];
    struct sums *sums = &reading->sums[series->line];
    for (unsigned i = 0; i < points->n; i++) {
        uint64_t time_s = start_s + (uint64_t)points->slot[i] * step_s;
        if (time_s + step_s <= reading->result.since_s || time_s >= reading->result.until_s)
            continue;
        if (series->metric == HISTORY_CAPACITY) {
            line->has_capacity = true;
            line->capacity = points->last[i];
            continue;
        }
        unsigned slot = points->slot[i];
        if (sums->present[slot] && reading->query->by == READ_BY_PROCESS) {
            sums->last[slot] = points->last[i];
            if (points->max[i] > sums->max[slot])
                sums->max[slot] = points->max[i];
            continue;
        }
        sums->present[slot] = true;
        if (__builtin_add_overflow(sums->last[slot], points->last[i], &sums->last[slot]))
            sums->last[slot] = UINT64_MAX;
        if (__builtin_add_overflow(sums->max[slot], points->max[i], &sums->max[slot]))
            sums->max[slot] = UINT64_MAX;
    }
}

/* Slots of one window into the steps of the answer. */
static void fold(struct reading *reading, uint64_t start_s, uint32_t step_s)
{
    struct read_result *result = &reading->result;
    for (size_t i = 0; i < result->n_lines; i++) {
        struct sums *sums = &reading->sums[i];
        struct read_line *line = &result->lines[i];
        for (unsigned slot = 0; slot < PACK_SLOTS_MAX; slot++) {
            if (!sums->present[slot])
                continue;
            uint64_t time_s = start_s + (uint64_t)slot * step_s;
            uint64_t at = time_s > result->since_s ? time_s - result->since_s : 0;
            struct read_point *point = &line->points[at / result->step_s];
            point->last = sums->last[slot];
            point->offset_s = (uint32_t)(at % result->step_s);
            if (!point->present || sums->max[slot] > point->max)
                point->max = sums->max[slot];
            point->present = true;
            line->max = sums->max[slot] > line->max ? sums->max[slot] : line->max;
            line->last = point->last;
            line->last_s = time_s;
            line->any = true;
        }
        memset(sums, 0, sizeof(*sums));
    }
}

/* The points of one series in one window. 1, 0 when it has none or they are damaged, or -errno. */
static int read_chunk(struct reading *reading, unsigned tier, uint64_t window, uint64_t series,
                      struct pack_points *ret_points)
{
    sqlite3_stmt *s = reading->get[tier];
    int found = 0;
    sqlite3_bind_int64(s, 1, CHUNK_ID(window, series));
    int code = sqlite3_step(s);
    if (code == SQLITE_ROW) {
        size_t len = (size_t)sqlite3_column_bytes(s, 0);
        found = pack_decode(sqlite3_column_blob(s, 0), len, ret_points) == 0;
        reading->result.damaged += !found;
    }
    int r = store_errno(reading->db, code);
    sqlite3_reset(s);
    return r < 0 ? r : found;
}

static int read_window(struct reading *reading, unsigned tier, uint64_t window)
{
    uint64_t start_s = window * history_window_s(tier);
    for (size_t i = 0; i < reading->n_series; i++) {
        struct pack_points points;
        int r = read_chunk(reading, tier, window, reading->series[i].id, &points);
        if (r < 0)
            return r;
        if (r > 0)
            line_add(reading, &reading->series[i], start_s, history_step_s[tier], &points);
    }
    fold(reading, start_s, history_step_s[tier]);
    return 0;
}

/* Both lists are in the order of series. */
static int read_recent_window(struct reading *reading, uint64_t window)
{
    MEMOIR_CLEANUP(merge_release)
    struct merge merge = {0};
    uint64_t start_s = window * history_window_s(0);
    size_t at = 0;
    int r = merge_add_recent(&merge, reading->db, window);
    while (r >= 0) {
        struct merge_points m;
        r = merge_next(&merge, start_s, history_step_s[0], &m);
        if (r <= 0)
            break;
        while (at < reading->n_series && reading->series[at].id < m.series)
            at++;
        if (at < reading->n_series && reading->series[at].id == m.series)
            line_add(reading, &reading->series[at], start_s, history_step_s[0], &m.points);
    }
    reading->result.damaged += merge.damaged;
    fold(reading, start_s, history_step_s[0]);
    return r;
}

static int read_recent(struct reading *reading)
{
    uint64_t window = reading->result.since_s / history_window_s(0);
    for (;;) {
        int64_t id = -1;
        int r = number(reading->db, store_sql(SQL_RECENT_FIRST), RECENT_ID(window, 0), 0, &id);
        if (r <= 0 || id < 0)
            return r < 0 ? r : 0;
        window = (uint64_t)id / RECENT_PER_WINDOW_MAX;
        if (window * history_window_s(0) >= reading->result.until_s)
            return 0;
        r = read_recent_window(reading, window++);
        if (r < 0)
            return r;
    }
}

static int read_tiers(struct reading *reading, const struct spans *spans, unsigned wish)
{
    for (uint64_t time_s = reading->result.since_s; time_s < reading->result.until_s;) {
        unsigned tier = spans_tier(spans, wish, time_s);
        if (tier == HISTORY_TIERS) {
            time_s = (time_s / history_window_s(0) + 1) * history_window_s(0);
            continue;
        }
        uint64_t window = time_s / history_window_s(tier);
        int r = read_window(reading, tier, window);
        if (r < 0)
            return r;
        time_s = (window + 1) * history_window_s(tier);
    }
    return 0;
}

/* ---- the step of the answer ---- */

uint64_t read_step(uint64_t range_s, uint64_t points)
{
    static const uint64_t usual[] = {1,   2,   5,    10,   20,   30,    60,    120,  300,
                                     600, 900, 1800, 3600, 7200, 14400, 43200, 86400};
    for (size_t i = 0; i < sizeof(usual) / sizeof(*usual); i++)
        if ((range_s + usual[i] - 1) / usual[i] <= points)
            return usual[i];
    uint64_t day = 86400, days = (points ? points : 1) * day;
    return (range_s / days + (range_s % days > 0)) * day;
}

/* Has one of the series a point of this tier between two moments? 1, 0 or -errno. */
static int tier_has_points(struct reading *reading, unsigned tier, uint64_t from_s, uint64_t to_s)
{
    uint64_t length_s = history_window_s(tier);
    for (uint64_t window = from_s / length_s; window * length_s < to_s; window++) {
        for (size_t i = 0; i < reading->n_series; i++) {
            struct pack_points points;
            int r = read_chunk(reading, tier, window, reading->series[i].id, &points);
            if (r < 0)
                return r;
            for (unsigned k = 0; r > 0 && k < points.n; k++) {
                uint64_t time_s =
                    window * length_s + (uint64_t)points.slot[k] * history_step_s[tier];
                if (time_s + history_step_s[tier] > from_s && time_s < to_s)
                    return 1;
            }
        }
    }
    return 0;
}

/* The step wanted, rounded up for the coarsest tier without which something recorded would be missing. Only points
 * count: the first window of a tier begins before the first of its points, and must not coarsen what
 * finer tiers have. */
static int step_choose(struct reading *reading, const struct spans *spans, uint64_t *ret_step_s)
{
    const struct read_query *q = reading->query;
    for (unsigned tier = HISTORY_TIERS - 1; tier > 0; tier--) {
        uint64_t step_s = history_step_s[tier];
        uint64_t finer_s = spans_finer_from(spans, tier);
        uint64_t from_s = spans->from_s[tier] > q->since_s ? spans->from_s[tier] : q->since_s;
        uint64_t to_s = spans->to_s[tier] < q->until_s ? spans->to_s[tier] : q->until_s;
        to_s = finer_s < to_s ? finer_s : to_s;
        if (q->step_s % step_s == 0 || from_s >= to_s)
            continue;
        int r = tier_has_points(reading, tier, from_s, to_s);
        if (r < 0)
            return r;
        if (r > 0) {
            *ret_step_s = (q->step_s / step_s + 1) * step_s;
            return 0;
        }
    }
    *ret_step_s = q->step_s;
    return 0;
}

static int steps_set(struct reading *reading, uint64_t step_s)
{
    struct read_result *result = &reading->result;
    const struct read_query *q = reading->query;
    if (q->until_s > UINT64_MAX - step_s)
        return -EINVAL;
    result->step_s = step_s;
    result->since_s = q->since_s / step_s * step_s;
    result->until_s = (q->until_s + step_s - 1) / step_s * step_s;
    uint64_t steps = (result->until_s - result->since_s) / step_s;
    result->n_steps = (size_t)steps;
    return steps > READ_STEPS_MAX ? -E2BIG : 0;
}

/* ---- the answer ---- */

static unsigned tier_for(uint64_t step_s)
{
    unsigned tier = HISTORY_TIERS - 1;
    while (tier > 0 && step_s % history_step_s[tier] != 0)
        tier--;
    return tier;
}

static int prepare_statements(struct reading *reading)
{
    static const char *const get[HISTORY_TIERS] = {"SELECT data FROM chunk0 WHERE id=?",
                                                   "SELECT data FROM chunk1 WHERE id=?",
                                                   "SELECT data FROM chunk2 WHERE id=?"};
    for (unsigned tier = 0; tier < HISTORY_TIERS; tier++) {
        int code = sqlite3_prepare_v2(reading->db, get[tier], -1, &reading->get[tier], NULL);
        if (code != SQLITE_OK)
            return store_errno(reading->db, code);
    }
    return 0;
}

static int prepare(struct reading *reading)
{
    struct read_result *result = &reading->result;
    if (result->n_lines == 0)
        return 0;
    if (result->n_steps > READ_POINTS_MAX / result->n_lines)
        return -E2BIG;
    result->points = calloc(result->n_lines * result->n_steps, sizeof(*result->points));
    reading->sums = calloc(result->n_lines, sizeof(*reading->sums));
    if (!result->points || !reading->sums)
        return -ENOMEM;
    for (size_t i = 0; i < result->n_lines; i++)
        result->lines[i].points = result->points + i * result->n_steps;
    return 0;
}

static void reading_release(struct reading *reading)
{
    for (unsigned tier = 0; tier < HISTORY_TIERS; tier++)
        sqlite3_finalize(reading->get[tier]);
    free(reading->series);
    free(reading->sums);
    read_release(&reading->result);
    sqlite3_close(reading->db);
}

void read_release(struct read_result *result)
{
    free(result->lines);
    free(result->points);
    *result = (struct read_result){0};
}

/* The least value at the end of a step, whatever tier the step was put together from. */
static uint64_t line_min(const struct read_line *line, size_t n_steps)
{
    uint64_t min = UINT64_MAX;
    for (size_t i = 0; i < n_steps; i++)
        if (line->points[i].present && line->points[i].last < min)
            min = line->points[i].last;
    return min;
}

/* Drop lines without a point. */
static void lines_finish(struct read_result *result)
{
    size_t n = 0;
    for (size_t i = 0; i < result->n_lines; i++) {
        if (!result->lines[i].any)
            continue;
        result->lines[n] = result->lines[i];
        result->lines[n].min = line_min(&result->lines[i], result->n_steps);
        n++;
    }
    result->n_lines = n;
}

int read_history_step(const char *path, const struct read_query *query, uint64_t *ret_step_s)
{
    MEMOIR_CLEANUP(reading_release)
    struct reading reading = {.query = query};
    struct spans spans = {.recent_s = UINT64_MAX};
    if (query->step_s == 0 || query->until_s <= query->since_s)
        return -EINVAL;
    int r = open_db(path, &reading.db);
    if (r == 0)
        r = spans_load(reading.db, &spans);
    if (r == 0)
        r = read_select(&reading);
    if (r == 0)
        r = prepare_statements(&reading);
    return r == 0 ? step_choose(&reading, &spans, ret_step_s) : r;
}

int read_history(const char *path, const struct read_query *query, struct read_result *ret_result)
{
    MEMOIR_CLEANUP(reading_release)
    struct reading reading = {.query = query};
    struct read_result *result = &reading.result;
    struct spans spans = {.recent_s = UINT64_MAX};
    if (query->step_s == 0 || query->until_s <= query->since_s)
        return -EINVAL;
    result->by = query->by;
    int r = open_db(path, &reading.db);
    if (r == 0)
        r = spans_load(reading.db, &spans);
    if (r == 0)
        r = read_select(&reading);
    if (r == 0)
        r = prepare_statements(&reading);
    int64_t known = 0;
    if (r == 0 && query->pid)
        r = number(reading.db, "SELECT count(*) FROM process WHERE pid=? LIMIT 1", query->pid, 0,
                   &known);
    r = r > 0 ? 0 : r;
    uint64_t step_s = query->step_s;
    if (r == 0)
        r = step_choose(&reading, &spans, &step_s);
    if (r == 0)
        r = steps_set(&reading, step_s);
    if (r == 0)
        r = prepare(&reading);
    if (r == 0 && result->n_lines > 0)
        r = read_tiers(&reading, &spans, tier_for(result->step_s));
    if (r == 0 && result->n_lines > 0)
        r = read_recent(&reading);
    if (r < 0)
        return r;
    result->oldest_s = spans_oldest(&spans);
    result->pid_known = known > 0;
    lines_finish(result);
    *ret_result = *result;
    *result = (struct read_result){0};
    return 0;
}

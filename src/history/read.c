/* Reading history. See read.h.
 *
 * Series are grouped into lines first. Then time is walked over window by window, each in the tier that has
 * it: the points of a window are added up by line and slot, and the slots folded into steps. */
#include "history/read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/sum.h"
#include "history/merge.h"
#include "history/read_internal.h"
#include "history/store_internal.h"

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

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static int spans_load(sqlite3 *db, struct spans *spans)
{
    int64_t id = 0;
    int r;
    for (unsigned tier = 0; tier < HISTORY_TIERS; tier++) {
        int64_t closed = -1;
        r = number(db, store_sql(SQL_CLOSED_GET), tier, history_step_s[tier], &closed);
        if (r < 0)
            return r;
        if ((uint64_t)closed >= WINDOW_MAX)
            return -EBADMSG;
        r = number(db, store_sql(SQL_CHUNK_FIRST + (int)tier), 0, 0, &id);
        if (r < 0)
            return r;
        spans->to_s[tier] = (uint64_t)closed * history_window_s(tier);
        spans->from_s[tier] = r ? ((uint64_t)id >> 32) * history_window_s(tier) : UINT64_MAX;
    }
    r = number(db, store_sql(SQL_RECENT_FIRST), 0, 0, &id);
    if (r < 0)
        return r;
    spans->recent_s = r ? (uint64_t)id / RECENT_PER_WINDOW_MAX * history_window_s(0) : UINT64_MAX;
    return 0;
}

/* The oldest moment that `recent` or one of the finest `tiers` tiers has; UINT64_MAX: none. */
static uint64_t spans_from(const struct spans *spans, unsigned tiers)
{
    uint64_t least = spans->recent_s;
    while (tiers-- > 0)
        least = lesser(least, spans->from_s[tiers]);
    return least;
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

/* ---- adding up ---- */

static void point_add(struct sums *sums, unsigned slot, uint64_t last, uint64_t max)
{
    sums->present[slot] = true;
    sum_add(&sums->last[slot], last);
    sum_add(&sums->max[slot], max);
}

/* The points of one series. Answers have whole steps of every tier that is read, so a point is in the time asked for
 * or out of it. */
static void series_add(struct reading *reading, const struct read_series *series, uint64_t start_s,
                       uint32_t step_s, const struct pack_points *points)
{
    struct read_line *line = &reading->result.lines[series->line];
    struct sums *joint = &reading->joints[series->joint].sums;
    for (unsigned i = 0; i < points->n; i++) {
        unsigned slot = points->slot[i];
        uint64_t time_s = start_s + (uint64_t)slot * step_s;
        if (time_s < reading->result.since_s || time_s >= reading->result.until_s)
            continue;
        if (series->metric == HISTORY_CAPACITY) {
            line->has_capacity = true;
            line->capacity = points->last[i];
        } else if (series->joint) { /* the later series of a process counts */
            joint->present[slot] = true;
            joint->last[slot] = points->last[i];
            joint->max[slot] = larger(joint->max[slot], points->max[i]);
        } else {
            point_add(&reading->sums[series->line], slot, points->last[i], points->max[i]);
        }
    }
}

static void joints_add(struct reading *reading)
{
    for (size_t i = 0; i <= reading->n_joints; i++) {
        struct joint *joint = &reading->joints[i];
        for (unsigned slot = 0; slot < PACK_SLOTS_MAX; slot++)
            if (joint->sums.present[slot])
                point_add(&reading->sums[joint->line], slot, joint->sums.last[slot],
                          joint->sums.max[slot]);
        memset(&joint->sums, 0, sizeof(joint->sums));
    }
}

/* Slots of one window into the steps of the answer. */
static void fold(struct reading *reading, uint64_t start_s, uint32_t step_s)
{
    struct read_result *result = &reading->result;
    joints_add(reading);
    for (size_t i = 0; i < result->n_lines; i++) {
        struct sums *sums = &reading->sums[i];
        struct read_line *line = &result->lines[i];
        for (unsigned slot = 0; slot < PACK_SLOTS_MAX; slot++) {
            if (!sums->present[slot])
                continue;
            uint64_t time_s = start_s + (uint64_t)slot * step_s, at = time_s - result->since_s;
            struct read_point *point = &line->points[at / result->step_s];
            point->present = line->any = true;
            point->offset_s = (uint32_t)(at % result->step_s);
            point->last = line->last = sums->last[slot];
            point->max = larger(point->max, sums->max[slot]);
            line->max = larger(line->max, point->max);
            line->last_s = time_s;
        }
        memset(sums, 0, sizeof(*sums));
    }
}

/* The points of one series in one window; none where they are damaged. */
static int read_chunk(struct reading *reading, unsigned tier, uint64_t window, uint64_t series,
                      struct pack_points *ret_points)
{
    sqlite3_stmt *s = reading->get[tier];
    ret_points->n = 0;
    sqlite3_bind_int64(s, 1, CHUNK_ID(window, series));
    int code = sqlite3_step(s);
    if (code == SQLITE_ROW) {
        const uint8_t *data = sqlite3_column_blob(s, 0);
        size_t len = (size_t)sqlite3_column_bytes(s, 0);
        reading->result.damaged += pack_decode(data, len, ret_points) < 0;
    }
    int r = store_errno(reading->db, code);
    sqlite3_reset(s);
    return r;
}

static int read_window(struct reading *reading, unsigned tier, uint64_t window)
{
    uint64_t start_s = window * history_window_s(tier);
    for (size_t i = 0; i < reading->n_series; i++) {
        struct pack_points points;
        int r = read_chunk(reading, tier, window, reading->series[i].id, &points);
        if (r < 0)
            return r;
        series_add(reading, &reading->series[i], start_s, history_step_s[tier], &points);
    }
    fold(reading, start_s, history_step_s[tier]);
    return 0;
}

static int compare_id(const void *id, const void *series)
{
    uint64_t x = *(const uint64_t *)id, y = ((const struct read_series *)series)->id;
    return (x > y) - (x < y);
}

static int read_recent_window(struct reading *reading, uint64_t window)
{
    MEMOIR_CLEANUP(merge_release)
    struct merge merge = {0};
    struct merge_points m;
    uint64_t start_s = window * history_window_s(0);
    int r = merge_add_recent(&merge, reading->db, window);
    if (r < 0)
        return r;
    while ((r = merge_next(&merge, start_s, history_step_s[0], &m)) > 0) {
        const struct read_series *series = bsearch(&m.series, reading->series, reading->n_series,
                                                   sizeof(*reading->series), compare_id);
        if (series)
            series_add(reading, series, start_s, history_step_s[0], &m.points);
    }
    reading->result.damaged += merge.damaged;
    fold(reading, start_s, history_step_s[0]);
    return r;
}

static int read_recent(struct reading *reading)
{
    uint64_t window = reading->result.since_s / history_window_s(0);
    for (;;) {
        int64_t id = 0;
        int r = number(reading->db, store_sql(SQL_RECENT_FIRST), RECENT_ID(window, 0), 0, &id);
        if (r <= 0)
            return r;
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

static bool points_within(const struct pack_points *points, uint64_t start_s, uint32_t step_s,
                          uint64_t from_s, uint64_t to_s)
{
    for (unsigned i = 0; i < points->n; i++) {
        uint64_t time_s = start_s + (uint64_t)points->slot[i] * step_s;
        if (time_s + step_s > from_s && time_s < to_s)
            return true;
    }
    return false;
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
            if (points_within(&points, window * length_s, history_step_s[tier], from_s, to_s))
                return 1;
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
        uint64_t step_s = history_step_s[tier], damaged = reading->result.damaged;
        uint64_t from_s = larger(spans->from_s[tier], q->since_s);
        uint64_t to_s = lesser(spans_from(spans, tier), lesser(spans->to_s[tier], q->until_s));
        if (q->step_s % step_s == 0)
            continue;
        int r = tier_has_points(reading, tier, from_s, to_s);
        if (r < 0)
            return r;
        if (r > 0) {
            reading->result.damaged = damaged; /* these are read and counted once more */
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

/* The coarsest one whose step divides that of the answer; seconds do so always. */
static unsigned tier_for(uint64_t step_s)
{
    unsigned tier = HISTORY_TIERS;
    do
        tier--;
    while (step_s % history_step_s[tier] != 0);
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
    if (result->n_lines * result->n_steps > READ_POINTS_MAX)
        return -E2BIG;
    result->points = calloc(result->n_lines * result->n_steps, sizeof(*result->points));
    reading->sums = calloc(result->n_lines, sizeof(*reading->sums));
    reading->joints = calloc(reading->n_joints + 1, sizeof(*reading->joints));
    if (!result->points || !reading->sums || !reading->joints)
        return -ENOMEM;
    for (size_t i = 0; i < result->n_lines; i++)
        result->lines[i].points = result->points + i * result->n_steps;
    for (size_t i = 0; i < reading->n_series; i++)
        reading->joints[reading->series[i].joint].line = reading->series[i].line;
    return 0;
}

static void reading_release(struct reading *reading)
{
    for (unsigned tier = 0; tier < HISTORY_TIERS; tier++)
        sqlite3_finalize(reading->get[tier]);
    free(reading->series);
    free(reading->sums);
    free(reading->joints);
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
        if (line->points[i].present)
            min = lesser(min, line->points[i].last);
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

/* Open the file, find the series, choose the step. */
static int reading_begin(struct reading *reading, const char *path, struct spans *spans,
                         uint64_t *ret_step_s)
{
    const struct read_query *query = reading->query;
    if (query->step_s == 0 || query->until_s <= query->since_s)
        return -EINVAL;
    int r = read_open(path, &reading->db);
    if (r < 0)
        return r;
    r = spans_load(reading->db, spans);
    if (r < 0)
        return r;
    r = prepare_statements(reading);
    if (r < 0)
        return r;
    r = read_select(reading);
    return r < 0 ? r : step_choose(reading, spans, ret_step_s);
}

int read_history_step(const char *path, const struct read_query *query, uint64_t *ret_step_s)
{
    MEMOIR_CLEANUP(reading_release)
    struct reading reading = {.query = query};
    struct spans spans;
    return reading_begin(&reading, path, &spans, ret_step_s);
}

static int read_points(struct reading *reading, const struct spans *spans)
{
    int r = prepare(reading);
    if (r < 0)
        return r;
    r = read_tiers(reading, spans, tier_for(reading->result.step_s));
    return r < 0 ? r : read_recent(reading);
}

int read_history(const char *path, const struct read_query *query, struct read_result *ret_result)
{
    MEMOIR_CLEANUP(reading_release)
    struct reading reading = {.query = query, .result.by = query->by};
    struct read_result *result = &reading.result;
    struct spans spans;
    uint64_t step_s;
    int64_t pid;
    int r = reading_begin(&reading, path, &spans, &step_s);
    if (r < 0)
        return r;
    r = steps_set(&reading, step_s);
    if (r < 0)
        return r;
    r = number(reading.db, "SELECT pid FROM process WHERE pid=? LIMIT 1", query->pid, 0, &pid);
    if (r < 0)
        return r;
    result->pid_known = r;
    uint64_t oldest_s = spans_from(&spans, HISTORY_TIERS);
    result->oldest_s = oldest_s == UINT64_MAX ? 0 : oldest_s;
    r = result->n_lines ? read_points(&reading, &spans) : 0;
    if (r < 0)
        return r;
    lines_finish(result);
    *ret_result = *result;
    *result = (struct read_result){0};
    return 0;
}

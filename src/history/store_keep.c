/* Closing windows, rolling them up into coarser tiers, and deleting what is too old or too much. See store.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "history/merge.h"
#include "history/store_internal.h"

enum {
    ROOM_SHARE = 16,     /* of the limit is left free: a flush must fit between two looks */
    PRUNE_EVERY_S = 600, /* processes and devices that have no points any more */
};

/* ---- closing ---- */

static int chunk_add(struct store *store, unsigned tier, uint64_t window, struct merge_points *m)
{
    uint8_t bytes[PACK_BYTES_MAX];
    m->points.has_max = tier > 0; /* of a single moment, last and largest are the same */
    size_t len = pack_encode(&m->points, bytes);
    sqlite3_stmt *s = store_statement(store, SQL_CHUNK_ADD + (int)tier);
    if (s) {
        sqlite3_bind_int64(s, 1, CHUNK_ID(window, m->series));
        sqlite3_bind_blob(s, 2, bytes, (int)len, SQLITE_STATIC);
    }
    return store_run(store, s);
}

static int sources(struct store *store, unsigned tier, uint64_t window, struct merge *merge)
{
    int r = 0;
    /* The clock was put back: what the window has already comes first, so that what is new counts. */
    if (window < store->closed[tier])
        r = merge_add_chunks(merge, store->db, tier, window);
    if (tier == 0)
        return r < 0 ? r : merge_add_recent(merge, store->db, window);
    uint64_t parts = history_window_s(tier) / history_window_s(tier - 1);
    for (uint64_t i = 0; r == 0 && i < parts; i++)
        r = merge_add_chunks(merge, store->db, tier - 1, window * parts + i);
    return r;
}

static int range_run(struct store *store, int statement, int64_t first, int64_t last)
{
    sqlite3_stmt *s = store_statement(store, statement);
    if (s) {
        sqlite3_bind_int64(s, 1, first);
        sqlite3_bind_int64(s, 2, last);
    }
    return store_run(store, s);
}

static int closed_set(struct store *store, unsigned tier, uint64_t closed)
{
    sqlite3_stmt *s = store_statement(store, SQL_CLOSED_SET);
    if (s) {
        sqlite3_bind_int64(s, 1, tier);
        sqlite3_bind_int64(s, 2, (int64_t)closed);
    }
    return store_run(store, s);
}

int store_close(struct store *store, unsigned tier, uint64_t window)
{
    MEMOIR_CLEANUP(merge_release)
    struct merge merge = {0};
    uint64_t start_s = window * history_window_s(tier);
    int r = sources(store, tier, window, &merge);
    while (r == 0) {
        struct merge_points points;
        r = merge_next(&merge, start_s, history_step_s[tier], &points);
        if (r <= 0)
            break;
        r = chunk_add(store, tier, window, &points);
    }
    if (r == 0 && tier == 0)
        r = range_run(store, SQL_RECENT_DELETE, RECENT_ID(window, 0),
                      RECENT_ID(window, RECENT_PER_WINDOW_MAX - 1));
    if (r == 0 && window >= store->closed[tier])
        r = closed_set(store, tier, window + 1);
    return r;
}

/* One window, and the coarser ones that were closed before it, in one transaction. */
static int try_close(struct store *store, unsigned tier, uint64_t window)
{
    int r = store_begin(store);
    if (r == 0)
        r = store_close(store, tier, window);
    for (unsigned above = tier + 1; r == 0 && above < HISTORY_TIERS; above++) {
        uint64_t outer = window * history_window_s(tier) / history_window_s(above);
        if (outer >= store->closed[above])
            break;
        r = store_close(store, above, outer);
    }
    if (r == 0)
        r = store_commit(store);
    if (r < 0)
        store_rollback(store);
    return r;
}

static int close_one(struct store *store, unsigned tier, uint64_t window)
{
    int r = try_close(store, tier, window);
    if (r == -ENOSPC && store_reclaim(store) > 0)
        r = try_close(store, tier, window);
    if (r == 0 && window >= store->closed[tier])
        store->closed[tier] = window + 1;
    return r;
}

static int first_of(struct store *store, int statement, int64_t from, int64_t *ret_id)
{
    sqlite3_stmt *s = store_statement(store, statement);
    if (s)
        sqlite3_bind_int64(s, 1, from);
    return store_number(store, s, ret_id);
}

/* Windows of `recent` that are over. */
static int close_finest(struct store *store, uint64_t now_s)
{
    uint64_t now = now_s / history_window_s(0);
    for (uint64_t from = 0;;) {
        int64_t id = 0;
        int r = first_of(store, SQL_RECENT_FIRST, RECENT_ID(from, 0), &id);
        if (r <= 0)
            return r;
        uint64_t window = (uint64_t)id / RECENT_PER_WINDOW_MAX;
        if (window == now || id < 0)
            return 0;
        /* One ahead of the clock, which was put back, is left alone until its time comes. */
        if (window > now)
            return 0;
        r = close_one(store, 0, window);
        if (r < 0)
            return r;
        from = window + 1;
    }
}

/* Windows of a coarser tier, all of whose parts are closed and of which at least one has something. */
static int close_coarser(struct store *store, unsigned tier)
{
    uint64_t parts = history_window_s(tier) / history_window_s(tier - 1);
    for (;;) {
        int64_t id = 0;
        int r = first_of(store, SQL_CHUNK_FIRST + (int)tier - 1,
                         CHUNK_ID(store->closed[tier] * parts, 0), &id);
        if (r <= 0 || id < 0)
            return r < 0 ? r : 0;
        uint64_t window = ((uint64_t)id >> 32) / parts;
        if ((window + 1) * parts > store->closed[tier - 1])
            return 0;
        r = close_one(store, tier, window);
        if (r < 0)
            return r;
    }
}

/* An idle daemon closes windows too: that the finest tier is closed up to now lets the coarser ones close. */
static int close_idle(struct store *store, uint64_t now_s)
{
    uint64_t now = now_s / history_window_s(0);
    if (now <= store->closed[0])
        return 0;
    int r = closed_set(store, 0, now);
    if (r == 0)
        store->closed[0] = now;
    return r;
}

/* ---- deleting ---- */

static uint64_t used_bytes(struct store *store)
{
    int64_t pages = 0, size = 0;
    (void)store_number(store, store_statement(store, SQL_PAGES), &pages);
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(store->db, "PRAGMA page_size", -1, &s, NULL) == SQLITE_OK &&
        sqlite3_step(s) == SQLITE_ROW)
        size = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return (uint64_t)(pages * size);
}

/* The start of the oldest window of a tier; UINT64_MAX when it has none. */
static int oldest(struct store *store, unsigned tier, uint64_t *ret_s)
{
    int64_t id = -1;
    int r = first_of(store, SQL_CHUNK_FIRST + (int)tier, 0, &id);
    *ret_s = r > 0 && id >= 0 ? ((uint64_t)id >> 32) * history_window_s(tier) : UINT64_MAX;
    return r < 0 ? r : 0;
}

/* Windows that go at a time, at most. A clock may be years ahead until somebody puts it right, and must not
 * have cost everything by then: 30 days of minutes take half a day to go. More than ever come at a time:
 * one of seconds, in tens when they were rolled up, and fewer of the others. */
static const uint64_t go_at_once[HISTORY_TIERS] = {20, 2, 1};

static int too_old(struct store *store, uint64_t now_s)
{
    int r = 0;
    for (unsigned tier = 0; r == 0 && tier < HISTORY_TIERS; tier++) {
        uint64_t first_s;
        r = oldest(store, tier, &first_s);
        if (r < 0 || first_s == UINT64_MAX)
            continue;
        uint64_t keep_s = store->limits.keep_s[tier];
        uint64_t end_s = now_s > keep_s ? now_s - keep_s : 0;
        if (tier + 1 < HISTORY_TIERS) {
            uint64_t rolled_s = store->closed[tier + 1] * history_window_s(tier + 1);
            end_s = end_s < rolled_s ? end_s : rolled_s;
        }
        uint64_t end = end_s / history_window_s(tier);
        uint64_t most = first_s / history_window_s(tier) + go_at_once[tier];
        end = end < most ? end : most;
        if (end > 0)
            r = range_run(store, SQL_CHUNK_DELETE + (int)tier, 0, CHUNK_ID(end, 0) - 1);
    }
    return r;
}

/* What the oldest points belong to decides whose names are still needed. */
static int nameless(struct store *store, uint64_t now_s)
{
    uint64_t least_s = now_s;
    for (unsigned tier = 0; tier < HISTORY_TIERS; tier++) {
        uint64_t start_s;
        int r = oldest(store, tier, &start_s);
        if (r < 0)
            return r;
        least_s = start_s < least_s ? start_s : least_s;
    }
    /* They are marked as seen once a window. */
    uint64_t slack_s = 2 * history_window_s(0);
    int r = 0;
    for (int i = SQL_PRUNE_SERIES; r == 0 && i <= SQL_PRUNE_DEVICES; i++) {
        sqlite3_stmt *s = store_statement(store, i);
        if (s)
            sqlite3_bind_int64(s, 1, least_s > slack_s ? (int64_t)(least_s - slack_s) : 0);
        r = store_run(store, s);
    }
    return r;
}

/* Delete the oldest window of all tiers; 0 when there is none. */
static int drop_oldest(struct store *store)
{
    unsigned which = 0;
    uint64_t least_s = UINT64_MAX;
    for (unsigned tier = 0; tier < HISTORY_TIERS; tier++) {
        uint64_t start_s;
        int r = oldest(store, tier, &start_s);
        if (r < 0)
            return r;
        if (start_s < least_s) {
            least_s = start_s;
            which = tier;
        }
    }
    if (least_s == UINT64_MAX)
        return 0;
    uint64_t window = least_s / history_window_s(which);
    int r = range_run(store, SQL_CHUNK_DELETE + (int)which, CHUNK_ID(window, 0),
                      CHUNK_ID(window, SERIES_MAX));
    return r < 0 ? r : 1;
}

/* Delete the oldest until at most `limit` bytes are in use; 1 when something went. */
static int drop_down_to(struct store *store, uint64_t limit)
{
    bool dropped = false;
    for (uint64_t used = used_bytes(store); used > limit; used = used_bytes(store)) {
        int r = drop_oldest(store);
        if (r <= 0)
            return r < 0 ? r : dropped;
        dropped = true;
    }
    return dropped;
}

int store_reclaim(struct store *store)
{
    int r = store_begin(store);
    if (r == 0)
        r = drop_down_to(store, store->limits.bytes_max / 4 * 3);
    if (r > 0) {
        int committed = store_commit(store);
        r = committed < 0 ? committed : 1;
    }
    if (r <= 0)
        store_rollback(store);
    return r;
}

void store_hold_age(struct store *store, bool hold)
{
    store->hold_age = hold;
}

int store_prune(struct store *store, uint64_t now_s)
{
    int r = store_begin(store);
    if (r == 0 && !store->hold_age)
        r = too_old(store, now_s);
    if (r == 0) {
        r = drop_down_to(store, store->limits.bytes_max - store->limits.bytes_max / ROOM_SHARE);
        if (r > 0)
            store->pruned_s = 0;
    }
    if (r >= 0 && (now_s < store->pruned_s || now_s - store->pruned_s >= PRUNE_EVERY_S)) {
        r = nameless(store, now_s);
        store->pruned_s = now_s;
    }
    if (r >= 0)
        r = store_commit(store);
    if (r < 0)
        store_rollback(store);
    /* Pages that nobody needs go back to the disk where the limit was lowered. */
    if (r >= 0 && store_bytes(store) > store->limits.bytes_max)
        (void)sqlite3_exec(store->db, "PRAGMA incremental_vacuum", NULL, NULL, NULL);
    return r < 0 ? r : 0;
}

int store_maintain(struct store *store, uint64_t now_s)
{
    int r = close_finest(store, now_s);
    if (r == 0)
        r = close_idle(store, now_s);
    /* Once a window: by the clock, not by what was closed, which is ahead of a clock that was put back. */
    uint64_t now = now_s / history_window_s(0);
    if (r < 0 || now == store->maintained)
        return r;
    for (unsigned tier = 1; r == 0 && tier < HISTORY_TIERS; tier++)
        r = close_coarser(store, tier);
    if (r == 0)
        r = store_prune(store, now_s);
    if (r == 0)
        store->maintained = now;
    return r;
}

/* Many lists as one. See merge.h. There are a dozen sources, so the least one is found by looking. */
#include "history/merge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "history/store_internal.h"

static struct merge_source *source_add(struct merge *merge)
{
    if (merge->n == merge->cap) {
        size_t cap = merge->cap ? merge->cap * 2 : 16;
        struct merge_source *grown = reallocarray(merge->sources, cap, sizeof(*grown));
        if (!grown)
            return NULL;
        merge->sources = grown;
        merge->cap = cap;
    }
    struct merge_source *source = &merge->sources[merge->n++];
    *source = (struct merge_source){0};
    return source;
}

void merge_release(struct merge *merge)
{
    for (size_t i = 0; i < merge->n; i++) {
        free(merge->sources[i].row);
        sqlite3_finalize(merge->sources[i].scan);
    }
    free(merge->sources);
    *merge = (struct merge){0};
}

static int source_next(struct merge *merge, struct merge_source *source, sqlite3 *db)
{
    source->series = UINT64_MAX;
    if (source->row) {
        int r = recent_next(&source->cursor);
        merge->damaged += r < 0;
        if (r > 0) {
            source->series = source->cursor.series;
            source->chunk = source->cursor.chunk;
            source->len = source->cursor.chunk_len;
        }
        return 0; /* the rest of a damaged row is left out */
    }
    int code = sqlite3_step(source->scan);
    if (code == SQLITE_ROW) {
        source->series = (uint64_t)sqlite3_column_int64(source->scan, 0) & UINT32_MAX;
        source->chunk = sqlite3_column_blob(source->scan, 1);
        source->len = (size_t)sqlite3_column_bytes(source->scan, 1);
    }
    return store_errno(db, code);
}

int merge_add_recent(struct merge *merge, sqlite3 *db, uint64_t window)
{
    sqlite3_stmt *s = NULL;
    int code = sqlite3_prepare_v2(db, store_sql(SQL_RECENT_OF), -1, &s, NULL);
    sqlite3_bind_int64(s, 1, RECENT_ID(window, 0));
    sqlite3_bind_int64(s, 2, RECENT_ID(window, RECENT_PER_WINDOW_MAX - 1));
    if (code == SQLITE_OK)
        code = sqlite3_step(s);
    for (; code == SQLITE_ROW; code = sqlite3_step(s)) {
        size_t len = (size_t)sqlite3_column_bytes(s, 1);
        struct merge_source *source = source_add(merge);
        if (source)
            source->row = malloc(len + 1);
        if (!source || !source->row) {
            code = SQLITE_NOMEM;
            break;
        }
        memcpy(source->row, len ? sqlite3_column_blob(s, 1) : "", len);
        source->cursor = (struct recent_cursor){.data = source->row, .len = len};
        source->start_s = window * history_window_s(0);
        source->step_s = history_step_s[0];
        (void)source_next(merge, source, db); /* reads no file */
    }
    sqlite3_finalize(s);
    return store_errno(db, code);
}

int merge_add_chunks(struct merge *merge, sqlite3 *db, unsigned tier, uint64_t window)
{
    struct merge_source *source = source_add(merge);
    if (!source)
        return -ENOMEM;
    source->start_s = window * history_window_s(tier);
    source->step_s = history_step_s[tier];
    const char *sql = store_sql(SQL_CHUNK_SCAN + (int)tier);
    int code = sqlite3_prepare_v2(db, sql, -1, &source->scan, NULL);
    if (code != SQLITE_OK)
        return store_errno(db, code);
    sqlite3_bind_int64(source->scan, 1, CHUNK_ID(window, 0));
    sqlite3_bind_int64(source->scan, 2, CHUNK_ID(window, SERIES_MAX));
    return source_next(merge, source, db);
}

/* ---- points ---- */

struct steps {
    bool present[PACK_SLOTS_MAX];
    uint64_t last[PACK_SLOTS_MAX], max[PACK_SLOTS_MAX];
};

static void steps_add(struct steps *steps, uint64_t start_s, uint32_t step_s,
                      const struct merge_source *source, const struct pack_points *points)
{
    for (unsigned i = 0; i < points->n; i++) {
        uint64_t time_s = source->start_s + (uint64_t)points->slot[i] * source->step_s;
        uint64_t slot = (time_s - start_s) / step_s; /* a large number for what is before */
        if (slot >= PACK_SLOTS_MAX)
            continue; /* of another window */
        bool before = steps->present[slot] && step_s > history_step_s[0];
        steps->last[slot] = points->last[i];
        if (!before || points->max[i] > steps->max[slot])
            steps->max[slot] = points->max[i];
        steps->present[slot] = true;
    }
}

static void steps_take(const struct steps *steps, struct pack_points *ret_points)
{
    unsigned n = 0;
    for (unsigned slot = 0; slot < PACK_SLOTS_MAX; slot++) {
        if (!steps->present[slot])
            continue;
        ret_points->slot[n] = (uint8_t)slot;
        ret_points->last[n] = steps->last[slot];
        ret_points->max[n++] = steps->max[slot];
    }
    ret_points->n = n;
    ret_points->has_max = true;
}

int merge_next(struct merge *merge, uint64_t start_s, uint32_t step_s,
               struct merge_points *ret_points)
{
    for (;;) {
        uint64_t least = UINT64_MAX;
        struct steps steps;
        memset(steps.present, 0, sizeof(steps.present));
        for (size_t i = 0; i < merge->n; i++)
            if (merge->sources[i].series < least)
                least = merge->sources[i].series;
        if (least == UINT64_MAX)
            return 0;
        for (size_t i = 0; i < merge->n; i++) {
            struct merge_source *source = &merge->sources[i];
            struct pack_points points;
            if (source->series != least)
                continue;
            if (pack_decode(source->chunk, source->len, &points) == 0)
                steps_add(&steps, start_s, step_s, source, &points);
            else
                merge->damaged++;
            int r =
                source_next(merge, source, source->scan ? sqlite3_db_handle(source->scan) : NULL);
            if (r < 0)
                return r;
        }
        ret_points->series = least;
        steps_take(&steps, &ret_points->points);
        if (ret_points->points.n)
            return 1;
    }
}

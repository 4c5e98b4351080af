/* Many lists of (series, chunk), each in the order of its series, as one: rows of `recent`, or of chunks of a
 * window. What both the closing of windows and reading are made of. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "history/pack.h"
#include "history/recent.h"

struct sqlite3;
struct sqlite3_stmt;

/* One list. Its chunks begin at `start_s` and have a point every `step_s`. */
struct merge_source {
    uint64_t start_s;
    uint32_t step_s;
    uint64_t series; /* the current one; UINT64_MAX at the end */
    const uint8_t *chunk;
    size_t len;
    /* either */
    uint8_t *row; /* of `recent`, owned */
    struct recent_cursor cursor;
    /* or */
    struct sqlite3_stmt *scan; /* gives (id, data), owned */
};

struct merge {
    struct merge_source *sources;
    size_t n, cap;
    uint64_t damaged; /* chunks and rows that made no sense and were left out */
};

void merge_release(struct merge *merge);

/* All rows of `recent` of a window, oldest first. */
int merge_add_recent(struct merge *merge, struct sqlite3 *db, uint64_t window);

/* The chunks of a window. */
int merge_add_chunks(struct merge *merge, struct sqlite3 *db, unsigned tier, uint64_t window);

/* Points of one series, at the steps of some tier. */
struct merge_points {
    uint64_t series;
    struct pack_points points; /* slots are counted from the start of the window asked for */
};

/* The next series and its points in the window that starts at `start_s`, rolled up to steps of `step_s`: of
 * each step the last value and the largest; where sources tell of the same moment, the later one counts.
 * 1, 0 at the end, or -errno. */
int merge_next(struct merge *merge, uint64_t start_s, uint32_t step_s,
               struct merge_points *ret_points);

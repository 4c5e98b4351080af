/* What the two halves of reading share: who is asked for, and what it was. */
#pragma once

#include <sqlite3.h>

#include "history/read.h"

struct read_series {
    uint64_t id;
    uint32_t metric;
    uint32_t line; /* in read_result.lines */
};

/* Points of one line in the current window, added up. */
struct sums {
    bool present[PACK_SLOTS_MAX];
    uint64_t last[PACK_SLOTS_MAX], max[PACK_SLOTS_MAX];
};

struct reading {
    const struct read_query *query;
    sqlite3 *db;
    sqlite3_stmt *get[HISTORY_TIERS];
    struct read_series *series; /* ordered by id */
    size_t n_series;
    struct sums *sums; /* by line */
    struct read_result result;
};

/* Find the series that the query asks for, and make a line for each of their groups. */
int read_select(struct reading *reading);

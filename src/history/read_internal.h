/* What the parts of reading share: who is asked for, and what it was. */
#pragma once

#include <sqlite3.h>

#include "history/read.h"

struct read_series {
    uint64_t id;
    uint32_t metric;
    size_t line;  /* in read_result.lines */
    size_t joint; /* in reading.joints, where the line has other series of this process; or 0 */
};

/* Points in the current window, added up. */
struct sums {
    bool present[PACK_SLOTS_MAX];
    uint64_t last[PACK_SLOTS_MAX], max[PACK_SLOTS_MAX];
};

/* Points of one process that has several series in one line: they do not add up, the later series counts. */
struct joint {
    size_t line;
    struct sums sums;
};

struct reading {
    const struct read_query *query;
    sqlite3 *db;
    sqlite3_stmt *get[HISTORY_TIERS];
    struct read_series *series; /* ordered by id */
    size_t n_series;
    struct sums *sums;    /* by line */
    struct joint *joints; /* 0 to n_joints; 0 stays empty */
    size_t n_joints;
    struct read_result result;
};

/* Open a file for reading, in a transaction. 0; -ENOENT where there is no history yet, -EBADMSG where it is not ours. */
int read_open(const char *path, sqlite3 **ret_db);

/* Find the series that the query asks for, and make a line for each of their groups. */
int read_select(struct reading *reading);

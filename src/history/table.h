/* The table `history`: one row for each series of values over time. Programs register it (query_table_register()) and
 * put a struct history_world into the world of a question. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct query_table;

/* Which file, and which time: see struct read_query. Reading blocks. */
struct history_world {
    const char *path;
    uint64_t since_s, until_s;
    uint64_t step_s; /* wanted */
    int64_t pid;     /* 0: all; a hint: rows of other processes may be left out */
    /* Set by the scan. */
    uint64_t read_step_s;  /* of the rows */
    uint64_t from_s, to_s; /* the time, moved out to whole steps */
    uint64_t oldest_s;     /* start of all that is kept; 0: nothing is, or nothing was read */
    uint64_t damaged;      /* chunks that were left out */
    bool pid_known;        /* the file has a process with this `pid`, at whatever time */
};

extern const struct query_table history_table;

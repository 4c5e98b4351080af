/* The table `history`: one row for each series of values over time. Programs register it (query_table_register()) and
 * put a struct history_world into the world of a question. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct query_row;
struct query_table;
struct read_line;
struct read_result;

/* Which file, and which time: see struct read_query. Reading blocks. */
struct history_world {
    const char *path;
    uint64_t since_s, until_s;
    uint64_t step_s; /* wanted */
    int64_t pid;     /* 0: all; a hint: rows of other processes may be left out */
    /* Of several processes that had this `pid`, only the one that began nearest to `start_s`: see read_choose_process(). */
    bool one_process;
    uint64_t start_s;
    /* NULL: the file is read. Else the rows are these lines, of bytes or of blocks; with `read_step_s` and what follows it. */
    const struct read_result *reading;
    bool blocks;
    /* Set by the scan. */
    uint64_t read_step_s;  /* of the rows */
    uint64_t from_s, to_s; /* the time, moved out to whole steps */
    uint64_t oldest_s;     /* start of all that is kept; 0: nothing is, or nothing was read */
    uint64_t damaged;      /* chunks that were left out */
    bool pid_known;        /* the file has a process with this `pid`, at whatever time */
};

extern const struct query_table history_table;

/* A reading that was made already, as the history that rows come from. Borrowed. */
struct history_world history_of_reading(const struct read_result *reading, bool blocks);

/* What a row of the table is made of, and whether its values are blocks. */
const struct read_line *history_row_line(const struct query_row *row);
bool history_row_blocks(const struct query_row *row);

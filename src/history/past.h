/* Tables as they were: host_past, processes_past, system_past and devices_past have a row for each row that the table had in each step
 * of a time, from what memoird recorded. `--at` and `--since` of a question to a table ask its past (past_spec()).
 *
 * A row has the values at the end of the step: of a process that ended before, there is none. Steps are aligned to 1970 and of one length for all nodes, so rows of one step have the same `time` everywhere; groups by time
 * count their nodes in `nodes`. Columns are those of the table that are recorded. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct buffer;
struct query_error;
struct query_spec;
struct query_table;

/* Which time, in seconds since 1970 (until is not included), and in which steps. All 0: the present. */
struct past_window {
    uint64_t since_s, until_s, step_s;
};

enum { PAST_AT_STEP_S = 10 }; /* of one moment: some seconds have no sample of their own */

/* One moment: the step that it lies in. */
struct past_window past_at(uint64_t time_s);

/* Make the tables known to the query core, with the table `history`; see query_table_register(). */
int past_tables_register(void);

/* Turn a question about the present into one about `window`, where that has a time: another table; of processes that ended, another
 * test. Groups of several steps are by `time`, too, and in its order. `texts` (empty at first) holds what had to be put together. 0; -EINVAL with
 * `ret_error` for a table whose past is not recorded; the buffer's error. */
int past_spec(struct query_spec *spec, const struct past_window *window, struct buffer *texts,
              struct query_error *ret_error);

/* Inside history: the tables of the past. */
#pragma once

#include <stddef.h>

#include "history/read.h"
#include "query/query.h"

extern const struct query_table past_table_host, past_table_processes, past_table_system,
    past_table_devices;

struct history_world;

enum { PAST_READS_MAX = 2 };

/* Read what a table needs, all in one step: that of `world`, or longer where only longer ones are kept. -EAGAIN where that changed meanwhile;
 * a file that is not there yet is an answer without lines. Results are to be released in any case. */
int past_read(struct history_world *world, struct read_query *queries, size_t n,
              struct read_result results[static PAST_READS_MAX]);

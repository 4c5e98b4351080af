/*
 * buffers.h: how live blocks look: rows of the view buffers, and a line that sums them up.
 */
#ifndef MEMOIR_CLI_BUFFERS_H
#define MEMOIR_CLI_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

#include "cli/query_print.h"

/* The columns that the layout needs, in this order, and the order of rows: the largest first. */
extern const char buffers_rows[], buffers_sort[];

struct query_style buffers_layout(const struct query_style *style);

/* Of a finished result of these columns whose question asked for others, too. */
struct buffers_sum {
    uint64_t blocks, bytes; /* all that matched */
    uint64_t shown;         /* rows of the result */
    uint64_t oldest_ns;     /* age of the oldest one */
    size_t processes;       /* that have some; 0: not known, since rows were cut off */
};
void buffers_sum(const struct query_result *result, struct buffers_sum *ret_sum);

#endif

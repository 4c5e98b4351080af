/*
 * log_table.h: changes of the books as a table of the query core, so that `memoir log` filters and prints rows as every other view does.
 */
#ifndef MEMOIR_CLI_LOG_TABLE_H
#define MEMOIR_CLI_LOG_TABLE_H

#include <stdint.h>

struct change;
struct query_table;

/* One row. What is costly to know is asked for when a column wants it. */
struct log_change {
    const struct change *change;
    uint64_t real_ns; /* when it was seen */
    /* What the program called the block; and of a process that is gone, how it ended. NULL: not known. Borrowed until the next
     * change. */
    const char *(*tag)(const struct log_change *row);
    const char *(*cause)(const struct log_change *row);
    void *context;
};

/* Rows come by query_result_add(), with query_row.custom a struct log_change. */
extern const struct query_table log_table;

#endif

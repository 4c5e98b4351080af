/* Tables of the query core (query/query.h) whose rows are made here: lines, stacks, and what may leak. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct query_table;
struct symbolizer;

extern const struct query_table profile_table_leaks, profile_table_lines, profile_table_stacks;

/* What the tables `lines` and `stacks` take beside books: query_world.profile. NULL there: no names, figures of now. */
struct profile_world {
    struct symbolizer *symbols; /* NULL: frames are modules and offsets */
    bool at_peak;               /* live figures are those at the peak of each account */
    bool (*goes_on)(size_t done, size_t all,
                    void *context); /* see profile_name_all(); may be NULL */
    void *context;
    /* Added up by scans: books looked at, those that could not be read, blocks that have no site for want of room. */
    uint64_t books, books_unread, sites_full;
};

/* Make them known to the query core; programs call it when they start, before other threads. 0; -EEXIST the second time. */
int profile_tables_register(void);

/* Tables of the query core (query/query.h) whose rows are made here: call sites, stacks, and what may leak. */
#pragma once

struct query_table;

extern const struct query_table profile_table_leaks, profile_table_stacks;

/* Make them known to the query core; programs call it when they start, before other threads. 0; -EEXIST the second time. */
int profile_tables_register(void);

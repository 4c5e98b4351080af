/* The table `explain` of the query core, for programs that may wait while mappings are read. */
#pragma once

struct query_table;

extern const struct query_table explain_table;

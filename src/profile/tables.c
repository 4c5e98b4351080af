/* See tables.h. */
#include "profile/tables.h"

#include "query/query.h"

int profile_tables_register(void)
{
    static const struct query_table *const tables[] = {&profile_table_leaks, &profile_table_lines,
                                                       &profile_table_stacks};
    int r = 0;
    for (size_t i = 0; i < sizeof(tables) / sizeof(*tables) && r == 0; i++)
        r = query_table_register(tables[i]);
    return r;
}

/* See tables.h. */
#include "daemon/tables.h"

#include "daemon/events_table.h"
#include "explain/table.h"
#include "history/past.h"
#include "profile/tables.h"
#include "query/query.h"

int tables_register(void)
{
    int r = profile_tables_register();
    if (r == 0)
        r = past_tables_register();
    if (r == 0)
        r = query_table_register(&events_table);
    return r == 0 ? query_table_register(&explain_table) : r;
}

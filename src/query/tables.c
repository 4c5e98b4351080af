/* The tables that a program has. See query.h. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "query/plan.h"

/* One more than there can be: NULL ends the list. */
static const struct query_table *tables[QUERY_TABLES_MAX + 1] = {
    &query_table_processes,        &query_table_host,          &query_table_system,
    &query_table_cgroups,          &query_table_accounts,      &query_table_devices,
    &query_table_device_processes, &query_table_buffers,       &query_table_sites,
    &query_table_exited,           &query_table_exited_blocks,
};

const struct query_table *const *query_tables(void)
{
    return tables;
}

const struct query_table *query_table_find(const char *name)
{
    for (size_t i = 0; tables[i]; i++)
        if (strcmp(tables[i]->name, name) == 0)
            return tables[i];
    return NULL;
}

int query_table_register(const struct query_table *table)
{
    assert(table->name && table->columns && table->show && table->show_by);
    size_t n = 0;
    while (tables[n])
        n++;
    if (query_table_find(table->name))
        return -EEXIST;
    if (n == QUERY_TABLES_MAX)
        return -ENOSPC;
    tables[n] = table;
    return 0;
}

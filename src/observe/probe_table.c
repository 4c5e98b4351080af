/* Walking probe tables. See probe_table.h. */
#include "observe/probe_table.h"

#include <stdio.h>
#include <string.h>

const struct probe_table *const probe_tables[] = {&probe_table_cuda, NULL};

/* Number of the first function of a table. A function with twins is one function: its twins differ in the stream only. */
static uint32_t table_first(const struct probe_table *table)
{
    uint32_t first = 1;
    for (size_t i = 0; probe_tables[i] && probe_tables[i] != table; i++)
        for (const struct probe_function *f = probe_tables[i]->functions; f->name; f++)
            first++;
    return first;
}

int probe_table_each(const struct probe_table *table,
                     int (*each)(void *context, const struct probe_symbol *symbol), void *context)
{
    char name[PROBE_NAME_MAX];
    uint32_t number = table_first(table);
    for (const struct probe_function *f = table->functions; f->name; f++, number++) {
        struct probe_symbol symbol = {f->name, f, number};
        int r = each(context, &symbol);
        for (const char *twin = f->twins; r == 0 && twin && *twin;) {
            size_t len = strcspn(twin, " ");
            snprintf(name, sizeof(name), "%s%.*s", f->name, (int)len, twin);
            symbol.name = name;
            r = each(context, &symbol);
            twin += len + strspn(twin + len, " ");
        }
        if (r != 0)
            return r;
    }
    return 0;
}

/* Tables have rows side by side: a number is an index into one of them. */
static const struct probe_function *find(uint32_t number, const struct probe_table **ret_table)
{
    static uint32_t counts[sizeof(probe_tables) / sizeof(probe_tables[0])];
    uint32_t at = 1;
    for (size_t i = 0; probe_tables[i]; at += counts[i], i++) {
        if (!counts[i])
            while (probe_tables[i]->functions[counts[i]].name)
                counts[i]++;
        if (number >= at && number - at < counts[i]) {
            *ret_table = probe_tables[i];
            return &probe_tables[i]->functions[number - at];
        }
    }
    return NULL;
}

const struct probe_function *probe_function_get(uint32_t number)
{
    const struct probe_table *table;
    return find(number, &table);
}

const char *probe_function_name(uint32_t number)
{
    const struct probe_function *f = probe_function_get(number);
    return f ? f->name : NULL;
}

const struct probe_table *probe_function_table(uint32_t number)
{
    const struct probe_table *table = NULL;
    return find(number, &table) ? table : NULL;
}

const struct probe_table *probe_table_for(const char *file_name)
{
    for (size_t i = 0; probe_tables[i]; i++)
        if (strncmp(file_name, probe_tables[i]->library, strlen(probe_tables[i]->library)) == 0)
            return probe_tables[i];
    return NULL;
}

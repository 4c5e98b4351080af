/* plugin.c: a library that needs memory when it is loaded, unloaded, and first used by a thread. */
#include <stdlib.h>
#include <string.h>

void *plugin_take(size_t bytes);
int plugin_count(void);

static void *kept[50];
static _Thread_local char buffer[5000]; /* the loader allocates it when it is first touched */

__attribute__((constructor)) static void come(void)
{
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        kept[i] = calloc(i + 1, 37);
}

__attribute__((destructor)) static void go(void)
{
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        free(kept[i]);
}

int plugin_count(void)
{
    int count = 0;
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        count += kept[i] != NULL;
    return count;
}

void *plugin_take(size_t bytes)
{
    memset(buffer, 1, sizeof(buffer));
    void *block = malloc(bytes);
    return block ? memset(block, buffer[bytes % sizeof(buffer)], bytes) : NULL;
}

/* plugin.c: a library that allocates for whoever loaded it. */
#include <stdlib.h>

void *plugin_block(size_t bytes);

__attribute__((visibility("default"))) void *plugin_block(size_t bytes)
{
    void *block = malloc(bytes);
    __asm__ volatile("" ::: "memory"); /* no tail call: the caller is here */
    return block;
}

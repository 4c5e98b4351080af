/* A library with the file name of a runtime that collects garbage, or of one that does not: what it takes is its own. */
#include <stdlib.h>

void *collected_take(size_t bytes);

__attribute__((noinline)) void *collected_take(size_t bytes)
{
    void *block = malloc(bytes);
    __asm__ volatile("" ::: "memory");
    return block;
}

/* stacks.c: known amounts of memory by known ways: two callers of one function that allocates, and a third
 * that gives all back. */
#include <string.h>

#include "own.h"

enum { MIB = 1 << 20 };

static void *keep[200000];
static int n_keep;

static __attribute__((noinline)) void *allocate(size_t bytes)
{
    void *block = malloc(bytes);
    MUST(block);
    own_got(bytes);
    return block;
}

/* 24 MiB that stay. */
__attribute__((noinline)) void large_way(void);
__attribute__((noinline)) void large_way(void)
{
    for (int i = 0; i < 24 * 1024; i++)
        keep[n_keep++] = allocate(1024);
}

/* 6 MiB that stay, in small blocks. */
__attribute__((noinline)) void small_way(void);
__attribute__((noinline)) void small_way(void)
{
    for (int i = 0; i < 6 * MIB / 64; i++)
        keep[n_keep++] = allocate(64);
}

/* 30 MiB of which nothing stays. */
__attribute__((noinline)) void passing_way(void);
__attribute__((noinline)) void passing_way(void)
{
    for (int i = 0; i < 15 * 1024; i++) {
        void *block = allocate(2048);
        own_gave(2048);
        free(block);
    }
}

int main(void)
{
    allocate(100000);
    large_way();
    small_way();
    passing_way();
    own_say("end");
    for (int i = 0; i < n_keep; i++) {
        own_gave(i < 24 * 1024 ? 1024 : 64);
        free(keep[i]);
    }
    own_say("freed");
    return 0;
}

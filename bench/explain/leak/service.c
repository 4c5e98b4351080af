/* Services with a planted leak, in C. Usage: service KIND leak|steady. Comments LINE:KIND mark what is to be named. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STEP_MS = 20, BLOCK = 4000, BLOCKS_STEP = 2, KEPT_MAX = 1000, USERS = 8 };

static void *kept[1 << 20];
static size_t n_kept, oldest;
static int steady;

static void keep(void *block)
{
    memset(block, 1, 64);
    kept[n_kept++ & ((1 << 20) - 1)] = block;
    if (steady && n_kept - oldest > KEPT_MAX)
        free(kept[oldest++ & ((1 << 20) - 1)]);
}

static void plain(int i)
{
    keep(malloc(BLOCK + (size_t)(i % 7))); /* LINE:plain */
}

/* A wrapper that no list has. */
__attribute__((noinline)) static void *memory(size_t size)
{
    void *block = malloc(size);
    if (!block)
        abort();
    return block;
}

#define USER(n)                                          \
    __attribute__((noinline)) static void user_##n(void) \
    {                                                    \
        void *block = memory(1 << (10 + n));             \
        __asm__ volatile("" : : "r"(block) : "memory");  \
        free(block);                                     \
    }
USER(0)
USER(1)
USER(2)
USER(3)
USER(4)
USER(5)
USER(6)

static void (*const users[])(void) = {user_0, user_1, user_2, user_3, user_4, user_5, user_6};

__attribute__((noinline)) static void wrapper(int i)
{
    keep(memory(BLOCK + (size_t)(i % 7))); /* LINE:wrapper */
}

int main(int argc, char **argv)
{
    steady = argc > 2 && strcmp(argv[2], "steady") == 0;
    int wrapped = argc > 1 && strcmp(argv[1], "wrapper") == 0;
    for (int i = 0;; i++) {
        for (int k = 0; k < BLOCKS_STEP; k++)
            wrapped ? wrapper(i) : plain(i);
        for (int k = 0; k < USERS - 1; k++)
            users[k]();
        nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000}, NULL);
    }
}

/* load_single.c: loads of one thread with small blocks. What differs is the order in which they are freed. */
#include "load.h"

#include <string.h>

/* A parser or an evaluator: nested work, each level frees its own. */
static void run_lifo(uint64_t work, int threads)
{
    enum { DEPTH = 4096 };
    static void *stack[DEPTH];
    uint64_t state = random_seed(0);
    size_t height = 0;
    for (uint64_t done = 0; done < work;) {
        size_t up = random_range(&state, 1, 64), down = random_range(&state, 1, 64);
        for (; up > 0 && height < DEPTH; up--, done++)
            stack[height++] = block_new(size_small(&state));
        for (; down > 0 && height > 0; down--)
            free(stack[--height]);
    }
    while (height > 0)
        free(stack[--height]);
}

/* Queues and logs: the oldest goes first. */
static void run_fifo(uint64_t work, int threads)
{
    enum { LENGTH = 20000 };
    static void *ring[LENGTH];
    uint64_t state = random_seed(0);
    for (uint64_t i = 0; i < work; i++) {
        free(ring[i % LENGTH]);
        ring[i % LENGTH] = block_new(size_small(&state));
    }
    for (size_t i = 0; i < LENGTH; i++)
        free(ring[i]);
}

/* Caches and trees: any may go. */
static void run_random(uint64_t work, int threads)
{
    enum { SLOTS = 100000 };
    static void *slots[SLOTS];
    uint64_t state = random_seed(0);
    for (uint64_t i = 0; i < work; i++) {
        void **slot = &slots[random_range(&state, 0, SLOTS - 1)];
        free(*slot);
        *slot = block_new(size_small(&state));
    }
    for (size_t i = 0; i < SLOTS; i++)
        free(slots[i]);
}

/* A whole program's mixture: most blocks die young, some stay, sizes from 8 bytes to 1 MiB, contents written. */
static void run_mixed(uint64_t work, int threads)
{
    enum { YOUNG = 256, OLD = 16384 };
    static void *slots[YOUNG + OLD];
    uint64_t state = random_seed(0);
    for (uint64_t i = 0; i < work; i++) {
        size_t at = i % 16 ? random_range(&state, 0, YOUNG - 1)
                           : random_range(&state, YOUNG, YOUNG + OLD - 1);
        size_t bytes = size_realistic(&state);
        free(slots[at]);
        slots[at] = block_new(bytes);
        memset(slots[at], 1, bytes < 512 ? bytes : 512);
    }
    for (size_t i = 0; i < YOUNG + OLD; i++)
        free(slots[i]);
}

/* One size after another, a few or many at a time, freed in order or backwards. */
static void run_simple(uint64_t work, int threads)
{
    static const size_t counts[] = {25, 100, 400, 1600};
    static void *blocks[1600];
    for (uint64_t round = 0; round < work; round++)
        for (size_t bytes = 16; bytes <= 1024; bytes *= 2)
            for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
                for (size_t repeat = 0; repeat < 1600 / counts[c]; repeat++) {
                    for (size_t i = 0; i < counts[c]; i++)
                        blocks[i] = block_new(bytes);
                    for (size_t i = 0; i < counts[c]; i++)
                        free(blocks[repeat % 2 ? i : counts[c] - 1 - i]);
                }
}

/* Zeroed and aligned blocks, from lines to matrices. */
static void run_calloc(uint64_t work, int threads)
{
    enum { SLOTS = 2048 };
    static void *slots[SLOTS];
    uint64_t state = random_seed(0);
    for (uint64_t i = 0; i < work; i++) {
        void **slot = &slots[random_range(&state, 0, SLOTS - 1)];
        size_t bytes = size_small(&state);
        free(*slot);
        *slot = NULL;
        if (i % 16 == 0) {
            if (posix_memalign(slot, (size_t)64 << (i / 16 % 4), bytes) != 0)
                abort();
        } else {
            *slot = calloc(i % 1024 ? 1 : 400, bytes);
        }
        if (!*slot)
            abort();
        ((volatile char *)*slot)[bytes - 1] = 1;
    }
    for (size_t i = 0; i < SLOTS; i++)
        free(slots[i]);
}

const struct load loads_single[] = {
    {"lifo", "small blocks, freed last in, first out", 1, 28000000, run_lifo},
    {"fifo", "20,000 small blocks, the oldest freed first", 1, 24000000, run_fifo},
    {"random", "100,000 small blocks, any freed", 1, 5000000, run_random},
    {"mixed", "16,640 blocks of 8 bytes to 1 MiB, most of which die young", 1, 5000000, run_mixed},
    {"simple", "25 to 1,600 blocks of one size, freed in order or backwards", 1, 600, run_simple},
    {"calloc", "zeroed blocks of 8 bytes to 200 KiB, and aligned ones", 1, 10000000, run_calloc},
    {0},
};

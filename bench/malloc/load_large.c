/* load_large.c: loads of large blocks: growth by realloc, reuse, and holes that stay when most was freed. */
#include "load.h"

#include <string.h>
#include <time.h>

static void *grown(void *block, size_t old, size_t bytes)
{
    unsigned char *next = realloc(block, bytes);
    if (!next)
        abort();
    block_touch(next + old, bytes - old);
    return next;
}

/* Vectors that grow by half, strings that grow a little at a time, and an array that doubles up to 64 MiB. */
static void run_growth(uint64_t work, int threads)
{
    enum { VECTORS = 32, VECTOR_MAX = 512 << 10, TEXT_MAX = 16 << 10, ARRAY_MAX = 64 << 20 };
    for (uint64_t round = 0; round < work; round++) {
        void *vectors[VECTORS] = {0};
        size_t bytes = 0, next = 24;
        for (; next < VECTOR_MAX; bytes = next, next += next / 2)
            for (int v = 0; v < VECTORS; v++)
                vectors[v] = grown(vectors[v], bytes, next + (size_t)v * 8);
        for (int v = 0; v < VECTORS; v++)
            free(vectors[v]);
        void *texts[2] = {0};
        for (bytes = 0; bytes < TEXT_MAX; bytes += 40)
            for (int t = 0; t < 2; t++)
                texts[t] = grown(texts[t], bytes, bytes + 40);
        free(texts[0]);
        free(texts[1]);
        if (round % 16 == 0) {
            void *array = NULL;
            for (bytes = 0, next = 4096; next <= ARRAY_MAX; bytes = next, next *= 2)
                array = grown(array, bytes, next);
            free(array);
        }
    }
}

/* A dozen buffers of 1 to 12 MiB, one after another replaced and written. */
static void run_reuse(uint64_t work, int threads)
{
    enum { LIVE = 12 };
    void *live[LIVE] = {0};
    uint64_t state = random_seed(0);
    for (uint64_t i = 0; i < work; i++) {
        void **slot = &live[random_range(&state, 0, LIVE - 1)];
        size_t bytes = random_range(&state, 1 << 20, 12 << 20);
        free(*slot);
        *slot = block_new(bytes);
    }
    for (int i = 0; i < LIVE; i++)
        free(live[i]);
}

/* The same with tables and images: 32 KiB to 1 MiB, 64 of them. */
static void run_medium(uint64_t work, int threads)
{
    enum { LIVE = 64 };
    void *live[LIVE] = {0};
    uint64_t state = random_seed(0);
    for (uint64_t i = 0; i < work; i++) {
        void **slot = &live[random_range(&state, 0, LIVE - 1)];
        size_t bytes = random_range(&state, 32 << 10, (size_t)64 << (10 + random_next(&state) % 5));
        free(*slot);
        *slot = block_new(bytes);
    }
    for (int i = 0; i < LIVE; i++)
        free(live[i]);
}

/* A peak of small blocks of which one in sixteen stays; a pause; then work with larger blocks, which would fit where the
 * others were. The pause is printed, so that it does not count as time. */
static void run_holes(uint64_t work, int threads)
{
    enum { LARGER = 4096, PAUSE_MS = 100 };
    uint64_t state = random_seed(0);
    void **blocks = calloc(work, sizeof(*blocks));
    static void *larger[LARGER];
    if (!blocks)
        abort();
    for (int cycle = 0; cycle < 3; cycle++) {
        for (uint64_t i = 0; i < work; i++)
            if (!blocks[i])
                blocks[i] = block_new(size_small(&state));
        for (uint64_t i = 0; i < work; i++)
            if (random_next(&state) >> 20 & 15) {
                free(blocks[i]);
                blocks[i] = NULL;
            }
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
        for (uint64_t i = 0; i < work / 4; i++) {
            void **slot = &larger[random_range(&state, 0, LARGER - 1)];
            free(*slot);
            *slot = block_new(random_range(&state, 1024, 16384));
        }
        for (size_t i = 0; i < LARGER; i++) {
            free(larger[i]);
            larger[i] = NULL;
        }
    }
    printf("{\"pause_s\": %g}\n", 3 * PAUSE_MS / 1000.0);
    for (uint64_t i = 0; i < work; i++)
        free(blocks[i]);
    free(blocks);
}

const struct load loads_large[] = {
    {"growth", "vectors, strings and a 64 MiB array that grow by realloc", 1, 64, run_growth},
    {"reuse", "12 live buffers of 1 to 12 MiB, replaced and written", 1, 1500, run_reuse},
    {"medium", "64 live buffers of 32 KiB to 1 MiB, replaced and written", 1, 200000, run_medium},
    {"holes", "a peak of which one block in sixteen stays, a pause, then larger blocks", 1, 600000,
     run_holes},
    {0},
};

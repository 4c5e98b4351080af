/* load_change.c: loads that change what they ask for in the course of time, or ask in another way. */
#include "load.h"

#include <string.h>

/* 20,000 blocks at cache lines, and 500 buffers of 4 to 32 KiB at pages, any replaced. */
static void run_aligned(uint64_t work, int threads)
{
    enum { LINES = 20000, PAGES = 500, LINE_BYTES = 64, PAGE_BYTES = 4096 };
    static void *lines[LINES], *pages[PAGES];
    uint64_t state = random_seed(0);
    for (uint64_t i = 0; i < work; i++) {
        bool page = i % 8 == 0;
        void **slot = page ? &pages[random_range(&state, 0, PAGES - 1)]
                           : &lines[random_range(&state, 0, LINES - 1)];
        size_t bytes =
            page ? random_range(&state, 1, 8) * PAGE_BYTES : random_range(&state, 24, 500);
        free(*slot);
        if (posix_memalign(slot, page ? PAGE_BYTES : LINE_BYTES, bytes) != 0)
            abort();
        block_touch(*slot, bytes);
    }
    for (size_t i = 0; i < LINES; i++)
        free(lines[i]);
    for (size_t i = 0; i < PAGES; i++)
        free(pages[i]);
}

/* From low to high, each doubling as often as the others. */
static size_t random_scale(uint64_t *state, size_t low, size_t high)
{
    unsigned doublings = 0;
    while (low << (doublings + 1) <= high)
        doublings++;
    size_t from = low << random_range(state, 0, doublings - 1);
    return random_range(state, from, 2 * from - 1);
}

/* All memory is in small blocks, then in buffers, then in large arrays, and so on: each time all of it is freed in between. */
static void run_turns(uint64_t work, int threads)
{
    enum { TURN_BYTES = 64 << 20, SMALLEST = 16 };
    static const size_t kinds[3][2] = {{SMALLEST, 512}, {4 << 10, 512 << 10}, {2 << 20, 8 << 20}};
    uint64_t state = random_seed(0);
    void **blocks = calloc(TURN_BYTES / SMALLEST, sizeof(*blocks));
    if (!blocks)
        abort();
    for (uint64_t turn = 0; turn < work; turn++) {
        size_t n = 0;
        for (size_t sum = 0; sum < TURN_BYTES; n++) {
            size_t bytes = random_scale(&state, kinds[turn % 3][0], kinds[turn % 3][1]);
            blocks[n] = block_new(bytes);
            sum += bytes;
        }
        while (n > 0)
            free(blocks[--n]);
    }
    free(blocks);
}

/* ---- a cache: values that were not asked for of late make room for others ---- */

struct value {
    struct value *newer, *older; /* in a ring */
    void *content;
    size_t bytes;
};

static void value_out(struct value *v)
{
    v->newer->older = v->older;
    v->older->newer = v->newer;
}

static void value_first(struct value *ring, struct value *v)
{
    v->older = ring->older;
    v->newer = ring;
    ring->older->newer = v;
    ring->older = v;
}

static size_t value_free(struct value *v)
{
    size_t bytes = v->bytes;
    value_out(v);
    free(v->content);
    *v = (struct value){0};
    return bytes;
}

static void *cache(void *argument)
{
    enum { KEYS = 200000, CAPACITY = 64 << 20, PERIODS = 4 };
    uint64_t work = *(uint64_t *)argument, state = random_seed(0);
    struct value *values = calloc(KEYS, sizeof(*values)), ring;
    ring.newer = ring.older = &ring;
    size_t used = 0;
    if (!values)
        abort();
    for (uint64_t i = 0; i < work; i++) {
        /* Few keys are asked for often. */
        struct value *v = &values[random_range(&state, 0, random_range(&state, 0, KEYS - 1))];
        if (v->content && random_next(&state) >> 20 & 7) {
            value_out(v);
            value_first(&ring, v);
            continue;
        }
        if (v->content) /* it is out of date */
            used -= value_free(v);
        bool small = i / (work / PERIODS + 1) % 2 == 0;
        v->bytes =
            small ? random_scale(&state, 1 << 10, 8 << 10) : random_scale(&state, 64, 256 << 10);
        v->content = malloc(v->bytes);
        if (!v->content)
            abort();
        memset(v->content, 1, v->bytes);
        value_first(&ring, v);
        for (used += v->bytes; used > CAPACITY;)
            used -= value_free(ring.newer);
    }
    while (ring.newer != &ring)
        value_free(ring.newer);
    free(values);
    return NULL;
}

static void run_cache(uint64_t work, int threads)
{
    threads_run(1, cache, &work, sizeof(work));
}

/* ---- threads that have little, of many sizes, and wait ---- */

struct idler {
    uint64_t rounds, seed;
    pthread_barrier_t *all_there;
};

static void *idle(void *argument)
{
    enum { BLOCKS = 100 };
    struct idler *self = argument;
    uint64_t state = self->seed;
    void *blocks[BLOCKS] = {0};
    for (uint64_t round = 0; round < self->rounds; round++)
        for (int i = 0; i < BLOCKS; i++) {
            void **slot = &blocks[random_range(&state, 0, BLOCKS - 1)];
            free(*slot);
            *slot = block_new(random_scale(&state, 16, 8 << 10));
        }
    pthread_barrier_wait(self->all_there);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    return NULL;
}

static void run_idle(uint64_t work, int threads)
{
    struct idler all[THREADS_MAX];
    pthread_barrier_t all_there;
    pthread_barrier_init(&all_there, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++)
        all[i] = (struct idler){work / (uint64_t)threads, random_seed(i), &all_there};
    threads_run(threads, idle, all, sizeof(all[0]));
    pthread_barrier_destroy(&all_there);
}

const struct load loads_change[] = {
    {"aligned", "20,000 blocks at cache lines, 500 buffers at pages, any replaced", 1, 5000000,
     run_aligned},
    {"turns", "64 MiB in small blocks, then in buffers, then in arrays, all freed in between", 1,
     12, run_turns},
    {"cache", "64 MiB of values, those not asked for of late replaced; their sizes change", 1,
     300000, run_cache},
    {"idle", "threads with 100 blocks of 16 bytes to 8 KiB each, all waiting in the end", 64, 50000,
     run_idle},
    {0},
};

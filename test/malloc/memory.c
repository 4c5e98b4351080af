/* memory.c: how much stays resident. Bounds are wide: what is tested is that memory comes back at all, by whoever freed it,
 * not how well it is packed, which is for the benchmarks. */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <semaphore.h>
#include <sys/resource.h>
#include <unistd.h>

#include "churn.h"
#include "links.h"

/* Two threads by turns: a baton says whose turn it is. */
static sem_t asked, answered;
static struct link *passed;
static bool over;

static void wait_for(sem_t *what)
{
    while (sem_wait(what) != 0)
        MUST(errno == EINTR);
}

static void *other_frees(void *unused)
{
    for (;;) {
        wait_for(&asked);
        if (over)
            return unused;
        give(passed);
        passed = NULL;
        sem_post(&answered);
    }
}

static pthread_t start_other(void *(*body)(void *))
{
    pthread_t id;
    sem_init(&asked, 0, 0);
    sem_init(&answered, 0, 0);
    MUST(pthread_create(&id, NULL, body, NULL) == 0);
    return id;
}

static void ask_other(void)
{
    sem_post(&asked);
    wait_for(&answered);
}

static void end_other(pthread_t id)
{
    over = true;
    sem_post(&asked);
    MUST(pthread_join(id, NULL) == 0);
}

static const size_t sizes[] = {24, 100, 700, 5000, 30000, 200000, 3000000};

/* What another thread freed is used again: the working set is 16 MiB at any time. */
static void memory_freed_by_another_is_reused(void)
{
    pthread_t id = start_other(other_frees);
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        size_t first = 0;
        for (int round = 0; round < 12; round++) {
            passed = take(16 * MIB, sizes[s]);
            ask_other();
            if (round == 2)
                first = case_resident();
        }
        size_t last = case_resident();
        MUST_SAY(last < first + 24 * MIB, "blocks of %zu: %zu MB resident, then %zu MB", sizes[s],
                 first >> 20, last >> 20);
    }
    end_other(id);
}

static void *takes_and_ends(void *list)
{
    struct link **ret = list;
    struct link *own = take(4 * MIB, 500);
    *ret = take(2 * MIB, 300);
    give(own);
    return NULL;
}

/* 300 threads, one after the other, with 6 MiB each, of which two are freed by the next. */
static void memory_of_ended_threads_is_reused(void)
{
    size_t first = 0;
    struct link *left = NULL;
    for (int i = 0; i < 300; i++) {
        pthread_t id;
        struct link *before = left;
        MUST(pthread_create(&id, NULL, takes_and_ends, &left) == 0);
        MUST(pthread_join(id, NULL) == 0);
        give(before);
        if (i == 10)
            first = case_resident();
    }
    give(left);
    size_t last = case_resident();
    MUST_SAY(last < first + 24 * MIB, "%zu MB resident, then %zu MB", first >> 20, last >> 20);
}

static void trim_gives_memory_back(void)
{
    free(malloc(100));
    size_t start = case_resident();
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        struct link *list = take(100 * MIB, sizes[s]);
        size_t full = case_resident();
        MUST(full > start + 90 * MIB);
        give(list);
        malloc_trim(0);
        size_t after = case_resident();
        MUST_SAY(after < start + 12 * MIB,
                 "blocks of %zu: %zu MB at the start, %zu MB full, %zu MB after malloc_trim",
                 sizes[s], start >> 20, full >> 20, after >> 20);
    }
}

static void *other_takes_and_frees(void *unused)
{
    for (;;) {
        wait_for(&asked);
        if (over)
            return unused;
        give(take(100 * MIB, 200));
        give(take(40 * MIB, 100000));
        sem_post(&answered);
    }
}

/* A thread that has freed much and sleeps does not keep it from those who trim. */
static void trim_reaches_memory_of_idle_threads(void)
{
    pthread_t id = start_other(other_takes_and_frees);
    size_t start = case_resident();
    ask_other();
    malloc_trim(0);
    size_t after = case_resident();
    MUST_SAY(after < start + 12 * MIB, "%zu MB at the start, %zu MB after malloc_trim", start >> 20,
             after >> 20);
    end_other(id);
}

/* Every 256th block stays: most of the memory between them is free. */
static void trim_gives_back_what_lies_between_blocks(void)
{
    enum { N = 60000, EACH = 1000 };
    static void *blocks[N];
    size_t start = case_resident();
    for (size_t i = 0; i < N; i++) {
        blocks[i] = malloc(EACH);
        MUST(blocks[i]);
        memset(blocks[i], 1, EACH);
    }
    for (size_t i = 0; i < N; i++)
        if (i % 256)
            free(blocks[i]);
    malloc_trim(0);
    size_t after = case_resident();
    MUST_SAY(after < start + 30 * MIB, "%zu MB at the start, %zu MB after malloc_trim", start >> 20,
             after >> 20);
}

/* As the issue of every long-running server: a burst of 400 MB is over, half of it freed by another thread, and
 * nobody calls malloc. Whoever still does anything at all must be enough to have it given back. */
static void burst_falls_to(size_t bound)
{
    enum { HALF = 200 };
    pthread_t id = start_other(other_frees);
    struct link *own = take(HALF * MIB, 400);
    passed = take(HALF * MIB, 400);
    ask_other();
    give(own);
    size_t left = case_resident();
    for (int i = 0; i < 25 && left > bound; i++) { /* at once, or within 2.5 s */
        usleep(100000);
        left = case_resident();
    }
    MUST_SAY(left <= bound, "%zu MB resident", left >> 20);
    end_other(id);
}

static void burst_is_given_back_under_pressure(void)
{
    const char *settings = getenv("MEMOIR_MALLOC");
    if (!settings || !strstr(settings, "pressure=high"))
        case_skip("needs MEMOIR_MALLOC=pressure=high");
    burst_falls_to(24 * MIB);
}

static void half_of_a_burst_is_given_back_without_pressure(void)
{
    burst_falls_to(200 * MIB);
}

static long faults(void)
{
    struct rusage usage;
    MUST(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_minflt;
}

/* The same large block again and again needs its pages but once. */
static void large_blocks_are_reused_without_faults(void)
{
    static const size_t large[] = {40000, 300000, 1500000, 5000000, 20000000};
    const char *settings = getenv("MEMOIR_MALLOC");
    if (settings && strstr(settings, "pressure=high"))
        case_skip("under pressure large blocks go back at once");
    for (size_t s = 0; s < COUNT_OF(large); s++) {
        size_t pages = large[s] / 4096;
        long before = faults();
        for (int i = 0; i < 50; i++) {
            void *block = malloc(large[s]);
            MUST(block);
            memset(block, i, large[s]);
            free(block);
        }
        long count = faults() - before;
        MUST_SAY(count < (long)pages * 5 + 200, "50 times %zu pages: %ld faults", pages, count);
    }
}

/* What one kind of block leaves behind is not kept on top of what the next kind needs. */
static void kept_large_blocks_make_room_for_small_ones(void)
{
    enum { SMALL = 40000, SMALL_BYTES = 1000 };
    static void *small[SMALL];
    size_t start = case_resident(), most = 0;
    unsigned char *large = malloc(64 * MIB);
    MUST(large);
    memset(large, 1, 64 * MIB);
    free(large);
    for (int i = 0; i < SMALL; i++) {
        small[i] = malloc(SMALL_BYTES);
        MUST(small[i]);
        memset(small[i], 1, SMALL_BYTES);
    }
    most = case_resident() - start;
    MUST_SAY(most < 85 * MIB, "%zu MB resident for 64 MiB, then 40 MB", most >> 20);
    for (int i = 0; i < SMALL; i++)
        free(small[i]);
}

enum { TURN_BYTES = 48 << 20, TURN_BLOCKS = TURN_BYTES / 200 };

/* Of all sizes up to 4 KiB, or from 2 to 5 MB. */
static size_t turn_size(bool arrays, uint64_t *state)
{
    uint64_t random = case_random(state);
    return arrays ? 2000000 + random % 3000000 : 16 + (random >> 8) % (16u << random % 9);
}

/* All memory is in blocks of one kind, then none. Pages that had to be fetched. */
static long turn(void **blocks, bool arrays, uint64_t *state)
{
    long before = faults();
    size_t n = 0;
    for (size_t sum = 0; sum < TURN_BYTES; n++) {
        size_t bytes = turn_size(arrays, state);
        unsigned char *block = malloc(bytes);
        MUST(block && n < TURN_BLOCKS);
        for (size_t at = 0; at < bytes; at += 4096)
            block[at] = 1;
        blocks[n] = block;
        sum += bytes;
    }
    while (n > 0)
        free(blocks[--n]);
    return faults() - before;
}

/* Where one kind of block leaves off, the other begins, with the same memory. Slices are kept however slow the machine is; arrays for a second only, so some turns
 * may have lost theirs, but not all of them. */
static void small_blocks_and_arrays_take_each_others_memory(void)
{
    enum { TURNS = 12, PAGES = TURN_BYTES / 4096 };
    static void *blocks[TURN_BLOCKS];
    int (*whole)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "memoir_malloc_check");
    long fewest[] = {PAGES, PAGES};
    uint64_t state = 3;
    const char *settings = getenv("MEMOIR_MALLOC");
    if (settings && strstr(settings, "pressure=high"))
        case_skip("under pressure all goes back at once");
    MUST(mallopt(M_TRIM_THRESHOLD, -1) == 1);
    for (int i = 0; i < TURNS; i++) {
        long count = turn(blocks, i % 2 == 1, &state);
        if (count < fewest[i % 2])
            fewest[i % 2] = count;
        MUST_SAY(!whole || whole(STDERR_FILENO) == 0, "the heap is broken after turn %d", i);
    }
    MUST_SAY(fewest[0] < PAGES / 3, "small blocks: %ld faults for %d pages", fewest[0], PAGES);
    MUST_SAY(fewest[1] < PAGES / 3, "arrays: %ld faults for %d pages", fewest[1], PAGES);
    MUST_SAY(case_resident() < TURN_BYTES + 32 * MIB, "%zu MB resident", case_resident() >> 20);
}

static void calloc_of_much_touches_little(void)
{
    size_t start = case_resident();
    unsigned char *block = calloc(1, 512 * MIB);
    MUST(block);
    MUST_SAY(case_resident() < start + 8 * MIB, "%zu MB resident", case_resident() >> 20);
    MUST(block[0] == 0 && block[300 * MIB] == 0);
    free(block);
    block = malloc(512 * MIB);
    MUST(block && case_resident() < start + 8 * MIB);
    free(block);
}

/* A block that grows by a tenth each time is never there twice. */
static void growing_block_is_not_copied(void)
{
    struct rusage usage;
    size_t bytes = 16 * MIB;
    unsigned char *block = malloc(bytes);
    MUST(block);
    memset(block, 1, bytes);
    while (bytes < 200 * MIB) {
        size_t more = bytes + bytes / 10;
        block = realloc(block, more);
        MUST(block && block[bytes - 1] == 1);
        memset(block + bytes, 1, more - bytes);
        bytes = more;
    }
    MUST(getrusage(RUSAGE_SELF, &usage) == 0);
    size_t peak = (size_t)usage.ru_maxrss * 1024;
    MUST_SAY(peak < bytes + bytes / 4 + 16 * MIB, "a block of %zu MB, but %zu MB at the peak",
             bytes >> 20, peak >> 20);
    block = realloc(block, MIB);
    MUST(block && block[MIB - 1] == 1);
    free(block);
}

int main(int argc, char **argv)
{
#define CASE(name)  \
    {               \
#name, name \
    }
    static const struct test_case cases[] = {
        CASE(memory_freed_by_another_is_reused),
        CASE(memory_of_ended_threads_is_reused),
        CASE(trim_gives_memory_back),
        CASE(trim_reaches_memory_of_idle_threads),
        CASE(trim_gives_back_what_lies_between_blocks),
        CASE(burst_is_given_back_under_pressure),
        CASE(half_of_a_burst_is_given_back_without_pressure),
        CASE(large_blocks_are_reused_without_faults),
        CASE(kept_large_blocks_make_room_for_small_ones),
        CASE(small_blocks_and_arrays_take_each_others_memory),
        CASE(calloc_of_much_touches_little),
        CASE(growing_block_is_not_copied),
    };
    return cases_main(argc, argv, cases, COUNT_OF(cases));
}

/* few.c: threads that have few blocks, of many sizes: these share slabs, until there are more of one size. */
#include <malloc.h>
#include <memoir/heap.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "cases.h"

enum { SLICE_SHIFT = 14, SMALLEST = 16, LARGEST = 8192, SIZES = 57, MANY = 4000 };

static bool is_accounted(void)
{
    const char *settings = getenv("MEMOIR_MALLOC");
    return settings && strstr(settings, "account=1");
}

/* One of each size class. */
static size_t classes(void *blocks[SIZES])
{
    size_t n = 0;
    for (size_t bytes = SMALLEST; bytes <= LARGEST && n < SIZES;) {
        size_t step = bytes < 256 ? 16 : bytes < 1024 ? bytes / 8 : bytes / 12;
        MUST((blocks[n] = malloc(bytes)));
        MUST(malloc_usable_size(blocks[n]) >= bytes);
        memset(blocks[n], (int)n, bytes);
        n++;
        bytes = (bytes + step) / 16 * 16;
    }
    return n;
}

static size_t slices_of(void *const *blocks, size_t n)
{
    size_t slices = 0;
    for (size_t i = 0; i < n; i++) {
        bool seen = false;
        for (size_t k = 0; k < i && !seen; k++)
            seen = (uintptr_t)blocks[k] >> SLICE_SHIFT == (uintptr_t)blocks[i] >> SLICE_SHIFT;
        slices += !seen;
    }
    return slices;
}

static void in_thread(void *(*body)(void *), void *arg)
{
    pthread_t id;
    MUST(pthread_create(&id, NULL, body, arg) == 0 && pthread_join(id, NULL) == 0);
    MUST(memoir_malloc_check(STDERR_FILENO) == 0);
}

static void *have_few(void *unused)
{
    void *blocks[SIZES];
    size_t n = classes(blocks), slices = slices_of(blocks, n);
    MUST_SAY(n > 40, "%zu sizes", n);
    /* With accounting, those above 1 KiB have slabs of their own. */
    MUST_SAY(slices <= (is_accounted() ? n / 2 + 1 : n / 4 + 2), "%zu slices for %zu blocks",
             slices, n);
    MUST(memoir_malloc_check(STDERR_FILENO) == 0);
    for (size_t i = 0; i < n; i++)
        free(blocks[i]);
    return unused;
}

static const size_t odd_sizes[] = {8, 24, 40, 72, 136, 264, 520, 1032, 2056, 4104};

/* At most a seventh is lost of a size that there are many of. */
static void *have_many(void *unused)
{
    static void *blocks[MANY];
    for (size_t i = 0; i < COUNT_OF(odd_sizes); i++) {
        size_t bytes = odd_sizes[i], usable = 0;
        for (size_t k = 0; k < MANY; k++) {
            MUST((blocks[k] = malloc(bytes)));
            usable += malloc_usable_size(blocks[k]);
        }
        MUST_SAY(usable / MANY <= bytes + bytes / 7 + 16, "%zu for %zu", usable / MANY, bytes);
        MUST(memoir_malloc_check(STDERR_FILENO) == 0);
        for (size_t k = 0; k < MANY; k++)
            free(blocks[k]);
    }
    return unused;
}

static void few_blocks_of_many_sizes_share_slabs(void)
{
    in_thread(have_few, NULL);
    in_thread(have_many, NULL);
    in_thread(have_few, NULL); /* with the heap of the others */
}

static void sizes_with_many_blocks_have_slabs_of_their_own(void)
{
    in_thread(have_many, NULL);
    have_many(NULL);
}

/* ---- what is given to another thread is not counted, and yet not few ---- */

enum { BATCH = 20, BATCHES = 20, FURTHER_BYTES = 2056 };
static pthread_barrier_t turn;
static void *batch[BATCH];

static void *free_batches(void *unused)
{
    for (int i = 0; i < BATCHES; i++) {
        pthread_barrier_wait(&turn);
        for (size_t k = 0; k < BATCH; k++)
            free(batch[k]);
        pthread_barrier_wait(&turn);
    }
    return unused;
}

/* Few at a time that another thread frees, so that full slabs are let go from then on, and then many. */
static void blocks_for_others_end_the_sharing_as_well(void)
{
    static void *blocks[MANY];
    pthread_t id;
    size_t usable = 0;
    pthread_barrier_init(&turn, NULL, 2);
    MUST(pthread_create(&id, NULL, free_batches, NULL) == 0);
    for (int i = 0; i < BATCHES; i++) {
        for (size_t k = 0; k < BATCH; k++)
            MUST((batch[k] = malloc(FURTHER_BYTES)));
        pthread_barrier_wait(&turn);
        pthread_barrier_wait(&turn);
    }
    for (size_t k = 0; k < MANY; k++) {
        MUST((blocks[k] = malloc(FURTHER_BYTES)));
        usable += malloc_usable_size(blocks[k]);
    }
    MUST_SAY(usable / MANY <= FURTHER_BYTES + FURTHER_BYTES / 7, "%zu on average", usable / MANY);
    MUST(pthread_join(id, NULL) == 0);
    MUST(memoir_malloc_check(STDERR_FILENO) == 0);
    for (size_t k = 0; k < MANY; k++)
        free(blocks[k]);
}

/* Slabs of larger blocks with many holes are not for smaller ones: these would keep them for good. */
static void holes_of_larger_blocks_stay_free(void)
{
    static void *large[2 * MANY], *small[MANY];
    for (size_t i = 0; i < COUNT_OF(odd_sizes); i++) {
        size_t bytes = odd_sizes[i], above = 64, in_large = 0;
        while (above < bytes)
            above *= 2;
        for (size_t k = 0; k < COUNT_OF(large); k++)
            MUST((large[k] = malloc(above)));
        for (size_t k = 0; k < COUNT_OF(large); k += 2)
            free(large[k]);
        for (size_t k = 0; k < MANY; k++) {
            MUST((small[k] = malloc(bytes)));
            in_large += malloc_usable_size(small[k]) >= above;
        }
        MUST_SAY(in_large <= MANY / 8, "%zu of %zu bytes", in_large, bytes);
        for (size_t k = 1; k < COUNT_OF(large); k += 2)
            free(large[k]);
        for (size_t k = 0; k < MANY; k++)
            free(small[k]);
    }
    MUST(memoir_malloc_check(STDERR_FILENO) == 0);
}

/* ---- a slab with few blocks has few pages ---- */

enum { USED = 400, EACH = 32, USED_BYTES = 16000, PATTERN = 0x5a };

/* One of each size that others share: of memory that was not used before. */
static void *have_first_blocks(void *unused)
{
    for (size_t bytes = 64; bytes <= LARGEST; bytes *= 2) {
        unsigned char *block = malloc(bytes);
        MUST(block && malloc_usable_size(block) == bytes);
        MUST_SAY(block[bytes - 1] != PATTERN, "%zu bytes", bytes);
        free(block);
    }
    return unused;
}

/* What others have freed is for those that fill it. */
static void the_first_slabs_of_a_thread_take_no_memory_from_others(void)
{
    static char *used[USED];
    for (size_t i = 0; i < USED; i++) {
        MUST((used[i] = malloc(USED_BYTES)));
        memset(used[i], PATTERN, USED_BYTES);
    }
    for (size_t i = 0; i < USED; i += EACH)
        free(used[i]);
    in_thread(have_first_blocks, NULL);
    in_thread(have_first_blocks, NULL); /* with the heap of the other */
    for (size_t i = 0; i < USED; i++)
        if (i % EACH != 0)
            free(used[i]);
}

/* ---- alignment, and growing in place ---- */

static void *align_few(void *unused)
{
    for (size_t align = 32; align <= 4096; align *= 2)
        for (size_t bytes = 65; bytes <= LARGEST; bytes += bytes / 3) {
            char *block = aligned_alloc(align, bytes);
            MUST(block && (uintptr_t)block % align == 0 && malloc_usable_size(block) >= bytes);
            memset(block, 7, bytes);
            block = realloc(block, bytes + bytes / 4);
            MUST(block && block[0] == 7 && block[bytes - 1] == 7);
            free(block);
        }
    return unused;
}

static void shared_slabs_serve_alignments(void)
{
    in_thread(align_few, NULL);
}

/* ---- a child of fork() ---- */

static void *wait_with_few(void *unused)
{
    void *blocks[SIZES];
    size_t n = classes(blocks);
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    for (size_t i = 0; i < n; i++)
        free(blocks[i]);
    return unused;
}

static void a_child_goes_on_with_shared_slabs(void)
{
    pthread_t id;
    void *blocks[SIZES];
    pthread_barrier_init(&turn, NULL, 2);
    MUST(pthread_create(&id, NULL, wait_with_few, NULL) == 0);
    pthread_barrier_wait(&turn);
    size_t n = classes(blocks);
    pid_t child = case_fork();
    if (child == 0) {
        for (size_t i = 0; i < n; i++)
            free(blocks[i]);
        have_many(NULL);
        MUST(memoir_malloc_check(STDERR_FILENO) == 0);
        _exit(0);
    }
    case_reap(child);
    pthread_barrier_wait(&turn);
    MUST(pthread_join(id, NULL) == 0);
    for (size_t i = 0; i < n; i++)
        free(blocks[i]);
    MUST(memoir_malloc_check(STDERR_FILENO) == 0);
}

int main(int argc, char **argv)
{
#define CASE(name)  \
    {               \
#name, name \
    }
    static const struct test_case cases[] = {
        CASE(few_blocks_of_many_sizes_share_slabs),
        CASE(sizes_with_many_blocks_have_slabs_of_their_own),
        CASE(holes_of_larger_blocks_stay_free),
        CASE(blocks_for_others_end_the_sharing_as_well),
        CASE(the_first_slabs_of_a_thread_take_no_memory_from_others),
        CASE(shared_slabs_serve_alignments),
        CASE(a_child_goes_on_with_shared_slabs),
    };
    return cases_main(argc, argv, cases, COUNT_OF(cases));
}

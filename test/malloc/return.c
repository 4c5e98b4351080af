/* return.c: what goes back to the kernel when a program frees much and then does nothing: without pressure at least half
 * of it, under pressure nearly all. What is free is settled while it is freed, so no time has to pass. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cases.h"

#define MB ((size_t)1000000)

enum { THREADS = 2 };

/* What may stay of what was freed, by what the settings say about pressure. */
static size_t may_stay(size_t freed)
{
    const char *settings = getenv("MEMOIR_MALLOC");
    bool scarce = settings && (strstr(settings, "pressure=high") || strstr(settings, "=critical"));
    return scarce ? 24 * MB : freed / 2;
}

static size_t size_small(uint64_t *state)
{
    return 16 + case_random(state) % 240;
}

/* Each size class as much of the bytes as the others. */
static size_t size_mixed(uint64_t *state)
{
    unsigned power = 4 + case_random(state) % 13;
    return ((size_t)1 << power) + case_random(state) % ((size_t)1 << power);
}

static size_t size_large(uint64_t *state)
{
    return (48 << 10) + case_random(state) % (900 << 10);
}

static size_t size_huge(uint64_t *state)
{
    return (2 << 20) + case_random(state) % (8 << 20);
}

struct holder {
    void **blocks;
    size_t count;
    struct holder *other;
    pthread_t thread;
    uint64_t seed;
};

static struct holder holders[THREADS];
static pthread_barrier_t barrier;
static size_t (*size_next)(uint64_t *state);
static size_t bytes_each;

static void fill(struct holder *self)
{
    uint64_t state = self->seed;
    for (size_t had = 0; had < bytes_each;) {
        size_t bytes = size_next(&state);
        char *block = malloc(bytes);
        MUST(block);
        memset(block, 1, bytes);
        self->blocks[self->count++] = block;
        had += bytes;
    }
}

static void *hold(void *argument)
{
    struct holder *self = argument;
    fill(self);
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < self->count; i += 2)
        free(self->blocks[i]);
    for (size_t i = 1; i < self->other->count; i += 2)
        free(self->other->blocks[i]);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier); /* idle, but there */
    return NULL;
}

/* Two threads allocate `bytes` together, and each frees half of its own blocks and half of the other's. */
static void freed_by_two(size_t bytes, size_t (*size)(uint64_t *))
{
    size_t room = bytes / 8 * sizeof(void *);
    size_next = size;
    bytes_each = bytes / THREADS;
    MUST(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
    for (int i = 0; i < THREADS; i++) {
        struct holder *h = &holders[i];
        *h = (struct holder){.other = &holders[1 - i], .seed = 7 + (uint64_t)i};
        h->blocks = mmap(NULL, room, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        MUST(h->blocks != MAP_FAILED);
    }
    size_t before = case_resident();
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_create(&holders[i].thread, NULL, hold, &holders[i]) == 0);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++)
        munmap(holders[i].blocks, room);
    size_t after = case_resident(), stays = after > before ? after - before : 0;
    MUST_SAY(stays <= may_stay(bytes), "%zu of %zu bytes stayed, not more than %zu should", stays,
             bytes, may_stay(bytes));
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_join(holders[i].thread, NULL) == 0);
}

static void small_blocks_freed_by_two_threads(void)
{
    freed_by_two(400 * MB, size_small);
}

static void blocks_of_all_sizes_freed_by_two_threads(void)
{
    freed_by_two(400 * MB, size_mixed);
}

static void large_blocks_freed_by_two_threads(void)
{
    freed_by_two(200 * MB, size_large);
}

static void huge_blocks_freed_by_two_threads(void)
{
    freed_by_two(200 * MB, size_huge);
}

/* ---- limits ---- */

static size_t stays_of(size_t total, size_t bytes)
{
    static void *blocks[1 << 16];
    size_t n = total / bytes, before = case_resident();
    for (size_t i = 0; i < n; i++) {
        MUST(blocks[i] = malloc(bytes));
        memset(blocks[i], 1, bytes);
    }
    for (size_t i = 0; i < n; i++)
        free(blocks[i]);
    size_t after = case_resident();
    return after > before ? after - before : 0;
}

static void nothing_is_kept_where_the_program_wants_nothing_kept(void)
{
    MUST(mallopt(M_TRIM_THRESHOLD, 0) == 1);
    size_t small = stays_of(100 * MB, 2000), huge = stays_of(100 * MB, 4 * MB);
    MUST_SAY(small < 3 * MB, "%zu bytes of small blocks stayed", small);
    MUST_SAY(huge < 3 * MB, "%zu bytes of huge blocks stayed", huge);
}

static void all_is_kept_where_the_program_wants_it(void)
{
    const char *settings = getenv("MEMOIR_MALLOC");
    if (!settings || !strstr(settings, "pressure=none"))
        case_skip("memory may be scarce here, which wins");
    MUST(mallopt(M_TRIM_THRESHOLD, -1) == 1);
    size_t stays = stays_of(100 * MB, 2000);
    MUST_SAY(stays > 80 * MB, "only %zu bytes stayed", stays);
    MUST(malloc_trim(0) == 1);
    size_t trimmed = stays_of(2000, 2000); /* nothing more comes */
    MUST(trimmed < MB);
}

static const struct test_case cases[] = {
    {"small_blocks_freed_by_two_threads", small_blocks_freed_by_two_threads},
    {"blocks_of_all_sizes_freed_by_two_threads", blocks_of_all_sizes_freed_by_two_threads},
    {"large_blocks_freed_by_two_threads", large_blocks_freed_by_two_threads},
    {"huge_blocks_freed_by_two_threads", huge_blocks_freed_by_two_threads},
    {"nothing_is_kept_where_the_program_wants_nothing_kept",
     nothing_is_kept_where_the_program_wants_nothing_kept},
    {"all_is_kept_where_the_program_wants_it", all_is_kept_where_the_program_wants_it},
};

int main(int argc, char **argv)
{
    return cases_main(argc, argv, cases, COUNT_OF(cases));
}

/* return.c: what goes back to the kernel when a program frees much and then does nothing: without pressure at least half
 * of it, under pressure nearly all. What is free is settled while it is freed, so no time has to pass. And what is kept while a
 * program goes on. */
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

/* ---- growth ---- */

enum { STEADY_SLOTS = 8192, STEADY_OPERATIONS = 3000000, STEADY_LOOKS = 64 };
#define STEADY_LIVE (25 * MB)

/* Each power of two as often as the others, from 8 bytes to 3 MiB; of the large ones fewer, or there would be no others. */
static size_t size_any(uint64_t *state)
{
    unsigned power = 3 + case_random(state) % 19;
    while (power > 12 && case_random(state) % 4 != 0)
        power = 3 + case_random(state) % 19;
    size_t bytes = ((size_t)1 << power) + case_random(state) % ((size_t)1 << power);
    return bytes < 3 << 20 ? bytes : 3 << 20;
}

static void touch(char *block, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 4096)
        block[i] = 1;
    block[bytes - 1] = 1;
}

/* What is kept never adds up, however long a program goes on. Size classes and slabs that are not full take about a quarter more than what
 * is asked for; what is kept comes on top. */
static void steady_random_blocks_stay_near_what_is_live(void)
{
    static struct {
        char *at;
        size_t bytes;
    } slots[STEADY_SLOTS];
    uint64_t state = 11;
    size_t live = 0, before = case_resident(), most = 0;
    for (int i = 0; i < STEADY_OPERATIONS; i++) {
        size_t slot = case_random(&state) % STEADY_SLOTS;
        live -= slots[slot].bytes;
        free(slots[slot].at);
        slots[slot].at = NULL;
        slots[slot].bytes = 0;
        size_t bytes = size_any(&state);
        if (live + bytes <= STEADY_LIVE) {
            MUST(slots[slot].at = malloc(bytes));
            slots[slot].bytes = bytes;
            touch(slots[slot].at, bytes);
            live += bytes;
        }
        if (i % (STEADY_OPERATIONS / STEADY_LOOKS) == 0) {
            size_t now = case_resident() - before;
            most = now > most ? now : most;
        }
    }
    MUST_SAY(most < STEADY_LIVE * 9 / 5, "%zu bytes resident for %zu", most, STEADY_LIVE);
    for (size_t i = 0; i < STEADY_SLOTS; i++)
        free(slots[i].at);
}

/* Small blocks, then larger and larger ones that none of the free runs has room for: the memory of those before serves, or goes. */
static void memory_of_other_sizes_makes_room(void)
{
    static void *blocks[1 << 16];
    size_t before = case_resident(), most = 0;
    for (size_t bytes = 2000; bytes < 3 * MB; bytes = bytes * 5 / 3) {
        size_t n = STEADY_LIVE / bytes;
        for (size_t i = 0; i < n; i++) {
            MUST(blocks[i] = malloc(bytes));
            touch(blocks[i], bytes);
        }
        size_t now = case_resident() - before;
        most = now > most ? now : most;
        for (size_t i = 0; i < n; i++) /* every fourth stays until all others are gone */
            if (i % 4 != 0)
                free(blocks[i]);
        for (size_t i = 0; i < n; i += 4)
            free(blocks[i]);
    }
    MUST_SAY(most < STEADY_LIVE * 3 / 2, "%zu bytes resident for %zu", most, STEADY_LIVE);
}

/* ---- huge pages ---- */

static bool kernel_has_huge_pages(void)
{
    char line[200] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    bool has = file && fgets(line, sizeof(line), file) && !strstr(line, "[never]");
    if (file)
        fclose(file);
    return has;
}

struct pages {
    size_t asked_kb,
        huge_kb; /* mappings for which huge pages were asked, and what they have of them */
};

static struct pages pages_now(void)
{
    struct pages p = {0};
    char line[512];
    size_t kb, mapped = 0, huge = 0;
    FILE *file = fopen("/proc/self/smaps", "re");
    MUST(file);
    while (fgets(line, sizeof(line), file)) {
        if (sscanf(line, "Size: %zu kB", &kb) == 1)
            mapped = kb;
        else if (sscanf(line, "AnonHugePages: %zu kB", &kb) == 1)
            huge = kb;
        else if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " hg")) {
            p.asked_kb += mapped;
            p.huge_kb += huge;
        }
    }
    fclose(file);
    return p;
}

/* The kernel is asked for huge pages where a macro-block is full, and only there; it puts them there in its own time. What becomes
 * free is no more of them. */
static void full_macro_blocks_may_have_huge_pages(void)
{
    enum { BYTES = 1000, BLOCKS = 120000, MACRO_KB = 2048, WAIT_S = 12 };
    static char *blocks[BLOCKS];
    const char *settings = getenv("MEMOIR_MALLOC");
    if (!kernel_has_huge_pages())
        case_skip("the kernel has none");
    MUST(pages_now().asked_kb == 0);
    for (size_t i = 0; i < BLOCKS; i++) {
        MUST(blocks[i] = malloc(BYTES));
        memset(blocks[i], 1, BYTES);
        if (i == BLOCKS / 4) /* of a small program, none */
            MUST_SAY(pages_now().asked_kb == 0, "%zu KiB", pages_now().asked_kb);
    }
    struct pages full = pages_now();
    MUST_SAY(full.asked_kb >= 20 * MACRO_KB && full.asked_kb % MACRO_KB == 0, "%zu KiB in %s",
             full.asked_kb, settings ? settings : "");
    bool wait = !settings || !*settings; /* once is enough */
    for (int i = 0; wait && i < WAIT_S * 4 && pages_now().huge_kb == 0; i++)
        usleep(250000);
    bool there = pages_now().huge_kb > 0;
    for (size_t i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    malloc_trim(0);
    struct pages after = pages_now();
    MUST_SAY(after.asked_kb < 4 * MACRO_KB, "%zu KiB are left", after.asked_kb);
    if (wait && !there)
        case_skip("asked for, but the kernel had no time for it");
}

static const struct test_case cases[] = {
    {"small_blocks_freed_by_two_threads", small_blocks_freed_by_two_threads},
    {"blocks_of_all_sizes_freed_by_two_threads", blocks_of_all_sizes_freed_by_two_threads},
    {"large_blocks_freed_by_two_threads", large_blocks_freed_by_two_threads},
    {"huge_blocks_freed_by_two_threads", huge_blocks_freed_by_two_threads},
    {"nothing_is_kept_where_the_program_wants_nothing_kept",
     nothing_is_kept_where_the_program_wants_nothing_kept},
    {"all_is_kept_where_the_program_wants_it", all_is_kept_where_the_program_wants_it},
    {"steady_random_blocks_stay_near_what_is_live", steady_random_blocks_stay_near_what_is_live},
    {"memory_of_other_sizes_makes_room", memory_of_other_sizes_makes_room},
    {"full_macro_blocks_may_have_huge_pages", full_macro_blocks_may_have_huge_pages},
};

int main(int argc, char **argv)
{
    return cases_main(argc, argv, cases, COUNT_OF(cases));
}

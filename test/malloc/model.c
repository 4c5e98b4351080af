/* model.c: any sequence of calls, from several threads that hand their blocks to each other and end in between, against
 * a model: what is live does not overlap, is aligned, is as large as asked, and holds what was written into it. Some
 * threads fork meanwhile, and the child must find the same.
 *
 * SEED repeats a run as far as the scheduler lets it; OPS is how many operations; THREADS how many at once. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "cases.h"

enum { THREADS_MAX = 16, SLOTS = 300, MAILBOXES = 200, PHASES = 6, FILL_MAX = 16384, PAGE = 4096 };

/* A block of the model. Whoever holds its index is the only one to touch it. */
struct block {
    unsigned char *address; /* NULL: nothing allocated */
    size_t bytes;           /* that are filled: what was asked for, or all that is usable */
    size_t asked;
    uint64_t key; /* the contents follow from it */
};

static struct block blocks[THREADS_MAX * SLOTS + MAILBOXES];
static _Atomic uint32_t mailboxes[MAILBOXES]; /* indexes of blocks that nobody holds */
static uint32_t held[THREADS_MAX][SLOTS];
static uint64_t seed, operations, threads;
static _Atomic uint64_t forks_left;

static uint64_t word_at(const struct block *b, size_t at)
{
    uint64_t state = b->key ^ (uintptr_t)b->address ^ (uint64_t)b->bytes << 40 ^ at;
    return case_random(&state);
}

/* All of a small block; of a large one its ends and a word of some pages, to touch no more memory than that. */
static size_t next_word(const struct block *b, size_t at)
{
    if (b->bytes <= FILL_MAX || at < 512 || at + 520 > b->bytes)
        return at + 8;
    size_t step = at + (b->bytes / 24 / PAGE + 1) * PAGE;
    return step < b->bytes - 512 ? step : (b->bytes - 512) / 8 * 8;
}

static void fill(const struct block *b)
{
    size_t at = 0;
    for (; at + 8 <= b->bytes; at = next_word(b, at)) {
        uint64_t word = word_at(b, at);
        memcpy(b->address + at, &word, 8);
    }
    for (at = b->bytes / 8 * 8; at < b->bytes; at++)
        b->address[at] = (unsigned char)word_at(b, at);
}

/* The block may have moved from where it was filled, and only its first bytes may be left. */
static void check(const struct block *b, const unsigned char *now, size_t left, const char *when)
{
    size_t at = 0;
    for (; at + 8 <= left; at = next_word(b, at)) {
        uint64_t word = word_at(b, at);
        MUST_SAY(memcmp(now + at, &word, 8) == 0,
                 "seed %#lx: %s: byte %zu of %zu (%zu asked for) at %p, now %p, was overwritten",
                 seed, when, at, b->bytes, b->asked, (void *)b->address, (const void *)now);
    }
    for (at = b->bytes / 8 * 8; at < left; at++)
        MUST_SAY(now[at] == (unsigned char)word_at(b, at),
                 "seed %#lx: %s: the end of %zu bytes was overwritten", seed, when, b->bytes);
}

static size_t some_size(uint64_t *random)
{
    uint64_t r = case_random(random), sort = r % 100, more = r >> 32;
    if (sort < 8) { /* around a power of two, where classes end */
        size_t power = (size_t)1 << (3 + more % 20);
        return power + more / 32 % 35 - 17 + (power < 17 ? 17 : 0);
    }
    if (sort < 50)
        return more % 257;
    if (sort < 75)
        return more % 2049;
    if (sort < 90)
        return more % 33000;
    if (sort < 98)
        return more % 600000;
    return more % (6 << 20);
}

static void got(struct block *b, void *address, size_t asked, size_t align, uint64_t key)
{
    MUST_SAY(address, "seed %#lx: no block of %zu bytes, errno %d", seed, asked, errno);
    MUST_SAY((uintptr_t)address % align == 0, "seed %#lx: %zu bytes at %p, asked for alignment %zu",
             seed, asked, address, align);
    size_t usable = malloc_usable_size(address);
    MUST_SAY(usable >= asked, "seed %#lx: %zu bytes asked, %zu usable", seed, asked, usable);
    *b = (struct block){address, key % 4 == 0 ? usable : asked, asked, key};
    fill(b);
}

static void allocate(struct block *b, uint64_t *random)
{
    uint64_t r = case_random(random), key = case_random(random);
    size_t n = some_size(random), align = 16;
    void *address = NULL;
    switch (r % 16) {
    case 0:
    case 1:
    case 2: {
        address = calloc(r % 2 ? 1 : n, r % 2 ? n : 1);
        for (size_t i = 0; address && i<n; i += n> FILL_MAX ? 97 : 1)
            MUST_SAY(((char *)address)[i] == 0, "seed %#lx: calloc of %zu is not zero", seed, n);
        break;
    }
    case 3:
        align = (size_t)16 << (r >> 8) % 13;
        if (posix_memalign(&address, align, n) != 0)
            address = NULL;
        break;
    case 4:
        align = (size_t)16 << (r >> 8) % 18; /* to 2 MiB */
        address = memalign(align, n);
        break;
    case 5:
        align = (size_t)16 << (r >> 8) % 9;
        address = aligned_alloc(align, n);
        break;
    case 6:
        align = PAGE;
        address = r & 256 ? valloc(n) : pvalloc(n);
        break;
    case 7:
        address = r & 256 ? realloc(NULL, n) : reallocarray(NULL, n, 1);
        break;
    default:
        address = malloc(n);
    }
    got(b, address, n, align, key);
}

static void resize(struct block *b, uint64_t *random)
{
    struct block old = *b;
    size_t n = some_size(random) + 1;
    uint64_t r = case_random(random);
    if (r % 4 == 0) /* not far from what it was */
        n = old.asked + r / 4 % 64 + 1;
    check(&old, old.address, old.bytes, "before realloc");
    void *address = r & 256 ? realloc(old.address, n) : reallocarray(old.address, 1, n);
    MUST(address);
    /* What lies between the size asked for and the usable one need not be kept. */
    size_t left = old.bytes < old.asked ? old.bytes : old.asked;
    check(&old, address, left < n ? left : n, "after realloc");
    got(b, address, n, 16, r);
}

static void release(struct block *b, uint64_t *random)
{
    check(b, b->address, b->bytes, "before free");
    if (case_random(random) % 16 == 0)
        MUST(realloc(b->address, 0) == NULL);
    else
        free(b->address);
    b->address = NULL;
}

/* Of a child whose other threads are gone: its own blocks are its own. */
static void check_in_child(const uint32_t *slots, uint64_t *random)
{
    pid_t child = case_fork();
    if (child != 0) {
        case_reap(child);
        return;
    }
    for (size_t i = 0; i < SLOTS; i++) {
        struct block *b = &blocks[slots[i]];
        if (b->address && i % 3 == 0)
            release(b, random);
        else if (b->address)
            check(b, b->address, b->bytes, "in a child");
        else
            allocate(b, random);
    }
    _exit(0);
}

static bool may_fork(void)
{
    uint64_t left = atomic_load(&forks_left);
    while (left > 0)
        if (atomic_compare_exchange_weak(&forks_left, &left, left - 1))
            return true;
    return false;
}

struct task {
    size_t number;
    uint64_t random;
    uint64_t operations;
};

static void *work(void *argument)
{
    struct task *task = argument;
    uint32_t *slots = held[task->number];
    for (uint64_t i = 0; i < task->operations; i++) {
        uint64_t r = case_random(&task->random);
        uint32_t *slot = &slots[(r >> 16) % SLOTS];
        struct block *b = &blocks[*slot];
        if (!b->address)
            allocate(b, &task->random);
        else if (r % 8 < 2)
            resize(b, &task->random);
        else
            release(b, &task->random);
        if (r % 4 == 0) /* another thread goes on with it */
            *slot = atomic_exchange(&mailboxes[r / 4 % MAILBOXES], *slot);
        if (r >> 52 == 0 && i % 7 == 0)
            malloc_trim(0);
        if (r >> 54 == 1 && may_fork())
            check_in_child(slots, &task->random);
    }
    return NULL;
}

struct range {
    uintptr_t from, to;
};

static int by_address(const void *a, const void *b)
{
    uintptr_t x = ((const struct range *)a)->from, y = ((const struct range *)b)->from;
    return x < y ? -1 : x > y;
}

static void check_overlap(void)
{
    static struct range ranges[COUNT_OF(blocks)];
    size_t count = 0;
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        uintptr_t from = (uintptr_t)blocks[i].address;
        if (from)
            ranges[count++] = (struct range){from, from + malloc_usable_size(blocks[i].address)};
    }
    qsort(ranges, count, sizeof(ranges[0]), by_address);
    for (size_t i = 1; i < count; i++)
        MUST_SAY(ranges[i - 1].to <= ranges[i].from,
                 "seed %#lx: %#lx to %#lx and %#lx to %#lx overlap", seed, ranges[i - 1].from,
                 ranges[i - 1].to, ranges[i].from, ranges[i].to);
    MUST(count > 0);
}

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static void any_sequence_of_calls_keeps_blocks_apart(void)
{
    static struct task tasks[THREADS_MAX];
    static pthread_t ids[THREADS_MAX];
    uint32_t next = 0;
    MUST(getrandom(&seed, sizeof(seed), 0) == sizeof(seed));
    seed = setting("SEED", seed & 0xffffffff);
    operations = setting("OPS", 120000);
    threads = setting("THREADS", 4);
    if (threads < 1 || threads > THREADS_MAX)
        threads = 4;
    forks_left = operations / 10000;
    fprintf(stderr, "SEED=%#lx OPS=%lu THREADS=%lu\n", seed, operations, threads);
    for (size_t t = 0; t < THREADS_MAX; t++)
        for (size_t i = 0; i < SLOTS; i++)
            held[t][i] = next++;
    for (size_t i = 0; i < MAILBOXES; i++)
        mailboxes[i] = next++;
    uint64_t random = seed;
    for (int phase = 0; phase < PHASES;
         phase++) { /* the threads of one free what those of another left */
        for (size_t t = 0; t < threads; t++) {
            tasks[t] = (struct task){(t + (size_t)phase) % threads, case_random(&random),
                                     operations / threads / PHASES};
            MUST(pthread_create(&ids[t], NULL, work, &tasks[t]) == 0);
        }
        for (size_t t = 0; t < threads; t++)
            MUST(pthread_join(ids[t], NULL) == 0);
        check_overlap();
    }
    for (size_t i = 0; i < COUNT_OF(blocks); i++)
        if (blocks[i].address)
            release(&blocks[i], &random);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"any_sequence_of_calls_keeps_blocks_apart", any_sequence_of_calls_keeps_blocks_apart},
    };
    return cases_main(argc, argv, cases, COUNT_OF(cases));
}

/* Huge blocks: contents, alignment, reuse without faults, growth without copies, every system call failing. */
#include "malloc/huge.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "check.h"
#include "malloc/exchange.h"
#include "malloc/map.h"
#include "malloc/os.h"

#define MIB  ((size_t)1 << 20)
#define UNIT MAP_UNIT_BYTES

/* What macro-blocks left: none, or units that were used before, each of which is a mapping of its own to the kernel. */
static uint32_t exchange_on;
static void *freed_meanwhile; /* by another thread, when nothing that is kept was found to do */
unsigned exchange_share(void)
{
    return 0;
}

bool exchange_range(size_t bytes, struct huge_range *ret, size_t *ret_dirty)
{
    if (freed_meanwhile) {
        assert_true(huge_free(freed_meanwhile));
        freed_meanwhile = NULL;
    }
    if (!load_relaxed(&exchange_on))
        return false;
    size_t units = (bytes + UNIT - 1) / UNIT;
    char *at = os_map(units * UNIT, UNIT);
    if (!at)
        return false;
    memset(at, 0xee, units * UNIT);
    for (size_t i = 0; i < units; i += 2)
        os_huge_page(at + i * UNIT, UNIT, false);
    *ret = (struct huge_range){.at = at, .bytes = units * UNIT};
    *ret_dirty = ret->bytes;
    return true;
}

static struct huge_counts counts(void)
{
    struct huge_counts c;
    huge_count(&c);
    return c;
}

/* Nothing in use, nothing kept, and no memory of the last test's. */
static int start_anew(void **unused)
{
    os_fault = NULL;
    exchange_on = 0;
    huge_keep(SIZE_MAX, 3600 * NS_PER_S); /* nothing ages while a test is slow */
    huge_trim();
    struct huge_counts c = counts();
    assert_int_equal(c.blocks, 0);
    assert_int_equal(c.mapped_bytes, 0);
    assert_int_equal(c.asked_bytes, 0);
    assert_int_equal(c.kept_bytes, 0);
    return 0;
}

static uint64_t map_calls(void)
{
    return load_relaxed(&os_counts.map_calls);
}

static void blocks_are_aligned_and_known(void **unused)
{
    for (size_t align = 1; align <= 64 * UNIT; align *= 2)
        for (size_t bytes = MIB; bytes < 8 * MIB; bytes = bytes * 3 / 2 + 1) {
            bool zeroed = false;
            unsigned char *p = huge_alloc(bytes, align, &zeroed);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p & ((align < 64 ? 64 : align) - 1), 0);
            assert_true(huge_usable(p) >= bytes);
            assert_int_equal(counts().asked_bytes, bytes);
            assert_int_equal(map_kind(p), align >= UNIT ? MAP_HUGE_ALONE : MAP_HUGE);
            if (zeroed)
                assert_true(p[0] == 0 && memcmp(p, p + 1, bytes - 1) == 0);
            memset(p, 0xa5, huge_usable(p));
            assert_true(huge_free(p));
            assert_int_equal(map_kind(p), MAP_NONE);
        }
}

static void mapping_has_no_more_pages_than_needed(void **unused)
{
    void *p = huge_alloc(5 * MIB, 16, NULL);
    assert_true(counts().mapped_bytes <= 5 * MIB + os_page_bytes());
    huge_free(p);
}

static void data_begins_in_different_lines(void **unused)
{
    void *blocks[8];
    for (int i = 0; i < 8; i++) {
        blocks[i] = huge_alloc(2 * MIB, 16, NULL);
        for (int j = 0; j < i; j++)
            assert_true(((uintptr_t)blocks[i] ^ (uintptr_t)blocks[j]) & 4095);
    }
    for (int i = 0; i < 8; i++)
        huge_free(blocks[i]);
}

static long faults(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return use.ru_minflt;
}

static void freed_memory_is_used_again_without_faults(void **unused)
{
    size_t bytes = 20 * MIB;
    char *p = huge_alloc(bytes, 16, NULL);
    memset(p, 1, bytes);
    huge_free(p);
    uint64_t calls = map_calls();
    long before = faults();
    for (int i = 0; i < 50; i++) {
        p = huge_alloc(bytes - (size_t)i * 4096, 16, NULL);
        memset(p, i, bytes - (size_t)i * 4096);
        huge_free(p);
    }
    assert_int_equal(map_calls(), calls);
#if !defined(UNDER_ASAN) && !defined(UNDER_TSAN) /* whose shadow memory faults too */
    assert_true(faults() - before < 1000);
#else
    (void)before;
#endif
    assert_int_equal(counts().total_reused > 0, 1);
}

static void one_large_range_serves_many_blocks_and_again_one(void **unused)
{
    char *p = huge_alloc(64 * MIB - 8192, 16, NULL);
    char *other = huge_alloc(64 * MIB - 8192, 16, NULL); /* so that half the peak may be kept */
    huge_free(p);
    uint64_t calls = map_calls();
    void *blocks[8];
    for (int i = 0; i < 8; i++) {
        blocks[i] = huge_alloc(7 * MIB, 16, NULL);
        assert_in_range((uintptr_t)blocks[i], (uintptr_t)p & ~(UNIT - 1), (uintptr_t)p + 64 * MIB);
    }
    for (int i = 0; i < 8; i++)
        huge_free(blocks[(i * 3) % 8]);
    void *q = huge_alloc(63 * MIB, 16, NULL);
    assert_int_equal((uintptr_t)q / UNIT, (uintptr_t)p / UNIT);
    assert_int_equal(map_calls(), calls);
    huge_free(q);
    huge_free(other);
}

static void something_smaller_is_kept_and_made_longer(void **unused)
{
    char *p = huge_alloc(10 * MIB, 16, NULL);
    memset(p, 1, 10 * MIB);
    huge_free(p);
    uint64_t grown = counts().total_grown;
    bool zeroed = true;
    p = huge_alloc(30 * MIB, 16, &zeroed);
    assert_int_equal(counts().total_grown, grown + 1);
    assert_int_equal(counts().kept_bytes, 0);
    assert_false(zeroed);
    memset(p, 2, 30 * MIB);
    huge_free(p);
}

static void zeroes_are_zeroes(void **unused)
{
    for (size_t mib = 4; mib <= 128; mib *= 2) {
        unsigned char *p = huge_alloc(mib * MIB, 16, NULL);
        memset(p, 7, huge_usable(p));
        huge_free(p);
        bool zeroed = false;
        p = huge_alloc(mib * MIB - 100, 16, &zeroed);
        assert_true(p[8192] ==
                    (zeroed ? 0 : 7)); /* the first bytes may lie before what was written */
        if (zeroed)
            assert_true(memcmp(p, p + 1, mib * MIB - 101) == 0);
        else
            assert_true(mib <= 32); /* too much to be cleared by hand */
        huge_free(p);
        huge_trim();
    }
}

static void kept_and_used_hardly_exceed_the_peak(void **unused)
{
    unsigned seed = 99;
    void *blocks[16] = {0};
    uint64_t peak = 0;
    for (int i = 0; i < 2000; i++) {
        int at = rand_r(&seed) % 16;
        if (blocks[at]) {
            huge_free(blocks[at]);
            blocks[at] = NULL;
        } else {
            blocks[at] = huge_alloc(MIB + (size_t)rand_r(&seed) % (20 * MIB), 16, NULL);
        }
        struct huge_counts c = counts();
        peak = c.mapped_bytes > peak ? c.mapped_bytes : peak;
        assert_true(c.kept_bytes + c.mapped_bytes <= peak + peak / 6);
    }
    for (int i = 0; i < 16; i++)
        if (blocks[i])
            huge_free(blocks[i]);
}

/* Who frees all and then sleeps must not be left with all of it. */
static void less_than_half_is_kept_of_what_was_never_missed(void **unused)
{
    void *blocks[20];
    for (int i = 0; i < 20; i++)
        blocks[i] = huge_alloc(3 * MIB, 16, NULL);
    for (int i = 0; i < 20; i++)
        huge_free(blocks[i]);
    assert_true(counts().kept_bytes < 20 * 3 * MIB / 2);
    assert_true(counts().kept_bytes > 20 * 3 * MIB / 4);
}

static void what_is_kept_goes_with_time_and_by_order(void **unused)
{
    void *p = huge_alloc(8 * MIB, 16, NULL);
    huge_free(p);
    assert_true(counts().kept_bytes >= 8 * MIB);
    huge_age(clock_monotonic_coarse_ns());
    assert_true(counts().kept_bytes >= 8 * MIB);
    huge_age(clock_monotonic_coarse_ns() + 3601 * NS_PER_S);
    assert_int_equal(counts().kept_bytes, 0);
    p = huge_alloc(8 * MIB, 16, NULL);
    huge_free(p);
    assert_true(huge_trim());
    assert_false(huge_trim());
    assert_int_equal(counts().kept_bytes, 0);
    huge_keep(4 * MIB, NS_PER_S);
    p = huge_alloc(8 * MIB, 16, NULL);
    huge_free(p);
    assert_true(counts().kept_bytes <= 4 * MIB);
}

/* A thread that waited for the lock brings a time that has passed. */
static void clock_may_step_back(void **unused)
{
    void *p = huge_alloc(8 * MIB, 16, NULL), *q = huge_alloc(8 * MIB, 16, NULL);
    uint64_t peak = counts().peak_bytes;
    huge_age(clock_monotonic_coarse_ns() + 2 * 3600 * NS_PER_S);
    huge_free(p);
    huge_free(q);
    assert_int_equal(counts().peak_bytes, peak);
    assert_true(counts().kept_bytes > 0);
}

static void what_is_missed_soon_is_kept_more(void **unused)
{
    void *blocks[10];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 10; i++)
            blocks[i] = huge_alloc(8 * MIB, 16, NULL);
        for (int i = 0; i < 10; i++)
            huge_free(blocks[i]);
    }
    assert_true(counts().kept_bytes >= 80 * MIB);
}

static void realloc_keeps_the_contents(void **unused)
{
    for (int alone = 0; alone < 2; alone++) {
        size_t bytes = 2 * MIB;
        unsigned char *p = huge_alloc(bytes, alone ? 2 * UNIT : 16, NULL);
        memset(p, 3, bytes);
        uint64_t copied = counts().total_copied;
        while (bytes < 300 * MIB) {
            void *neighbour = huge_alloc(2 * MIB, 16, NULL);
            size_t more = bytes + bytes / 5 + 12345;
            p = huge_realloc(p, more);
            assert_non_null(p);
            assert_true(huge_usable(p) >= more);
            assert_int_equal(counts().asked_bytes, more + 2 * MIB);
            assert_true(p[0] == 3 && memcmp(p, p + 1, 2 * MIB - 1) == 0);
            p[more - 1] = 9;
            huge_free(neighbour);
            bytes = more;
        }
        assert_int_equal(counts().total_copied, copied);
        while (bytes > 4 * MIB) {
            bytes = bytes / 2 + 99;
            assert_ptr_equal(huge_realloc(p, bytes), p);
            assert_true(huge_usable(p) >= bytes &&
                        huge_usable(p) <= bytes + bytes / 4 + 2 * os_page_bytes());
            assert_true(p[0] == 3 && memcmp(p, p + 1, 2 * MIB - 1) == 0);
        }
        assert_true(huge_free(p));
        huge_trim();
    }
}

static void growing_page_by_page_seldom_asks_the_kernel(void **unused)
{
    size_t bytes = 64 * MIB;
    char *p = huge_alloc(bytes, 16, NULL);
    uint64_t before = load_relaxed(&os_counts.remap_calls);
    for (int i = 0; i < 1000; i++) {
        bytes += 4096;
        p = huge_realloc(p, bytes);
        assert_non_null(p);
        assert_true(huge_usable(p) >= bytes && huge_usable(p) < bytes + bytes / 32);
        p[bytes - 1] = 1;
    }
    assert_true(load_relaxed(&os_counts.remap_calls) - before < 50);
    assert_true(huge_free(p));
}

static void growing_block_takes_what_is_kept(void **unused)
{
    char *p = huge_alloc(100 * MIB, 16, NULL);
    memset(p, 1, 100 * MIB);
    huge_free(p);
    uint64_t calls = map_calls();
    size_t bytes = MIB;
    char *q = huge_alloc(bytes, 16, NULL);
    assert_int_equal((uintptr_t)q / UNIT, (uintptr_t)p / UNIT);
    for (; bytes < 90 * MIB; bytes += bytes / 10) {
        assert_ptr_equal(huge_realloc(q, bytes), q);
        struct huge_counts c = counts();
        assert_true(c.kept_bytes + c.mapped_bytes <= 119 * MIB);
    }
    assert_int_equal(map_calls(), calls);
    assert_int_equal(q[bytes / 2], 1); /* it is the same memory */
    /* Growing elsewhere, it makes room: what is kept goes. */
    q = huge_realloc(q, 300 * MIB);
    assert_non_null(q);
    assert_true(counts().kept_bytes <= 40 * MIB);
    assert_true(huge_free(q));
}

static void what_is_no_block_is_refused(void **unused)
{
    char *p = huge_alloc(3 * MIB, 16, NULL);
    char *alone = huge_alloc(3 * MIB, UNIT, NULL);
    int local;
    assert_false(huge_free(p + 16));
    assert_false(huge_free(p + 3 * MIB / 2));
    assert_false(huge_free(alone + 16));
    assert_false(huge_free(alone - 64));
    assert_false(huge_free(&local));
    assert_false(huge_free(NULL));
    assert_int_equal(huge_usable(p + 16), 0);
    assert_null(huge_realloc(p + 16, 8 * MIB));
    /* A header that was overwritten is told too. */
    char *header = (char *)((uintptr_t)p & ~(UNIT - 1)), saved = header[0];
    header[0] ^= 1;
    assert_false(huge_free(p));
    header[0] = saved;
    assert_int_equal(counts().blocks, 2);
    assert_true(huge_free(p));
    assert_false(huge_free(p));
    assert_true(huge_free(alone));
    assert_false(huge_free(alone));
}

static void absurd_sizes_are_refused(void **unused)
{
    errno = 5;
    assert_null(huge_alloc(SIZE_MAX, 16, NULL));
    assert_null(huge_alloc(PTRDIFF_MAX, 16, NULL));
    assert_null(huge_alloc((size_t)1 << 50, 16, NULL));
    assert_null(huge_alloc(MIB, (size_t)1 << 62, NULL));
    char *p = huge_alloc(2 * MIB, 16, NULL);
    memset(p, 1, 2 * MIB);
    assert_null(huge_realloc(p, SIZE_MAX));
    assert_null(huge_realloc(p, (size_t)1 << 50));
    assert_int_equal(p[2 * MIB - 1], 1);
    assert_int_equal(errno, 5);
    assert_true(huge_free(p));
}

static bool sum_up(void *p, size_t usable, size_t asked, void *arg)
{
    uint64_t *sum = arg;
    sum[0]++;
    sum[1] += asked;
    return asked != 7 * MIB;
}

static void walk_sees_all_blocks(void **unused)
{
    void *blocks[5];
    for (size_t i = 0; i < 5; i++)
        blocks[i] = huge_alloc((i + 2) * MIB, i % 2 ? UNIT : 16, NULL);
    uint64_t sum[2] = {0};
    assert_true(huge_free(blocks[2]));
    assert_true(huge_walk(sum_up, sum));
    assert_int_equal(sum[0], 4);
    assert_int_equal(sum[1], (2 + 3 + 5 + 6) * MIB);
    blocks[2] = huge_alloc(7 * MIB, 16, NULL);
    assert_true(huge_walk(sum_up, sum)); /* stops at the first, which is the newest */
    assert_int_equal(sum[0], 5);
    for (size_t i = 0; i < 5; i++)
        huge_free(blocks[i]);
}

static void child_that_finds_the_lock_held_can_free_what_it_inherited(void **unused)
{
    char *p = huge_alloc(4 * MIB, 16, NULL), *q = huge_alloc(4 * MIB, UNIT, NULL);
    huge_free(huge_alloc(4 * MIB, 16, NULL));
    p[0] = 1;
    huge_fork_prepare();
    pid_t child = fork();
    if (child == 0) {
        bool ok = counts().blocks == 0 && counts().kept_bytes == 0;
        char *mine = huge_alloc(8 * MIB, 16, NULL);
        ok = ok && mine && huge_free(p);
        q = huge_realloc(q, 40 * MIB);
        ok = ok && q && huge_free(q) && counts().blocks == 1 && huge_free(mine);
        ok = ok && counts().blocks == 0 && counts().mapped_bytes == 0;
        _exit(ok ? 0 : 1);
    }
    huge_fork_done(false);
    int status;
    assert_true(waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
    assert_true(huge_free(p));
    assert_true(huge_free(q));
}

/* ---- a random life, against a model ---- */

struct model {
    unsigned char *p;
    size_t bytes;
    unsigned char stamp;
};

/* A byte in every page, and the last. */
static void stamp(const struct model *m, size_t from)
{
    for (size_t i = from; i < m->bytes; i += 4096)
        m->p[i] = m->stamp;
    m->p[m->bytes - 1] = m->stamp;
}

static bool holds(const struct model *m, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 4096)
        if (m->p[i] != m->stamp)
            return false;
    return true;
}

#if defined(UNDER_TSAN)
enum { SLOTS = 12, SLOWER = 4 };
#else
enum { SLOTS = 12, SLOWER = 1 };
#endif

/* False if something is wrong. Failures of the kernel are not. */
static bool random_life(unsigned seed, int steps)
{
    struct model slots[SLOTS] = {0};
    bool ok = true;
    for (int i = 0; i < steps / SLOWER && ok; i++) {
        struct model *m = &slots[rand_r(&seed) % SLOTS];
        size_t bytes = MIB + (size_t)rand_r(&seed) % (rand_r(&seed) % 8 ? 3 * MIB : 16 * MIB);
        if (!m->p) {
            static const size_t aligns[] = {1, 16, 64, 4096, MIB, UNIT, 4 * UNIT};
            size_t align = aligns[rand_r(&seed) % 7];
            bool zeroed = false, clean = rand_r(&seed) % 2;
            m->p = huge_alloc(bytes, align, clean ? &zeroed : NULL);
            if (!m->p)
                continue;
            ok = ((uintptr_t)m->p & (align - 1)) == 0;
            m->bytes = bytes;
            m->stamp = 0;
            ok = ok && (!zeroed || holds(m, bytes));
            m->stamp = (unsigned char)(1 + rand_r(&seed) % 255);
            stamp(m, 0);
        } else if (rand_r(&seed) % 3 == 0) {
            size_t kept = bytes < m->bytes ? bytes : m->bytes;
            void *q = huge_realloc(m->p, bytes);
            if (q) {
                m->p = q;
                ok = holds(m, kept);
                m->bytes = bytes;
                stamp(m, (kept + 4095) / 4096 * 4096);
            } else {
                ok = holds(m, m->bytes);
            }
        } else {
            ok = holds(m, m->bytes) && huge_free(m->p);
            m->p = NULL;
        }
    }
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].p)
            ok = holds(&slots[i], slots[i].bytes) && huge_free(slots[i].p) && ok;
    return ok;
}

static void random_lives_keep_their_contents(void **unused)
{
    unsigned seed = check_seed();
    for (unsigned i = 0; i < 4; i++)
        assert_true(random_life(seed + i, 200));
    assert_int_equal(counts().blocks, 0);
}

/* The kernel neither extends nor moves what is several mappings to it. */
static void blocks_of_several_mappings_are_copied_to_grow(void **unused)
{
    exchange_on = 1;
    uint64_t mapped = os_counts.mapped_bytes - os_counts.unmapped_bytes;
    bool zeroed = true;
    unsigned char *p = huge_alloc(5 * MIB, 16, &zeroed);
    assert_false(zeroed);
    assert_true(counts().mapped_bytes <= 6 * MIB);
    memset(p, 5, 5 * MIB);
    struct huge_counts before = counts();
    p = huge_realloc(p, 11 * MIB);
    assert_non_null(p);
    assert_true(p[0] == 5 && memcmp(p, p + 1, 5 * MIB - 1) == 0);
    assert_int_equal(counts().total_moved, before.total_moved);
    assert_int_equal(counts().total_copied, before.total_copied + 1);
    p = huge_realloc(p, 3 * MIB);
    assert_true(p[0] == 5 && memcmp(p, p + 1, 3 * MIB - 1) == 0);
    assert_true(huge_free(p));
    huge_trim();
    assert_int_equal(os_counts.mapped_bytes - os_counts.unmapped_bytes, mapped);
}

/* What follows a block by more than an eighth of it goes back. */
static void what_is_more_than_needed_of_others_memory_goes(void **unused)
{
    exchange_on = 1;
    for (size_t bytes = MIB + 4096; bytes < 9 * MIB; bytes += MIB / 3) {
        void *p = huge_alloc(bytes, 16, NULL);
        assert_true(huge_usable(p) >= bytes);
        assert_true(huge_usable(p) <= bytes + bytes / 8 + 2 * os_page_bytes());
        huge_free(p);
        huge_trim();
    }
}

static void random_lives_with_memory_of_others_keep_their_contents(void **unused)
{
    exchange_on = 1;
    unsigned seed = check_seed();
    for (unsigned i = 0; i < 2; i++)
        assert_true(random_life(seed + i, 200));
    assert_int_equal(counts().blocks, 0);
}

static uint32_t every, calls_seen, kinds;

static bool every_nth_fails(enum os_call call)
{
    if (!(kinds >> call & 1))
        return false;
    return fetch_add_relaxed(&calls_seen, 1) % every == every - 1;
}

static void random_lives_survive_every_failing_call(void **unused)
{
    unsigned seed = check_seed();
    for (kinds = 1; kinds < 32; kinds = kinds == 16 ? 31 : kinds * 2)
        for (every = 1; every < 12; every += 1 + every / 3) {
            exchange_on = every % 2;
            os_fault = every_nth_fails;
            bool ok = random_life(seed + every, 50);
            os_fault = NULL;
            if (!ok)
                fail_msg("calls of kind %#x, every %u", kinds, every);
            assert_int_equal(counts().blocks, 0);
            assert_int_equal(counts().mapped_bytes, 0);
        }
}

static void *thread_life(void *arg)
{
    return (void *)(uintptr_t)!random_life((unsigned)(uintptr_t)arg, 80);
}

static void run_threads(unsigned seed)
{
    pthread_t threads[4];
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, thread_life, (void *)(uintptr_t)(seed + i)), 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
    assert_int_equal(counts().blocks, 0);
    assert_int_equal(counts().asked_bytes, 0);
}

static void threads_share_what_is_kept(void **unused)
{
    unsigned seed = check_seed();
    run_threads(seed);
    every = 5;
    kinds = 31;
    os_fault = every_nth_fails;
    store_relaxed(&exchange_on, 1);
    run_threads(seed + 100);
    os_fault = NULL;
}

static void what_was_freed_meanwhile_is_not_cut_and_forgotten(void **unused)
{
    freed_meanwhile = huge_alloc(8 * UNIT - 4096, 1, NULL);
    assert_non_null(freed_meanwhile);
    size_t mapped = counts().mapped_bytes;
    void *p = huge_alloc(3 * UNIT - 4096, 1, NULL);
    assert_non_null(p);
    assert_int_equal(counts().mapped_bytes + counts().kept_bytes, mapped);
    assert_true(huge_free(p));
}

/* Such a range cannot grow: it stays for blocks that fit. */
static void what_is_several_mappings_is_not_lost_to_a_larger_block(void **unused)
{
    char *p = huge_alloc(4 * UNIT - 4096, 1, NULL);
    char *unit = (char *)((uintptr_t)p & ~(UNIT - 1));
    assert_int_equal(madvise(unit + UNIT, UNIT, MADV_DONTDUMP), 0);
    assert_true(huge_free(p));
    assert_true(counts().kept_bytes > 3 * UNIT);
    char *q = huge_alloc(6 * UNIT, 1, NULL);
    assert_non_null(q);
    assert_true(counts().kept_bytes >= UNIT); /* as much as may be, besides */
    assert_true(huge_free(q));
}

#define TEST(name) cmocka_unit_test_setup(name, start_anew)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(blocks_are_aligned_and_known),
        TEST(mapping_has_no_more_pages_than_needed),
        TEST(data_begins_in_different_lines),
        TEST(freed_memory_is_used_again_without_faults),
        TEST(one_large_range_serves_many_blocks_and_again_one),
        TEST(something_smaller_is_kept_and_made_longer),
        TEST(what_was_freed_meanwhile_is_not_cut_and_forgotten),
        TEST(what_is_several_mappings_is_not_lost_to_a_larger_block),
        TEST(zeroes_are_zeroes),
        TEST(kept_and_used_hardly_exceed_the_peak),
        TEST(less_than_half_is_kept_of_what_was_never_missed),
        TEST(what_is_kept_goes_with_time_and_by_order),
        TEST(clock_may_step_back),
        TEST(what_is_missed_soon_is_kept_more),
        TEST(realloc_keeps_the_contents),
        TEST(growing_page_by_page_seldom_asks_the_kernel),
        TEST(growing_block_takes_what_is_kept),
        TEST(what_is_no_block_is_refused),
        TEST(absurd_sizes_are_refused),
        TEST(walk_sees_all_blocks),
        TEST(child_that_finds_the_lock_held_can_free_what_it_inherited),
        TEST(random_lives_keep_their_contents),
        TEST(blocks_of_several_mappings_are_copied_to_grow),
        TEST(what_is_more_than_needed_of_others_memory_goes),
        TEST(random_lives_with_memory_of_others_keep_their_contents),
        TEST(threads_share_what_is_kept),
        TEST(random_lives_survive_every_failing_call), /* last: may turn moves off */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

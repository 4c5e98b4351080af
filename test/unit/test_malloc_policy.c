/* What is kept makes room: slices for slices, huge blocks and slices for each other, within a bound and with few calls of the kernel. */
#include "malloc/policy.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "check.h"
#include "malloc/heap.h"
#include "malloc/huge.h"
#include "malloc/node.h"
#include "malloc/os.h"
#include "malloc/pressure.h"
#include "malloc/settings.h"
#include "malloc/source.h"
#include "malloc/thread.h"

/* What is asked of others, held fast. */
struct heap *heap_all;
struct lock heaps_lock;
struct slab slab_none;
bool node_many, grind_on;
uint32_t thread_modes;
void node_prefer(void *p, size_t bytes, unsigned node)
{
}
static unsigned looks, level = PRESSURE_PLENTY;
unsigned pressure_level_at(uint64_t now_ns)
{
    looks++;
    return level;
}

#define MIB ((uint64_t)1 << 20)

static uint64_t state = 7;

static uint64_t random_below(uint64_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % n;
}

struct held {
    uint64_t used, kept;
};

static struct held held_now(void)
{
    struct held h;
    huge_held(&h.used, &h.kept);
    h.used += source_main.n_used * SLICE_BYTES;
    h.kept += source_main.n_dirty_free * SLICE_BYTES;
    return h;
}

static struct slab *run_new(unsigned slices)
{
    struct span span;
    assert_true(source_take(&source_main, slices, 1, &span));
    return span.slab;
}

static void *huge_new(size_t bytes)
{
    void *p = huge_alloc(bytes, 1, NULL);
    assert_non_null(p);
    policy_grown(true);
    return p;
}

static int start_anew(void **unused)
{
    huge_trim();
    source_trim(&source_main);
    source_shrink(&source_main);
    assert_int_equal(held_now().used, 0);
    assert_int_equal(held_now().kept, 0);
    return 0;
}

/* Mostly short runs, and now and then one that no short one makes room for. */
static unsigned some_length(void)
{
    return random_below(16) ? 1 + (unsigned)random_below(4) : 1 + (unsigned)random_below(64);
}

/* However long it goes on, no more is held than the most that was in use, and a quarter; and the kernel is not asked all the time. */
static void a_steady_program_is_held_to_what_it_uses(void **unused)
{
    enum { SLOTS = 700, STEPS = 1000000, HUGE = 6 };
    static struct slab *runs[SLOTS];
    void *huge[HUGE] = {NULL};
    uint64_t used_most = 0, calls = os_counts.advise_calls + os_counts.unmap_calls;
    for (int step = 0; step < STEPS; step++) {
        struct slab **slot = &runs[random_below(SLOTS)];
        if (*slot)
            source_give(&source_main, *slot);
        *slot = random_below(8) ? run_new(some_length()) : NULL;
        if (random_below(2000) == 0) {
            void **block = &huge[random_below(HUGE)];
            if (*block)
                huge_free(*block);
            *block = huge_new(MIB + random_below(2 * MIB));
        }
        struct held h = held_now();
        used_most = h.used > used_most ? h.used : used_most;
        if (h.used + h.kept > used_most + used_most / 4 + 2 * MIB)
            fail_msg("%llu bytes used, %llu kept, at most %llu were used, in step %d",
                     (unsigned long long)h.used, (unsigned long long)h.kept,
                     (unsigned long long)used_most, step);
    }
    calls = os_counts.advise_calls + os_counts.unmap_calls - calls;
    print_message("# %llu calls in %d steps, %llu bytes used at most\n", (unsigned long long)calls,
                  STEPS, (unsigned long long)used_most);
    assert_true(calls < STEPS / 50);
    for (int i = 0; i < SLOTS; i++)
        if (runs[i])
            source_give(&source_main, runs[i]);
    for (int i = 0; i < HUGE; i++)
        if (huge[i])
            huge_free(huge[i]);
    memset(runs, 0, sizeof(runs));
}

/* Long runs of all lengths, few of which fit into what others left: they give back and fetch only so much of it, and stay within
 * the bound nevertheless. */
static void blocks_that_never_fit_do_not_ask_the_kernel_all_the_time(void **unused)
{
    enum { SLOTS = 192, STEPS = 200000 };
    struct slab *runs[SLOTS] = {NULL};
    uint64_t used_most = 0, taken = 0, purged = os_counts.purged_bytes;
    for (int step = 0; step < STEPS; step++) {
        struct slab **slot = &runs[random_below(SLOTS)];
        if (*slot)
            source_give(&source_main, *slot);
        unsigned slices = 1 + (unsigned)random_below(UINT64_C(2) << random_below(6));
        *slot = run_new(slices);
        taken += slices;
        struct held h = held_now();
        used_most = h.used > used_most ? h.used : used_most;
        assert_true(h.used + h.kept <= used_most + used_most / 4 + 2 * MIB);
    }
    purged = os_counts.purged_bytes - purged;
    print_message("# %llu MiB taken, %llu given back, %llu used at most\n",
                  (unsigned long long)(taken * SLICE_BYTES / MIB),
                  (unsigned long long)(purged / MIB), (unsigned long long)(used_most / MIB));
    assert_true(purged < taken * SLICE_BYTES / 200);
    for (int i = 0; i < SLOTS; i++)
        source_give(&source_main, runs[i]);
}

enum { MANY = 2048 }; /* slices, of 32 MiB */

/* Runs of one slice lie free between others, then longer ones are wanted. */
static uint64_t turn_to_longer_ones(void)
{
    static struct slab *runs[MANY];
    struct slab *longer[MANY / 2 / 16];
    uint64_t purged = os_counts.purged_bytes;
    for (int i = 0; i < MANY; i++)
        runs[i] = run_new(1);
    for (int i = 0; i < MANY; i += 2)
        source_give(&source_main, runs[i]);
    for (size_t i = 0; i < MANY / 2 / 16; i++)
        longer[i] = run_new(16);
    purged = os_counts.purged_bytes - purged;
    struct held h = held_now();
    assert_true(h.used <= MANY * SLICE_BYTES);
    assert_true(h.used + h.kept <= MANY * SLICE_BYTES / 4 * 5 + MIB);
    for (int i = 1; i < MANY; i += 2)
        source_give(&source_main, runs[i]);
    for (size_t i = 0; i < MANY / 2 / 16; i++)
        source_give(&source_main, longer[i]);
    return purged;
}

/* The first time, nearly all that is too much goes. If a program does that again and again, less of it. */
static void short_runs_make_room_for_long_ones(void **unused)
{
    enum { TIMES = 40 };
    uint64_t begun_ns = clock_monotonic_ns(), first = turn_to_longer_ones(), more = 0;
    assert_true(first >= 10 * MIB);
    for (int i = 0; i < TIMES; i++)
        more += turn_to_longer_ones();
    print_message("# %llu MiB given back, then %llu in %d times\n",
                  (unsigned long long)(first / MIB), (unsigned long long)(more / MIB), TIMES);
    /* The longer it takes, the more may go. */
    uint64_t by_time = (clock_monotonic_ns() - begun_ns) / (NS_PER_S / 32) * MIB;
    assert_true(more < TIMES * first * 3 / 4 + by_time);
}

static void slices_and_huge_blocks_make_room_for_each_other(void **unused)
{
    static struct slab *runs[MANY];
    void *huge[10];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++)
            runs[i] = run_new(1);
        uint64_t peak = held_now().used;
        for (int i = 0; i < MANY; i++)
            source_give(&source_main, runs[i]);
        for (int i = 0; i < 10; i++)
            huge[i] = huge_new(3 * MIB);
        struct held h = held_now();
        assert_true(h.used + h.kept <= peak + peak / 64 + MIB / 2);
        for (int i = 0; i < 10; i++)
            huge_free(huge[i]);
        for (int i = 0; i < MANY * 3 / 4; i++)
            runs[i] = run_new(1);
        h = held_now();
        assert_true(h.used + h.kept <= peak + peak / 64 + MIB / 2);
        for (int i = 0; i < MANY * 3 / 4; i++)
            source_give(&source_main, runs[i]);
    }
}

/* Whether something would have to go is known before: if there is as much of the other kind, and too much would be held. */
static void it_is_known_what_would_have_to_go(void **unused)
{
    static struct slab *runs[MANY];
    assert_false(policy_would_yield(1, true));
    assert_false(policy_would_yield(1, false));
    malloc_settings.keep_bytes = UINT64_C(1) << 40; /* however slow this is */
    for (int i = 0; i < MANY; i++)
        runs[i] = run_new(1);
    assert_false(policy_would_yield(MIB, true)); /* nothing is kept */
    for (int i = 0; i < MANY; i++)
        source_give(&source_main, runs[i]);
    uint64_t kept = held_now().kept;
    assert_true(kept > 30 * MIB);
    assert_true(policy_would_yield(kept, true));
    assert_false(policy_would_yield(kept + 1, true));
    assert_false(policy_would_yield(MIB, false)); /* no huge block is */
    huge_free(huge_alloc(20 * MIB, 1, NULL));     /* of fresh memory, or of the same */
    uint64_t mapped, kept_huge;
    huge_held(&mapped, &kept_huge);
    assert_true(kept_huge >= 4 * MIB);
    assert_true(policy_would_yield(kept_huge, false));
    assert_false(policy_would_yield(kept_huge + 1, false));
    malloc_settings.keep_bytes = SETTING_AUTO;
}

/* A program that grows by itself, and whose blocks fit, asks for nothing to be given back. */
static void what_fits_is_not_given_back(void **unused)
{
    static struct slab *runs[MANY];
    for (int i = 0; i < MANY; i++)
        runs[i] = run_new(1);
    uint64_t purged = os_counts.purged_bytes;
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < MANY / 4; i++)
            source_give(&source_main, runs[i]);
        for (int i = 0; i < MANY / 4; i++)
            runs[i] = run_new(1);
    }
    assert_int_equal(os_counts.purged_bytes, purged);
    for (int i = 0; i < MANY; i++)
        source_give(&source_main, runs[i]);
}

/* The next tick is one that may look. */
static void tick(void)
{
    struct timespec pause = {.tv_nsec = (POLICY_LOOK_MS + 20) * (long)NS_PER_MS};
    uint64_t until = clock_monotonic_coarse_ns() + (uint64_t)pause.tv_nsec;
    while (clock_monotonic_coarse_ns() < until)
        nanosleep(&pause, NULL);
    policy_tick(true);
}

static void who_has_little_does_not_look_how_scarce_memory_is(void **unused)
{
    struct slab *runs[POLICY_LOOK_MIN / MIB + 1];
    size_t n = sizeof(runs) / sizeof(runs[0]);
    malloc_settings.read = true;
    looks = 0;
    tick();
    assert_int_equal(looks, 0);

    for (size_t i = 0; i < n; i++)
        runs[i] = run_new(MIB / SLICE_BYTES);
    level = PRESSURE_HIGH;
    tick();
    assert_int_equal(looks, 1);
    assert_int_equal(policy_level(), PRESSURE_HIGH);

    /* Who was told to keep less hears of it when that is over. */
    for (size_t i = 0; i < n; i++)
        source_give(&source_main, runs[i]);
    source_trim(&source_main);
    level = PRESSURE_PLENTY;
    unsigned before = looks;
    tick();
    assert_int_equal(looks, before + 1);
    assert_int_equal(policy_level(), PRESSURE_PLENTY);
    tick();
    assert_int_equal(looks, before + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(short_runs_make_room_for_long_ones, start_anew),
        cmocka_unit_test_setup(slices_and_huge_blocks_make_room_for_each_other, start_anew),
        cmocka_unit_test_setup(it_is_known_what_would_have_to_go, start_anew),
        cmocka_unit_test_setup(what_fits_is_not_given_back, start_anew),
        cmocka_unit_test_setup(blocks_that_never_fit_do_not_ask_the_kernel_all_the_time,
                               start_anew),
        /* After these: the most that was in use is remembered. */
        cmocka_unit_test_setup(a_steady_program_is_held_to_what_it_uses, start_anew),
        cmocka_unit_test_setup(who_has_little_does_not_look_how_scarce_memory_is, start_anew),
    };
    malloc_settings.keep_bytes = SETTING_AUTO;
    return cmocka_run_group_tests_name("malloc_policy", tests, NULL, NULL);
}

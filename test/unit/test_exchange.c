/* Memory that goes between huge blocks and macro-blocks: nothing is in two places, nothing is lost, whatever the kernel refuses. */
#include "malloc/exchange.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "check.h"
#include "malloc/heap.h"
#include "malloc/huge_state.h"
#include "malloc/node.h"
#include "malloc/policy.h"
#include "malloc/settings.h"
#include "malloc/source.h"
#include "malloc/thread.h"
#include "os_faults.h"

/* What is asked of others, held fast. */
struct heap *heap_all;
struct lock heaps_lock;
struct slab slab_none;
bool node_many, grind_on;
uint32_t policy_level_now, thread_modes;
static uint32_t scarce; /* memory that has to be mapped would be too much */
bool policy_would_yield(size_t bytes, bool for_huge)
{
    return load_relaxed(&scarce);
}
void policy_grown(bool for_huge)
{
}
void policy_tick(bool needed)
{
}
void node_prefer(void *p, size_t bytes, unsigned node)
{
}

#define MIB  ((size_t)1 << 20)
#define UNIT MAP_UNIT_BYTES

static uint64_t mapped_now(void)
{
    return load_relaxed(&os_counts.mapped_bytes) - load_relaxed(&os_counts.unmapped_bytes);
}

static uint64_t mapped_before;

/* Nothing in use and nothing kept, of either kind; both keep all. */
static int start_anew(void **unused)
{
    os_fault = NULL;
    sources_n = 1;
    scarce = 0;
    exchange_moves_failed = 0;
    malloc_settings.keep_bytes = UINT64_C(1) << 40;
    malloc_settings.thp = THP_NEVER;
    huge_keep(SIZE_MAX, 3600 * NS_PER_S);
    huge_trim();
    source_trim(&source_main);
    source_shrink(&source_main);
    source_age(&source_main);
    source_main.keep_share = 8;
    assert_int_equal(source_main.n_macros, 0);
    assert_int_equal(source_main.n_used, 0);
    assert_int_equal(huge.counts.mapped_bytes, 0);
    assert_int_equal(huge_ranges.bytes, 0);
    mapped_before = mapped_now();
    return 0;
}

/* All of it is the kernel's again. */
static int nothing_is_lost(void **unused)
{
    os_fault = NULL;
    huge_trim();
    source_trim(&source_main);
    source_shrink(&source_main);
    assert_int_equal(source_main.n_macros, 0);
    assert_int_equal(huge.counts.blocks, 0);
    assert_int_equal(mapped_now(), mapped_before);
    return 0;
}

/* A macro-block's slices, all of them. */
static struct span whole_taken(void)
{
    struct span span;
    assert_true(source_take(&source_main, MACRO_SLICES_USABLE, 1, &span));
    memset(slab_memory(span.slab), 0xaa, (size_t)MACRO_SLICES_USABLE * SLICE_BYTES);
    return span;
}

static void given(struct slab *slab)
{
    source_give(&source_main, slab);
}

static void *huge_taken(size_t bytes)
{
    void *p = huge_alloc(bytes, 1, NULL);
    assert_non_null(p);
    memset(p, 0xbb, bytes);
    return p;
}

static char *unit_of(const void *p)
{
    return (char *)((uintptr_t)p & ~(UNIT - 1));
}

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (struct slab *const *)a, y = (uintptr_t) * (struct slab *const *)b;
    return x < y ? -1 : x > y;
}

/* Macro-blocks side by side, the lowest first. The kernel mostly has them so; somebody else's mapping may lie in between. */
enum { ROW = 8 };
static void row_taken(struct slab **row)
{
    enum { MOST = 64 };
    struct slab *all[MOST];
    int n = 0, first = -1;
    while (first < 0 && n < MOST) {
        all[n++] = whole_taken().slab;
        qsort(all, (size_t)n, sizeof(*all), by_address);
        for (int i = 0; i + ROW <= n; i++)
            if ((char *)all[i + ROW - 1] - (char *)all[i] == (ptrdiff_t)((ROW - 1) * UNIT))
                first = i;
    }
    assert_true(first >= 0);
    memcpy(row, &all[first], ROW * sizeof(*row));
    for (int i = 0; i < n; i++)
        if (i < first || i >= first + ROW)
            given(all[i]);
    source_shrink(&source_main);
    assert_int_equal(source_main.n_macros, ROW);
}

/* ---- from huge blocks to a source ---- */

static void a_source_takes_what_huge_blocks_left(void **unused)
{
    enum { UNITS = 6 };
    struct slab *slab[UNITS];
    char *p = huge_taken(UNITS * UNIT - 4096), *from = unit_of(p);
    assert_true(huge_free(p));
    uint64_t mapped = mapped_now(), calls = os_counts.map_calls;
    for (int i = 0; i < UNITS - 1; i++) {
        struct span span = whole_taken();
        assert_in_range((uintptr_t)span.slab, (uintptr_t)from, (uintptr_t)from + UNITS * UNIT);
        assert_int_equal(span.dirty, bits_run(0, MACRO_SLICES_USABLE));
        slab[i] = span.slab;
    }
    assert_int_equal(os_counts.map_calls, calls);
    assert_int_equal(mapped_now(), mapped);
    for (int i = 0; i < UNITS - 1; i++)
        given(slab[i]);
}

/* A block's last unit is not whole: what it lacks is zero. */
static void part_of_a_unit_is_completed(void **unused)
{
    char *p = huge_taken(UNIT / 2);
    assert_true(huge_free(p));
    uint64_t calls = os_counts.map_calls;
    struct span span;
    assert_true(source_take(&source_main, MACRO_SLICES_USABLE, 1, &span));
    assert_ptr_equal(macro_of(span.slab), unit_of(p));
    assert_int_equal(os_counts.map_calls, calls);
    unsigned dirty = bits_count(span.dirty);
    assert_in_range(dirty, 60, 68);
    const char *memory = slab_memory(span.slab);
    assert_int_equal(span.dirty, bits_run(0, dirty));
    for (unsigned i = 0; i < MACRO_SLICES_USABLE; i++)
        if (i < 60 ||
            i >= dirty) /* not at the end of the block, of whose last page only a part was used */
            assert_int_equal(memory[(size_t)i * SLICE_BYTES + 5], i < dirty ? (char)0xbb : 0);
    given(span.slab);
}

static bool no_remap(enum os_call call)
{
    return call == OS_CALL_REMAP;
}

static void what_cannot_be_completed_stays_where_it_is(void **unused)
{
    char *p = huge_taken(UNIT / 2);
    assert_true(huge_free(p));
    size_t kept = huge_ranges.bytes;
    os_fault = no_remap;
    struct slab *slab = whole_taken().slab;
    os_fault = NULL;
    assert_ptr_not_equal(macro_of(slab), unit_of(p));
    assert_int_equal(huge_ranges.bytes, kept);
    given(slab);
}

/* Free slices without memory come after what huge blocks left, where these would have to go otherwise. */
static void memory_of_huge_blocks_comes_before_slices_without(void **unused)
{
    struct slab *slab = whole_taken().slab;
    given(slab);
    source_trim(&source_main);
    void *p = huge_taken(UNIT - 4096);
    assert_true(huge_free(p));
    struct span span = whole_taken();
    assert_ptr_equal(span.slab, slab);
    given(span.slab);
    source_trim(&source_main);
    scarce = 1;
    span = whole_taken();
    assert_ptr_equal(macro_of(span.slab), unit_of(p));
    given(span.slab);
}

/* ---- from a source to huge blocks ---- */

static void a_huge_block_takes_macro_blocks_side_by_side(void **unused)
{
    struct slab *row[ROW];
    row_taken(row);
    for (int i = 0; i < ROW; i++)
        given(row[i]);
    uint64_t mapped = mapped_now(), calls = os_counts.map_calls;
    bool zeroed = true;
    char *p = huge_alloc(3 * UNIT - 4096, 1, &zeroed);
    assert_false(zeroed);
    char *q = huge_taken((ROW - 3) * UNIT - 4096);
    assert_int_equal(os_counts.map_calls, calls);
    assert_int_equal(mapped_now(), mapped);
    assert_int_equal(source_main.n_macros, 0);
    assert_int_equal(map_kind(p), MAP_HUGE);
    assert_int_equal(map_kind(p + UNIT), MAP_NONE);
    assert_true(huge_free(p));
    assert_true(huge_free(q));
}

static void slabs_are_not_taken(void **unused)
{
    struct slab *row[ROW];
    row_taken(row);
    for (int i = 1; i < ROW; i += 2)
        given(row[i]);
    void *p = huge_taken(2 * UNIT - 4096); /* for which single ones are not enough */
    for (int i = 0; i < ROW; i++)
        assert_ptr_not_equal(unit_of(p), macro_of(row[i]));
    for (int i = 0; i < ROW; i += 2)
        given(row[i]);
    assert_true(huge_free(p));
}

static void macro_blocks_without_memory_are_not_taken(void **unused)
{
    struct slab *row[ROW];
    row_taken(row);
    for (int i = ROW; i-- > 0;)
        given(row[i]);
    source_trim(&source_main); /* those that became empty last stay mapped */
    assert_true(map_kind(macro_of(row[0])) == MAP_MACRO && map_kind(macro_of(row[1])) == MAP_MACRO);
    void *p = huge_taken(2 * UNIT - 4096);
    assert_true(map_kind(macro_of(row[0])) == MAP_MACRO && map_kind(macro_of(row[1])) == MAP_MACRO);
    assert_true(huge_free(p));
}

/* Every other one is free, and memory is scarce. */
static void apart_given(struct slab *row[ROW])
{
    row_taken(row);
    for (int i = 0; i < ROW; i += 2)
        given(row[i]);
    scarce = 1;
}

/* Where memory is scarce, their pages move to one place, and what is left of the block is fetched. */
static void macro_blocks_from_anywhere_are_gathered(void **unused)
{
    struct slab *row[ROW];
    apart_given(row);
    uint64_t remaps = os_counts.remap_calls, mapped = mapped_now();
    bool zeroed = true;
    unsigned char *p = huge_alloc(3 * UNIT + UNIT / 4, 1, &zeroed);
    assert_non_null(p);
    assert_false(zeroed);
    assert_int_equal(os_counts.remap_calls, remaps + 3);
    assert_in_range(mapped_now() - mapped, UNIT / 4, UNIT / 4 + 2 * os_page_bytes());
    assert_int_equal(source_main.n_macros, ROW - 3);
    assert_int_equal(p[UNIT + UNIT / 2], 0xaa); /* it is the same memory */
    assert_int_equal(p[3 * UNIT + UNIT / 8], 0);
    memset(p, 1, 3 * UNIT + UNIT / 4);
    for (int i = 1; i < ROW; i += 2) { /* what was between them is as it was */
        const unsigned char *memory = (unsigned char *)slab_memory(row[i]);
        assert_true(memory[0] == 0xaa && memory[100 * SLICE_BYTES] == 0xaa);
        given(row[i]);
    }
    /* Of several mappings: it grows all the same. */
    p = huge_realloc(p, 6 * UNIT);
    assert_non_null(p);
    assert_true(p[0] == 1 && memcmp(p, p + 1, 3 * UNIT + UNIT / 4 - 1) == 0);
    assert_true(huge_free(p));
}

/* The kernel was told to put some of them onto huge pages: to it they are mappings of their own. */
static void macro_blocks_on_huge_pages_are_as_good(void **unused)
{
    struct slab *row[ROW];
    row_taken(row);
    bool has = true; /* this kernel */
    for (int i = 1; i < ROW; i += 3) {
        has = has && os_huge_page(macro_of(row[i]), MACRO_BYTES, true);
        macro_of(row[i])->huge_page = has;
    }
    for (int i = 0; i < ROW; i++)
        given(row[i]);
    uint64_t advised = os_counts.advise_calls;
    unsigned char *p = huge_taken(ROW * UNIT - 4096);
    assert_ptr_equal(unit_of(p), macro_of(row[0]));
    assert_int_equal(os_counts.advise_calls, advised + has);
    p = huge_realloc(p, 3 * UNIT);
    assert_non_null(p);
    memset(p, 3, 3 * UNIT);
    p = huge_realloc(p, 2 * ROW * UNIT);
    assert_non_null(p);
    assert_true(p[0] == 3 && memcmp(p, p + 1, 3 * UNIT - 1) == 0);
    assert_true(huge_free(p));
}

/* More units than may move, of which the last would be cut: they are taken where they are all the same. */
static void many_macro_blocks_side_by_side_are_taken_where_memory_is_scarce(void **unused)
{
    enum { UNITS = 65, MOST = 256 };
    struct slab *all[MOST];
    struct span span;
    unsigned n = 0, beside = 0;
    while (beside <= UNITS && n < MOST) {
        assert_true(source_take(&source_main, MACRO_SLICES_USABLE, 1, &span));
        all[n++] = span.slab;
        beside = 1;
        qsort(all, n, sizeof(*all), by_address);
        for (unsigned i = 1; i < n && beside <= UNITS; i++)
            beside = (char *)all[i] - (char *)all[i - 1] == (ptrdiff_t)UNIT ? beside + 1 : 1;
    }
    assert_true(beside > UNITS);
    for (unsigned i = 0; i < n; i++)
        given(all[i]);
    scarce = 1;
    size_t dirty;
    struct huge_range r;
    uint64_t mapped = mapped_now();
    assert_true(exchange_range(UNITS * UNIT + UNIT / 4, &r, &dirty));
    assert_int_equal(r.bytes, (UNITS + 1) * UNIT);
    assert_int_equal(dirty, r.bytes);
    assert_int_equal(mapped_now(), mapped);
    huge_retire(r);
}

/* A huge block that finds nothing teaches the source to keep more only if about as much went from there. */
static void little_that_went_is_not_missed_by_a_huge_block(void **unused)
{
    enum { SLICES = 100 * MACRO_SLICES };
    size_t dirty;
    struct huge_range r;
    source_main.n_refaulted = 0;
    source_main.n_purged = SLICES / 4;
    assert_false(exchange_range(100 * UNIT, &r, &dirty));
    assert_int_equal(source_main.n_refaulted, 0);
    source_main.n_purged = SLICES / 2;
    assert_false(exchange_range(100 * UNIT, &r, &dirty));
    assert_int_equal(source_main.n_refaulted, SLICES);
    source_main.n_refaulted = source_main.n_purged = 0;
}

/* ---- where nothing is exchanged ---- */

static void nothing_moves_where_memory_is_not_all_alike(void **unused)
{
    static struct os_places closed;
    for (int kind = 0; kind < 4; kind++) {
        struct slab *row[ROW];
        row_taken(row);
        for (int i = 0; i < ROW; i++)
            given(row[i]);
        void *p = huge_alloc(2 * MIB, UNIT, NULL); /* with a page before it: not of a macro-block */
        assert_true(huge_free(p));
        sources_n = kind == 0 ? 2 : 1;
        os_places = kind == 1 ? &closed : NULL;
        grind_on = kind == 2;
        thread_modes = kind == 3 ? MODE_ACCOUNT : 0;
        size_t dirty;
        struct huge_range r;
        assert_null(exchange_unit(&dirty));
        assert_false(exchange_range(UNIT, &r, &dirty));
        assert_int_equal(exchange_share(), 0);
        grind_on = false;
        sources_n = 1;
        os_places = NULL;
        thread_modes = 0;
        assert_int_equal(exchange_share(), 8);
        huge_trim();
    }
}

/* A child that finds the source's lock held begins anew: what its parent had is not taken, though it lies beside its own. What the child's
 * huge blocks leave is. */
static bool child_takes_its_own(struct slab *const *row)
{
    given(whole_taken().slab);
    char *p = huge_alloc(2 * UNIT - 4096, 1, NULL);
    bool ok = p != NULL;
    for (int i = 0; i < ROW; i++)
        ok =
            ok && unit_of(p) != (char *)macro_of(row[i]) && map_kind(macro_of(row[i])) == MAP_MACRO;
    source_shrink(&source_main);
    struct span span;
    ok = ok && huge_free(p) && source_take(&source_main, 100, 1, &span);
    return ok && (char *)span.slab >= unit_of(p) && (char *)span.slab < unit_of(p) + 2 * UNIT;
}

static void a_child_that_began_anew_takes_nothing_of_its_parents(void **unused)
{
    struct slab *row[ROW];
    row_taken(row);
    for (int i = 0; i < ROW; i++)
        given(row[i]);
    for (scarce = 0; scarce < 2; scarce++) {
        lock_fork_take(&source_main.lock);
        pid_t child = fork();
        if (child == 0)
            _exit(child_takes_its_own(row) ? 0 : 1);
        lock_fork_drop(&source_main.lock, false);
        int status;
        assert_true(waitpid(child, &status, 0) == child);
        assert_int_equal(status, 0);
    }
}

/* ---- a random life, against a model ---- */

#if defined(UNDER_TSAN)
enum { SLOTS = 16, SLOWER = 4 };
#else
enum { SLOTS = 16, SLOWER = 1 };
#endif

struct block {
    unsigned char *p;
    size_t bytes;
    struct slab *slab; /* NULL: a huge one */
    unsigned char stamp;
};

static void stamp(const struct block *b)
{
    for (size_t i = 0; i < b->bytes; i += 4096)
        b->p[i] = b->stamp;
    b->p[b->bytes - 1] = b->stamp;
}

static bool holds(const struct block *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 4096)
        if (b->p[i] != b->stamp)
            return false;
    return true;
}

static bool block_run(struct block *b, unsigned *seed)
{
    struct span span;
    unsigned slices =
        rand_r(seed) % 4 ? MACRO_SLICES_USABLE : 1 + (unsigned)rand_r(seed) % MACRO_SLICES_USABLE;
    if (!source_take(&source_main, slices, 1, &span))
        return true;
    *b = (struct block){(unsigned char *)slab_memory(span.slab), (size_t)slices * SLICE_BYTES,
                        span.slab, (unsigned char)(1 + rand_r(seed) % 255)};
    bool ok = true;
    for (unsigned i = 0; i < slices; i++)
        ok = ok && (span.dirty >> i & 1 || b->p[(size_t)i * SLICE_BYTES] == 0);
    stamp(b);
    return ok;
}

static bool block_huge(struct block *b, unsigned *seed)
{
    size_t bytes = MIB + (size_t)rand_r(seed) % (rand_r(seed) % 4 ? 5 * MIB : 14 * MIB);
    bool zeroed = false, clean = rand_r(seed) % 2;
    unsigned char *p = huge_alloc(bytes, 1, clean ? &zeroed : NULL);
    if (!p)
        return true;
    *b = (struct block){p, bytes, NULL, 0};
    bool ok = !zeroed || holds(b, bytes);
    b->stamp = (unsigned char)(1 + rand_r(seed) % 255);
    stamp(b);
    return ok;
}

static bool block_end(struct block *b)
{
    bool ok = holds(b, b->bytes);
    if (b->slab)
        given(b->slab);
    else
        ok = huge_free(b->p) && ok;
    b->p = NULL;
    return ok;
}

static bool block_realloc(struct block *b, unsigned *seed)
{
    size_t bytes = MIB + (size_t)rand_r(seed) % (10 * MIB);
    size_t kept = bytes < b->bytes ? bytes : b->bytes;
    unsigned char *p = huge_realloc(b->p, bytes);
    if (!p)
        return holds(b, b->bytes);
    b->p = p;
    b->bytes = bytes;
    bool ok = holds(b, kept);
    stamp(b);
    return ok;
}

/* In turns: mostly runs, then mostly huge blocks. Failures of the kernel are none. */
static bool random_life(unsigned seed, int steps)
{
    struct block blocks[SLOTS] = {0};
    bool ok = true;
    for (int i = 0; i < steps / SLOWER && ok; i++) {
        struct block *b = &blocks[rand_r(&seed) % SLOTS];
        bool runs = (i / 50 % 2 == 0) == (rand_r(&seed) % 8 > 0);
        if (!b->p)
            ok = runs ? block_run(b, &seed) : block_huge(b, &seed);
        else if (!b->slab && rand_r(&seed) % 4 == 0)
            ok = block_realloc(b, &seed);
        else
            ok = block_end(b);
        if (rand_r(&seed) % 64 == 0)
            source_trim(&source_main);
    }
    for (int i = 0; i < SLOTS; i++)
        if (blocks[i].p)
            ok = block_end(&blocks[i]) && ok;
    return ok;
}

static void random_lives_keep_their_contents(void **unused)
{
    unsigned seed = check_seed();
    for (unsigned i = 0; i < 4; i++) {
        store_relaxed(&scarce, i % 2);
        assert_true(random_life(seed + i, 800));
    }
}

static void *thread_life(void *arg)
{
    return (void *)(uintptr_t)!random_life((unsigned)(uintptr_t)arg, 300);
}

static void threads_exchange_without_harm(void **unused)
{
    unsigned seed = check_seed();
    pthread_t threads[4];
    store_relaxed(&scarce, 1);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, thread_life, (void *)(uintptr_t)(seed + i)), 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
}

static uint32_t every, calls_seen, kinds;
static bool every_nth_fails(enum os_call call)
{
    return kinds >> call & 1 && fetch_add_relaxed(&calls_seen, 1) % every == every - 1;
}

/* Each move in turn is refused: the block is there all the same, and so is all else. */
static void gathering_survives_every_failing_move(void **unused)
{
    kinds = 1 << OS_CALL_REMAP;
    for (every = 1; every <= 4; every++) {
        struct slab *row[ROW];
        apart_given(row);
        calls_seen = 0;
        uint64_t kept = os_counts.kept_bytes;
        os_fault = every_nth_fails;
        char *p = huge_taken(3 * UNIT + UNIT / 4);
        os_fault = NULL;
        bool refused = every <= 3;
        assert_int_equal(os_counts.kept_bytes > kept, refused); /* addresses alone */
        assert_int_equal(source_main.n_macros, ROW - 3);
        for (int i = 1; i < ROW; i += 2) {
            assert_int_equal(slab_memory(row[i])[50], (char)0xaa);
            given(row[i]);
        }
        assert_true(huge_free(p));
        nothing_is_lost(NULL);
        scarce = 0;
    }
}

/* The units go, since they moved in part, but there is an end to it; and blocks that grow still move. */
static void failing_moves_end_gathering_and_nothing_else(void **unused)
{
    for (int i = 0; i < 20; i++) {
        struct slab *row[ROW];
        row_taken(row);
        for (int k = 0; k < ROW; k += 2)
            given(row[k]);
        scarce = 1;
        os_fault = no_remap;
        char *p = huge_taken(3 * UNIT + UNIT / 4);
        os_fault = NULL;
        scarce = 0;
        assert_int_equal(source_main.n_macros, i < 4 ? ROW - 3 : ROW);
        for (int k = 1; k < ROW; k += 2)
            given(row[k]);
        assert_true(huge_free(p));
        huge_trim();
        source_shrink(&source_main);
    }
    void *to = os_reserve(UNIT, 0, UNIT, 0);
    assert_non_null(to);
    os_unreserve(to, UNIT);
}

static void macro_blocks_stay_where_there_is_no_place_for_them(void **unused)
{
    struct slab *row[ROW];
    apart_given(row);
    os_fault = no_map;
    size_t dirty;
    struct huge_range r;
    assert_false(exchange_range(3 * UNIT + UNIT / 4, &r, &dirty));
    os_fault = NULL;
    assert_int_equal(source_main.n_macros, ROW);
    assert_int_equal(source_main.n_empty, ROW / 2);
    uint64_t calls = os_counts.map_calls;
    for (int i = 0; i < ROW; i += 2)
        row[i] = whole_taken().slab;
    assert_int_equal(os_counts.map_calls, calls);
    for (int i = 0; i < ROW; i += 2)
        given(row[i]);
    for (int i = 1; i < ROW; i += 2)
        given(row[i]);
}

static void random_lives_survive_every_failing_call(void **unused)
{
    unsigned seed = check_seed();
    store_relaxed(&scarce, 1);
    for (kinds = 1; kinds < 32; kinds = kinds == 16 ? 31 : kinds * 2)
        for (every = 1; every < 12; every += 1 + every / 3) {
            exchange_moves_failed = 0;
            os_fault = every_nth_fails;
            bool ok = random_life(seed + every, 100);
            os_fault = NULL;
            if (!ok)
                fail_msg("calls of kind %#x, every %u", kinds, every);
            assert_int_equal(huge.counts.blocks, 0);
            assert_int_equal(source_main.n_used, 0);
        }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start_anew, nothing_is_lost)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_source_takes_what_huge_blocks_left),
        TEST(part_of_a_unit_is_completed),
        TEST(what_cannot_be_completed_stays_where_it_is),
        TEST(memory_of_huge_blocks_comes_before_slices_without),
        TEST(a_huge_block_takes_macro_blocks_side_by_side),
        TEST(slabs_are_not_taken),
        TEST(macro_blocks_without_memory_are_not_taken),
        TEST(macro_blocks_from_anywhere_are_gathered),
        TEST(macro_blocks_on_huge_pages_are_as_good),
        TEST(many_macro_blocks_side_by_side_are_taken_where_memory_is_scarce),
        TEST(little_that_went_is_not_missed_by_a_huge_block),
        TEST(nothing_moves_where_memory_is_not_all_alike),
        TEST(a_child_that_began_anew_takes_nothing_of_its_parents),
        TEST(random_lives_keep_their_contents),
        TEST(threads_exchange_without_harm),
        TEST(gathering_survives_every_failing_move),
        TEST(failing_moves_end_gathering_and_nothing_else),
        TEST(macro_blocks_stay_where_there_is_no_place_for_them),
        /* Last: may turn moves off, and leave behind what the kernel does not take. */
        cmocka_unit_test_setup(random_lives_survive_every_failing_call, start_anew),
    };
    source_begin(0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

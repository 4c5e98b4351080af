/* Runs of slices: against a model, with calls of the kernel that fail. */
#include "malloc/source.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "malloc/exchange.h"
#include "malloc/huge.h"
#include "malloc/node.h"
#include "malloc/os.h"
#include "malloc/policy.h"
#include "malloc/pressure.h"
#include "malloc/settings.h"
#include "malloc/thread.h"
#include "os_faults.h"

/* What source.c asks of others, held fast. */
struct heap *heap_all;
struct lock heaps_lock;
struct slab slab_none;
bool node_many;
uint32_t policy_level_now;
void policy_grown(bool huge)
{
}

void policy_tick(bool needed)
{
}
void node_prefer(void *p, size_t bytes, unsigned node)
{
}

enum { RUNS = 400, STEPS = 60000 };

struct run {
    struct slab *slab;
    unsigned slices;
    unsigned char mark;
};
static struct run runs[RUNS];
static uint64_t state;

static uint64_t random_below(uint64_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % n;
}

/* What huge blocks left: none, or in some of the cases units that were used before, all or in part. */
static unsigned exchange_each;
static unsigned exchanged;
void huge_held(uint64_t *ret_mapped, uint64_t *ret_kept)
{
    *ret_mapped = 0;
    *ret_kept = exchange_each > 0 ? MACRO_BYTES : 0;
}

bool policy_would_yield(size_t bytes, bool huge)
{
    assert_false(huge);
    return exchange_each > 0 && random_below(2) == 0;
}

void *exchange_unit(size_t *ret_dirty)
{
    if (exchange_each == 0 || random_below(exchange_each) > 0)
        return NULL;
    char *unit = os_map(MACRO_BYTES, MACRO_BYTES);
    if (!unit)
        return NULL;
    *ret_dirty = random_below(2) ? MACRO_BYTES : (1 + random_below(511)) * 4096;
    memset(unit, 0xee, *ret_dirty);
    memset(unit, 0, *ret_dirty < SLICE_BYTES ? *ret_dirty : SLICE_BYTES);
    exchanged++;
    return unit;
}

static unsigned fault_each;
static bool fails(enum os_call call)
{
    return fault_each > 0 && random_below(fault_each) == 0;
}

/* Write the first and the last byte of each slice, so that runs that overlap are seen. */
static void fill(struct run *r, unsigned from)
{
    char *memory = slab_memory(r->slab);
    for (unsigned i = from; i < r->slices; i++) {
        memory[(size_t)i * SLICE_BYTES] = (char)r->mark;
        memory[(size_t)(i + 1) * SLICE_BYTES - 1] = (char)r->mark;
    }
}

static void check_run(const struct run *r)
{
    const unsigned char *memory = (unsigned char *)slab_memory(r->slab);
    for (unsigned i = 0; i < r->slices; i++) {
        assert_int_equal(memory[(size_t)i * SLICE_BYTES], r->mark);
        assert_int_equal(memory[(size_t)(i + 1) * SLICE_BYTES - 1], r->mark);
    }
}

/* What is said to be clean reads as zero. */
static void check_clean(const struct run *r, slice_bits dirty, unsigned from)
{
    const char *memory = slab_memory(r->slab);
    for (unsigned i = from; i < r->slices; i++)
        if (!(dirty >> i & 1))
            assert_true(memory[(size_t)i * SLICE_BYTES] == 0 &&
                        memory[(size_t)(i + 1) * SLICE_BYTES - 1] == 0);
}

static void take(struct run *r)
{
    struct span span;
    unsigned slices =
        random_below(8) ? 1 + (unsigned)random_below(6) : 1 + (unsigned)random_below(100);
    unsigned align = random_below(16) ? 1 : 1u << random_below(6);
    if (slices + align > MACRO_SLICES)
        return;
    bool little = align == 1 && slices <= RUNS_EXACT && random_below(4) == 0;
    if (!source_take(&source_main, slices, little ? SOURCE_LITTLE : align, &span)) {
        assert_true(fault_each > 0);
        return;
    }
    *r = (struct run){span.slab, slices, (unsigned char)(1 + random_below(255))};
    assert_int_equal(span.slab->slices, slices);
    assert_int_equal(slab_slice(span.slab) % align, 0);
    assert_true(slab_slice(span.slab) >= 1);
    assert_int_equal(map_kind(slab_memory(span.slab)), MAP_MACRO);
    check_clean(r, span.dirty, 0);
    fill(r, 0);
}

static void resize(struct run *r)
{
    slice_bits dirty;
    unsigned slices = 1 + (unsigned)random_below(64), had = r->slices;
    if (!source_resize(&source_main, r->slab, slices, slices * 100, &dirty))
        return;
    assert_int_equal(r->slab->asked, slices * 100);
    r->slices = slices;
    assert_int_equal(r->slab->slices, slices);
    if (slices > had) {
        check_clean(r, dirty, had);
        fill(r, had);
    }
}

/* The sums that the source keeps are those of its macro-blocks, and those of the runs that are out. */
static void check_sums(void)
{
    const struct source *s = &source_main;
    uint64_t used = 0, macros = 0, dirty_free = 0, out = 0, empty = 0;
    for (const struct macro *m = s->macros; m; m = m->next) {
        unsigned free = 0, dirty = 0;
        macros++;
        for (int w = 0; w < MACRO_WORDS; w++) {
            free += (unsigned)__builtin_popcountll(m->free[w]);
            dirty += (unsigned)__builtin_popcountll(m->free[w] & m->dirty[w]);
        }
        assert_int_equal(free, m->n_free);
        assert_int_equal(dirty, m->n_dirty_free);
        empty += free == MACRO_SLICES_USABLE;
        assert_false(m->free[0] & 1); /* the descriptors */
        used += MACRO_SLICES_USABLE - free;
        dirty_free += dirty;
    }
    for (int i = 0; i < RUNS; i++)
        out += runs[i].slab ? runs[i].slices : 0;
    assert_int_equal(macros, s->n_macros);
    assert_int_equal(empty, s->n_empty);
    assert_int_equal(used, s->n_used);
    assert_int_equal(used, out);
    assert_int_equal(dirty_free, s->n_dirty_free);
}

/* ---- the lists, against what the bits of all macro-blocks say ---- */

static bool has(const uint64_t *words, unsigned i)
{
    return i < MACRO_SLICES && (words[i / 64] >> i % 64 & 1);
}

/* Slices in a row from `first` on that are free, and dirty if that is asked for. */
static unsigned row(const struct macro *m, unsigned first, bool dirty)
{
    unsigned n = 0;
    while (has(m->free, first + n) && (!dirty || has(m->dirty, first + n)))
        n++;
    return n;
}

/* Is a run of that kind and length listed where it begins? Length 0: none is. */
static void check_link(struct macro *m, unsigned at, bool dirty, enum runs_kind kind, unsigned n)
{
    const struct run_link *l = &macro_slab(m, at)->run[dirty ? 0 : 1];
    assert_int_equal(l->listed, n > 0 ? 1 + kind : 0);
    if (n > 0) {
        assert_int_equal(l->slices, n);
        assert_int_equal(l->bin, runs_bin(n));
    }
}

/* What begins at a free slice. Counts the runs of each kind. */
static void check_links(struct macro *m, unsigned at, uint64_t *counts)
{
    bool dirty_begins = has(m->dirty, at) && !(has(m->free, at - 1) && has(m->dirty, at - 1));
    unsigned dirty = dirty_begins ? row(m, at, true) : 0;
    unsigned whole = has(m->free, at - 1) ? 0 : row(m, at, false), memory = 0;
    for (unsigned i = 0; i < whole; i++)
        memory += has(m->dirty, at + i);
    if (memory == whole)
        whole = 0; /* a dirty run, and no other */
    enum runs_kind kind = memory > 0 ? RUNS_PARTLY : RUNS_CLEAN;
    check_link(m, at, true, RUNS_DIRTY, dirty);
    check_link(m, at, false, kind, whole);
    counts[RUNS_DIRTY] += dirty > 0;
    counts[kind] += whole > 0;
}

/* Both ways, and from new to old. */
static uint64_t list_length(const struct source *s, enum runs_kind kind, unsigned bin)
{
    const struct slab *before = NULL, *at = s->runs[kind].list[bin].first;
    uint64_t n = 0;
    for (; at; n++) {
        const struct run_link *l = &at->run[kind == RUNS_DIRTY ? 0 : 1];
        assert_int_equal(l->listed, 1 + kind);
        assert_int_equal(l->bin, bin);
        assert_ptr_equal(l->prev, before);
        if (kind == RUNS_DIRTY && before)
            assert_true((int32_t)(before->run[0].since - l->since) > 0);
        before = at;
        at = l->next;
    }
    assert_int_equal(s->runs[kind].some >> bin & 1, n > 0);
    if (n > 0)
        assert_ptr_equal(s->runs[kind].list[bin].last, before);
    return n;
}

static void check_lists(void)
{
    const struct source *s = &source_main;
    uint64_t counts[RUNS_KINDS] = {0};
    for (struct macro *m = s->macros; m; m = m->next)
        for (unsigned i = 1; i < MACRO_SLICES; i++)
            if (has(m->free, i))
                check_links(m, i, counts);
    for (enum runs_kind kind = RUNS_DIRTY; kind < RUNS_KINDS; kind++) {
        uint64_t n = 0;
        for (unsigned bin = 0; bin < RUNS_BINS; bin++)
            n += list_length(s, kind, bin);
        assert_int_equal(n, counts[kind]);
    }
}

static void sets_of_slices_are_what_each_slice_says(void **unused)
{
    for (unsigned first = 0; first < MACRO_SLICES; first++)
        for (unsigned n = 1; first + n <= MACRO_SLICES; n++) {
            slice_bits run = bits_run(first, n), by_one = 0;
            for (unsigned i = first; i < first + n; i++)
                by_one |= (slice_bits)1 << i;
            assert_true(run == by_one);
            for (unsigned i = first; i < first + n; i++) {
                assert_int_equal(run_begin(run, i), first);
                assert_int_equal(run_end(run, i), first + n);
            }
            /* And with others that are apart from it. */
            slice_bits others = ~(run | run << 1 | run >> 1);
            assert_int_equal(run_begin(run | others, first), first);
            assert_int_equal(run_end(run | others, first + n - 1), first + n);
        }
}

/* Of `wide` slices: some without memory are found wherever a whole run is so, and nothing else is taken for such. */
static void check_find_clean(unsigned free, unsigned dirty, unsigned n, unsigned wide,
                             unsigned from)
{
    unsigned clean = free & ~dirty, whole = 0;
    for (unsigned i = 0, length = 0; i < wide; i++) {
        length = free >> i & 1 ? length + 1 : 0;
        bool ends = i + 1 == wide || !(free >> (i + 1) & 1);
        unsigned run = ((1u << length) - 1) << (i + 1 - length);
        if (ends && length > whole && (clean & run) == run)
            whole = length;
    }
    const struct slab *found = runs_find_clean(&source_main, n);
    assert_true(found || whole < n);
    if (found) {
        unsigned first = slab_slice(found), run = ((1u << n) - 1) << (first - from);
        assert_true(first >= from && first + n <= from + wide && (clean & run) == run);
    }
}

/* Slices of a macro-block between two slabs, with and without memory, in all ways there are: then each run that fits is taken and comes back,
 * and each time all lists are right. */
static void each_way_that_slices_come_and_go(void **unused)
{
    enum { WIDE = 6, FIRST = 61 }; /* across two words */
    static const struct source zero;
    struct macro *m = aligned_alloc(MACRO_BYTES, MACRO_BYTES);
    assert_non_null(m);
    for (unsigned free = 0; free < 1 << WIDE; free++)
        for (unsigned dirty = 0; dirty < 1 << WIDE; dirty++)
            for (unsigned at = 0; at < WIDE; at++) {
                if ((free | dirty) != (1 << WIDE) - 1) /* what a slab has is dirty */
                    continue;
                memset(m, 0, MACRO_SLICES * sizeof(struct slab));
                source_main = zero;
                source_main.macros = m;
                bits_store(m->dirty, ~bits_run(FIRST, WIDE) | (slice_bits)dirty << FIRST);
                for (unsigned i = 0; i < WIDE; i++)
                    if (free >> i & 1)
                        runs_insert(&source_main, m, FIRST + i, 1);
                check_lists();
                for (unsigned n = 1; at == 0 && n <= WIDE; n++)
                    check_find_clean(free, dirty, n, WIDE, FIRST);
                for (unsigned n = 1; at + n <= WIDE; n++) {
                    unsigned run = ((1u << n) - 1) << at;
                    if ((free & run) == 0) { /* a slab's, which comes back */
                        runs_give(&source_main, m, FIRST + at, n);
                        check_lists();
                        runs_remove(&source_main, m, FIRST + at, n);
                    } else if ((free & run) == run &&
                               (dirty & run) == run) { /* and one that goes */
                        struct macro *found;
                        unsigned first;
                        assert_true(runs_find(&source_main, n, 1, false, &found, &first));
                        struct slab *slab = runs_take(&source_main, n);
                        assert_non_null(slab);
                        assert_int_equal(slab_slice(slab), first);
                        check_lists();
                        runs_give(&source_main, m, first, n);
                    }
                    check_lists();
                    assert_int_equal(m->n_free, __builtin_popcount(free));
                    assert_int_equal(m->n_dirty_free, __builtin_popcount(free & dirty));
                    assert_int_equal(source_main.n_dirty_free, m->n_dirty_free);
                }
            }
    free(m);
    source_main = zero;
}

static void work(unsigned steps)
{
    for (unsigned step = 0; step < steps; step++) {
        struct run *r = &runs[random_below(RUNS)];
        if (!r->slab) {
            take(r);
        } else if (random_below(4) == 0) {
            check_run(r);
            resize(r);
        } else {
            check_run(r);
            source_give(&source_main, r->slab);
            r->slab = NULL;
        }
        if (random_below(2000) == 0)
            source_trim(&source_main);
        if (random_below(4000) == 0)
            source_shrink(&source_main);
        if (step % 256 == 0)
            check_sums();
        if (step % 16 == 0)
            check_lists();
    }
}

static void end(void)
{
    for (int i = 0; i < RUNS; i++)
        if (runs[i].slab) {
            check_run(&runs[i]);
            source_give(&source_main, runs[i].slab);
            runs[i].slab = NULL;
        }
    check_sums();
    source_trim(&source_main);
    source_shrink(&source_main);
    assert_int_equal(source_main.n_macros, 0);
    assert_int_equal(source_main.n_dirty_free, 0);
}

static void runs_never_overlap_and_clean_ones_are_zero(void **unused)
{
    static const uint64_t keeps[] = {SETTING_AUTO, 0, 1 << 20, UINT64_C(1) << 40};
    for (size_t i = 0; i < sizeof(keeps) / sizeof(keeps[0]); i++) {
        malloc_settings.keep_bytes = keeps[i];
        work(STEPS / 4);
        end();
    }
    malloc_settings.keep_bytes = SETTING_AUTO;
}

static void the_same_with_memory_of_huge_blocks(void **unused)
{
    exchange_each = 2;
    exchanged = 0;
    malloc_settings.keep_bytes = 1 << 20;
    work(STEPS / 4);
    end();
    malloc_settings.keep_bytes = SETTING_AUTO;
    exchange_each = 0;
    assert_true(exchanged > 10);
}

/* All of it is dirty, as far as it was used; the rest is not. Nothing is mapped for it. */
static void a_unit_of_huge_blocks_is_a_macro_block_with_memory(void **unused)
{
    struct span span;
    exchange_each = 1;
    for (int i = 0; i < 20; i++) {
        assert_true(source_take(&source_main, 120, 1, &span));
        struct run r = {span.slab, 120, 0};
        check_clean(&r, span.dirty, 0);
        const char *memory = slab_memory(span.slab);
        for (unsigned k = 0; k < 120; k++)
            if (memory[(size_t)k * SLICE_BYTES])
                assert_true(span.dirty >> k & 1);
        source_give(&source_main, span.slab);
        source_trim(&source_main);
        source_shrink(&source_main);
        assert_int_equal(source_main.n_macros, 0);
    }
    exchange_each = 0;
}

static void the_same_while_the_kernel_fails(void **unused)
{
    fault_each = 5;
    exchange_each = 3;
    os_fault = fails;
    work(STEPS / 4);
    os_fault = NULL;
    fault_each = exchange_each = 0;
    for (int i = 0; i < RUNS; i++)
        if (runs[i].slab) {
            check_run(&runs[i]);
            source_give(&source_main, runs[i].slab);
            runs[i].slab = NULL;
        }
    check_sums();
}

static unsigned refusals;
static bool refuses_advice(enum os_call call)
{
    refusals += call == OS_CALL_ADVISE;
    return call == OS_CALL_ADVISE;
}

/* As it does where all memory is locked. A run in each macro-block stays, so that none can be unmapped instead. */
static void a_kernel_that_refuses_is_not_asked_all_the_time(void **unused)
{
    enum { N = 40 };
    struct span stay[N], go[N];
    source_trim(&source_main);
    policy_level_now = PRESSURE_CRITICAL;
    os_fault = refuses_advice;
    refusals = 0;
    source_main.refused_ms = 0; /* of the case before */
    for (int i = 0; i < N; i++) {
        assert_true(source_take(&source_main, 100, 1, &stay[i]));
        assert_true(source_take(&source_main, 20, 1, &go[i]));
    }
    for (int round = 0; round < 1000; round++) {
        for (int i = 0; i < N; i++)
            source_give(&source_main, go[i].slab);
        for (int i = 0; i < N; i++)
            assert_true(source_take(&source_main, 20, 1, &go[i]));
    }
    assert_in_range(refusals, 1, 5000); /* of 40,000 times, on a machine that is slow */
    os_fault = NULL;
    uint64_t purged = source_main.total_purged;
    struct timespec later = {.tv_sec = 1, .tv_nsec = 100000000};
    nanosleep(&later, NULL);
    for (int i = 0; i < N; i++)
        source_give(&source_main, go[i].slab);
    source_age(&source_main);
    assert_true(source_main.total_purged > purged);
    assert_int_equal(source_main.n_dirty_free, 0);
    for (int i = 0; i < N; i++)
        source_give(&source_main, stay[i].slab);
    policy_level_now = PRESSURE_PLENTY;
    check_sums();
}

static void pressure_leaves_next_to_nothing(void **unused)
{
    struct span span[64];
    for (unsigned level = 2; level <= 3; level++) {
        for (int i = 0; i < 64; i++) {
            assert_true(source_take(&source_main, 64, 1, &span[i]));
            memset(slab_memory(span[i].slab), 1, (size_t)64 * SLICE_BYTES);
        }
        policy_level_now = level;
        for (int i = 0; i < 64; i++)
            source_give(&source_main, span[i].slab);
        policy_level_now = 0;
        assert_true(source_main.n_dirty_free * SLICE_BYTES <= (level == 2 ? 1 << 20 : 0));
    }
}

/* ---- which run is taken ---- */

static struct span taken(unsigned slices)
{
    struct span span;
    assert_true(source_take(&source_main, slices, 1, &span));
    memset(slab_memory(span.slab), 1, (size_t)slices * SLICE_BYTES);
    return span;
}

static void given(struct slab *slab)
{
    source_give(&source_main, slab);
}

static void nothing_left(void)
{
    source_trim(&source_main);
    source_shrink(&source_main);
    assert_int_equal(source_main.n_macros, 0);
}

static unsigned dirty_of(const struct span *span, unsigned slices)
{
    unsigned n = 0;
    for (unsigned i = 0; i < slices; i++)
        n += span->dirty >> i & 1;
    return n;
}

static void the_shortest_run_with_memory_is_taken_first(void **unused)
{
    static const unsigned lengths[] = {5, 3, 9, 40, 21};
    enum { N = sizeof(lengths) / sizeof(lengths[0]) };
    struct slab *slab[N], *between[N];
    nothing_left();
    for (int i = 0; i < N; i++) {
        slab[i] = taken(lengths[i]).slab;
        between[i] = taken(1).slab;
    }
    for (int i = 0; i < N; i++)
        given(slab[i]);
    assert_ptr_equal(taken(3).slab, slab[1]);
    assert_ptr_equal(taken(4).slab, slab[0]);
    struct span longer = taken(10); /* of 21, not of 40 nor of what was never used */
    assert_ptr_equal(longer.slab, slab[4]);
    assert_int_equal(dirty_of(&longer, 10), 10);
    given(slab[1]);
    given(slab[0]);
    given(longer.slab);
    for (int i = 0; i < N; i++)
        given(between[i]);
    assert_int_equal(source_main.n_used, 0);
    nothing_left();
}

/* Slabs side by side leave one run, in whatever order they go. */
static void neighbours_that_come_back_are_one_run(void **unused)
{
    static const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}};
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        nothing_left();
        struct slab *slab[3], *end;
        for (int k = 0; k < 3; k++)
            slab[k] = taken(7).slab;
        end = taken(1).slab;
        for (int k = 0; k < 3; k++)
            given(slab[orders[i][k]]);
        struct span all = taken(21);
        assert_ptr_equal(all.slab, slab[0]);
        assert_int_equal(dirty_of(&all, 21), 21);
        given(all.slab);
        given(end);
    }
    nothing_left();
}

/* Nothing with memory is long enough: then where some of it has, though a shorter run would do that has none. */
static void a_run_that_has_memory_in_part_is_next(void **unused)
{
    nothing_left();
    struct slab *front = taken(45).slab, *wall = taken(1).slab, *back = taken(30).slab;
    given(front);
    source_trim(&source_main); /* 45 without memory, alone */
    given(back);               /* and 30 with, before the rest of the macro-block */
    struct span span = taken(40);
    assert_ptr_equal(span.slab, back);
    assert_int_equal(dirty_of(&span, 40), 30);
    /* Nothing that is free has memory now. */
    assert_int_equal(source_main.n_dirty_free, 0);
    assert_ptr_equal(taken(43).slab, front);
    given(front);
    given(span.slab);
    given(wall);
    nothing_left();
}

/* As long as there is little of it. */
static void who_needs_little_leaves_memory_to_others(void **unused)
{
    enum { MOST = 80, SOME = 20, LONG = 12, CLEAN = MACRO_SLICES_USABLE - MOST - SOME - LONG };
    struct span most, some, more, little[CLEAN + 1];
    assert_true(source_trim(&source_main) || source_main.n_dirty_free == 0);
    source_shrink(&source_main);
    assert_true(source_take(&source_main, MOST, 1, &most));
    assert_true(source_take(&source_main, SOME, 1, &some));
    assert_true(source_take(&source_main, LONG, 1, &more));
    for (unsigned i = 0; i < SOME; i++)
        memset(slab_memory(some.slab) + (size_t)i * SLICE_BYTES, 1, SLICE_BYTES);
    source_give(&source_main, some.slab);
    assert_int_equal(source_main.n_dirty_free, SOME);
    for (unsigned i = 0; i <= CLEAN; i++) {
        assert_true(source_take(&source_main, 1, SOURCE_LITTLE, &little[i]));
        struct run r = {little[i].slab, 1, 0};
        assert_int_equal(little[i].dirty == 0, i < CLEAN); /* there are no more */
        check_clean(&r, little[i].dirty, 0);
    }
    assert_int_equal(source_main.n_dirty_free, SOME - 1);
    assert_int_equal(source_main.n_macros, 1);
    source_trim(&source_main);
    for (unsigned i = 0; i <= CLEAN; i++)
        source_give(&source_main, little[i].slab);
    assert_int_equal(source_main.n_dirty_free, CLEAN + 1);
    source_give(&source_main, most.slab);
    assert_true(source_take(&source_main, 1, SOURCE_LITTLE, &little[0]));
    assert_true(little[0].dirty != 0); /* there is enough memory now */
    source_give(&source_main, little[0].slab);
    source_give(&source_main, more.slab);
}

static void what_was_free_for_longest_goes_back_first(void **unused)
{
    nothing_left();
    struct slab *slab[6], *between[6];
    for (int i = 0; i < 6; i++) {
        slab[i] = taken(4 + (unsigned)i % 3).slab; /* in several lists */
        between[i] = taken(1).slab;
    }
    static const int order[] = {3, 0, 5, 1, 4, 2};
    for (int i = 0; i < 6; i++)
        given(slab[order[i]]);
    uint64_t first_two = (uint64_t)(slab[3]->slices + slab[0]->slices) * SLICE_BYTES;
    assert_int_equal(source_yield(&source_main, first_two), first_two);
    const struct macro *m = macro_of(slab[0]);
    for (int i = 0; i < 6; i++) {
        unsigned at = slab_slice(slab[i]);
        assert_int_equal(m->dirty[at / 64] >> at % 64 & 1, i != 3 && i != 0);
    }
    for (int i = 0; i < 6; i++)
        given(between[i]);
    nothing_left();
}

/* Who needs a little memory does not make all empty macro-blocks go. */
static void no_more_is_given_back_than_was_asked_for(void **unused)
{
    enum { N = 20 };
    struct slab *slab[N];
    nothing_left();
    malloc_settings.keep_bytes = UINT64_C(1) << 40;
    source_age(&source_main);
    for (int i = 0; i < N; i++)
        slab[i] = taken(MACRO_SLICES_USABLE).slab;
    for (int i = 0; i < N; i++)
        given(slab[i]);
    source_main.keep_share = SOURCE_KEEP_SHARE; /* nothing was missed */
    uint64_t bytes = source_yield(&source_main, 1 << 20);
    assert_true(bytes >= 1 << 20 && bytes <= MACRO_BYTES);
    assert_true(source_main.n_macros >= N - 1);
    bytes += source_yield(&source_main, (uint64_t)N * MACRO_BYTES);
    assert_int_equal(bytes, (uint64_t)N * MACRO_SLICES_USABLE * SLICE_BYTES);
    malloc_settings.keep_bytes = SETTING_AUTO;
    nothing_left();
}

/* A program that frees all and takes it again, round after round: before long nothing of it goes back to the kernel. */
enum { TURN_RUNS = 16, TURN_SLICES = 64 };

/* Slices that have to be fetched by a program whose memory is all in use and all free in turn; in its first rounds, and later. It looks at what it
 * keeps while it allocates, with so many milliseconds in between; with 0 it does not. */
static void fetched_in_turns(unsigned look_ms, int rounds, int settled, uint64_t *ret_before,
                             uint64_t *ret_after)
{
    struct slab *slab[TURN_RUNS];
    nothing_left();
    source_main.n_peak = 0; /* as in a program that begins */
    source_main.keep_share = SOURCE_KEEP_SHARE;
    *ret_before = *ret_after = 0;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < TURN_RUNS; i++) {
            struct span span = taken(TURN_SLICES);
            slab[i] = span.slab;
            *(round < settled ? ret_before : ret_after) +=
                TURN_SLICES - dirty_of(&span, TURN_SLICES);
            if (look_ms == 0 || i % (TURN_RUNS / 4) > 0)
                continue;
            source_main.policy_ms -= look_ms; /* the last one was so much earlier */
            source_age(&source_main);
        }
        for (int i = 0; i < TURN_RUNS; i++)
            given(slab[i]);
    }
    print_message("# slices fetched: %u at first, %u later\n", (unsigned)*ret_before,
                  (unsigned)*ret_after);
    nothing_left();
}

static void what_is_missed_at_once_is_kept(void **unused)
{
    enum { ROUNDS = 64, SETTLED = 8 };
    uint64_t before, after;
    fetched_in_turns(0, ROUNDS, SETTLED, &before, &after);
    assert_true(before >= TURN_RUNS * TURN_SLICES && before < TURN_RUNS * TURN_SLICES * 2);
    assert_true(after < (ROUNDS - SETTLED) * TURN_RUNS * TURN_SLICES / 8);
}

static void what_is_missed_a_little_later_is_kept(void **unused)
{
    enum { ROUNDS = 64, SETTLED = 8 };
    uint64_t before, after;
    fetched_in_turns(60, ROUNDS, SETTLED, &before, &after);
    assert_true(after < (ROUNDS - SETTLED) * TURN_RUNS * TURN_SLICES / 4);
}

/* A run with one slice after it that is another's. */
static struct slab *taken_with_wall(unsigned slices, struct slab **ret_wall)
{
    slice_bits dirty;
    struct slab *slab = taken(slices + 1).slab;
    assert_true(source_resize(&source_main, slab, slices, 1, &dirty));
    *ret_wall = taken(1).slab;
    assert_ptr_equal(*ret_wall, slab + slices);
    return slab;
}

/* Not in the first of its list, but the kernel has no more. */
static void a_run_that_fits_is_found_before_there_is_none(void **unused)
{
    enum { SHORT = 17, LONG = 20, N = 40 };
    struct slab *shorter[N], *filler[1024];
    unsigned fillers = 0;
    nothing_left();
    malloc_settings.keep_bytes = UINT64_C(1) << 40;
    source_age(&source_main);
    struct slab *longer = taken_with_wall(LONG, &filler[fillers++]);
    for (int i = 0; i < N; i++)
        shorter[i] = taken_with_wall(SHORT, &filler[fillers++]);
    uint64_t macros = source_main.n_macros;
    while (source_main.runs[RUNS_CLEAN].some)
        filler[fillers++] = taken(1).slab;
    assert_int_equal(source_main.n_macros, macros);
    given(longer);
    for (int i = 0; i < N; i++)
        given(shorter[i]);
    struct span span;
    os_fault = no_map;
    bool found = source_take(&source_main, LONG, 1, &span);
    bool aligned = source_take(&source_main, 1, 8, &span);
    os_fault = NULL;
    assert_true(found && aligned);
    given(span.slab);
    given(longer);
    while (fillers > 0)
        given(filler[--fillers]);
    malloc_settings.keep_bytes = SETTING_AUTO;
    nothing_left();
}

int main(void)
{
    const char *seed = getenv("SEED");
    state = seed ? strtoull(seed, NULL, 0) : ((uint64_t)rand() << 16 | 0x5eed);
    if (!seed)
        state += (uint64_t)(uintptr_t)&state; /* elsewhere each time */
    print_message("# SEED=%#llx\n", (unsigned long long)state);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_of_slices_are_what_each_slice_says),
        cmocka_unit_test(each_way_that_slices_come_and_go),
        cmocka_unit_test(runs_never_overlap_and_clean_ones_are_zero),
        cmocka_unit_test(the_same_with_memory_of_huge_blocks),
        cmocka_unit_test(a_unit_of_huge_blocks_is_a_macro_block_with_memory),
        cmocka_unit_test(the_same_while_the_kernel_fails),
        cmocka_unit_test(a_kernel_that_refuses_is_not_asked_all_the_time),
        cmocka_unit_test(pressure_leaves_next_to_nothing),
        cmocka_unit_test(the_shortest_run_with_memory_is_taken_first),
        cmocka_unit_test(neighbours_that_come_back_are_one_run),
        cmocka_unit_test(a_run_that_has_memory_in_part_is_next),
        cmocka_unit_test(who_needs_little_leaves_memory_to_others),
        cmocka_unit_test(what_was_free_for_longest_goes_back_first),
        cmocka_unit_test(no_more_is_given_back_than_was_asked_for),
        cmocka_unit_test(what_is_missed_at_once_is_kept),
        cmocka_unit_test(what_is_missed_a_little_later_is_kept),
        cmocka_unit_test(a_run_that_fits_is_found_before_there_is_none),
    };
    return cmocka_run_group_tests_name("malloc_source", tests, NULL, NULL);
}

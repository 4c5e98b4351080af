/* Runs of slices: against a model, with calls of the kernel that fail. */
#include "malloc/source.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "malloc/node.h"
#include "malloc/os.h"
#include "malloc/policy.h"
#include "malloc/settings.h"

/* What source.c asks of others, held fast. */
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
    if (!source_take(&source_main, slices, align, &span)) {
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
    if (!source_resize(&source_main, r->slab, slices, &dirty))
        return;
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

static void the_same_while_the_kernel_fails(void **unused)
{
    fault_each = 5;
    os_fault = fails;
    work(STEPS / 4);
    os_fault = NULL;
    fault_each = 0;
    for (int i = 0; i < RUNS; i++)
        if (runs[i].slab) {
            check_run(&runs[i]);
            source_give(&source_main, runs[i].slab);
            runs[i].slab = NULL;
        }
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

int main(void)
{
    const char *seed = getenv("SEED");
    state = seed ? strtoull(seed, NULL, 0) : ((uint64_t)rand() << 16 | 0x5eed);
    if (!seed)
        state += (uint64_t)(uintptr_t)&state; /* elsewhere each time */
    print_message("# SEED=%#llx\n", (unsigned long long)state);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_never_overlap_and_clean_ones_are_zero),
        cmocka_unit_test(the_same_while_the_kernel_fails),
        cmocka_unit_test(pressure_leaves_next_to_nothing),
    };
    return cmocka_run_group_tests_name("malloc_source", tests, NULL, NULL);
}

/* What is read of an allocator from outside: this process has a root, and what it leads to, made by hand; then such that
 * makes no sense. */
#include "scan/heap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

enum { MACROS = 2 };

/* As in the library: at the start of a page of data, with its own address. */
static struct malloc_root root __attribute__((aligned(ROOT_ALIGN))) = {.magic = {'x'}};
static struct source main_source, more_sources[2];
static unsigned n_sources;
static struct heap chains[2], *first_chain;
static struct huge_counts huge_counts;
static struct huge_cache huge_cache;
static const struct huge_look huge = {&huge_counts, &huge_cache};
static struct os_counts counts;
static struct malloc_settings settings;
static struct words_lot lots[2], *first_lot;
static struct macro *macros[MACROS];
static struct scan_heap *heap;

static struct macro *macro_make(void)
{
    char *at = mmap(NULL, 2 * (size_t)MACRO_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    uintptr_t aligned = ((uintptr_t)at + MACRO_BYTES - 1) & ~(uintptr_t)(MACRO_BYTES - 1);
    struct macro *m = (struct macro *)aligned;
    m->free[0] = ~UINT64_C(1);
    m->free[1] = ~UINT64_C(0);
    m->class = SLAB_UNUSED;
    return m;
}

static struct slab *slab_make(struct macro *m, unsigned slice, unsigned slices, unsigned class)
{
    struct slab *s = macro_slab(m, slice);
    for (unsigned i = slice; i < slice + slices; i++) {
        m->free[i / 64] &= ~(UINT64_C(1) << i % 64);
        m->dirty[i / 64] |= UINT64_C(1) << i % 64;
    }
    *s = (struct slab){.class = (uint8_t) class, .slices = (uint8_t)slices};
    if (class < SIZE_CLASSES) {
        s->block_bytes = size_of_class(class);
        s->limit = (slices << SLICE_SHIFT) / s->block_bytes;
    }
    return s;
}

/* Two macro-blocks: a slab of each state, a large block, an empty slab, a free slice with memory. */
static int begin(void **state)
{
    main_source = (struct source){.n_macros = MACROS, .total_purged = 7};
    memset(chains, 0, sizeof(chains));
    chains[0] = (struct heap){.tid = 41, .next = &chains[1], .slow_calls = 5, .spare = {{.n = 1}}};
    chains[1] = (struct heap){.tid = 42};
    first_chain = &chains[0];
    n_sources = 1;
    huge_counts = (struct huge_counts){.blocks = 1, .mapped_bytes = 4 << 20};
    huge_cache = (struct huge_cache){0};
    counts = (struct os_counts){.map_calls = 3};
    first_lot = &lots[0];
    lots[0].next = &lots[1];
    lots[1].next = NULL;
    for (unsigned i = 0; i < MACROS; i++)
        macros[i] = macro_make();
    macros[0]->next = macros[1];
    main_source.macros = macros[0];
    struct slab *s = slab_make(macros[0], 1, 1, 0);
    s->owner = &chains[0];
    s->made = 256;
    s->used = 101; /* with the one of the current slab */
    s->current = 1;
    s->remote = (uint64_t)10 << REMOTE_COUNT_SHIFT | SLAB_OWNED;
    s = slab_make(macros[0], 2, 1, 0);
    s->made = s->used = s->limit;
    s->remote = (uint64_t)5 << REMOTE_COUNT_SHIFT | SLAB_FULL;
    s = slab_make(macros[0], 3, 1, 1);
    s->made = 128;
    s->remote = remote_pooled(s, 50, 20, NULL);
    s = slab_make(macros[0], 4, 3, SLAB_LARGE);
    s->asked = 40000;
    slab_make(macros[1], 1, 1, SLAB_UNUSED);
    macros[1]->dirty[1] |= 1; /* slice 64: free, with memory */
    memcpy(root.magic, ROOT_MAGIC, sizeof(root.magic));
    root = (struct malloc_root){
        ROOT_HEAD(root),         .source_main = &main_source, .sources_more = more_sources,
        .sources_n = &n_sources, .heaps = &first_chain,       .huge = &huge,
        .os = &counts,           .settings = &settings,       .words = &first_lot,
    };
    return 0;
}

static int end(void **state)
{
    scan_heap_free(heap);
    heap = NULL;
    for (unsigned i = 0; i < MACROS; i++)
        munmap(macros[i], MACRO_BYTES);
    return 0;
}

static void look(void)
{
    scan_heap_free(heap);
    heap = NULL;
    assert_int_equal(scan_heap_read(getpid(), &heap), 0);
}

static void every_slab_counts_by_its_state(void **state)
{
    look();
    const struct scan_heap_class *c = &heap->classes[0];
    assert_int_equal(c->slabs, 2);
    assert_int_equal(c->owned, 1);
    assert_int_equal(c->full, 1);
    assert_int_equal(c->used, 90 + SLICE_BYTES / 16 - 5);
    assert_int_equal(c->free, 256 - 90 + 5);
    assert_int_equal(c->remote, 15);
    assert_int_equal(c->uncut, SLICE_BYTES / 16 - 256);
    c = &heap->classes[1];
    assert_int_equal(c->pooled, 1);
    assert_int_equal(c->used, 30);
    assert_int_equal(heap->large_blocks, 1);
    assert_int_equal(heap->large_asked, 40000);
    assert_int_equal(heap->large_slices, 3);
    assert_int_equal(heap->spare_slices, 1);
    assert_int_equal(heap->kept_slices, 1);
    assert_int_equal(heap->n_macros, 2);
    assert_int_equal(heap->broken, 0);
    assert_false(heap->cut);
    assert_int_equal(heap->os.map_calls, 3);
    assert_int_equal(heap->huge.blocks, 1);
    assert_int_equal(heap->nodes[0].purged_slices, 7);
}

static void chains_have_what_they_own(void **state)
{
    look();
    assert_int_equal(heap->n_chains, 2);
    for (size_t i = 0; i < 2; i++) {
        const struct scan_heap_chain *c = &heap->chains[i];
        assert_int_equal(c->slabs, c->tid == 41 ? 1 : 0);
        assert_int_equal(c->used_blocks, c->tid == 41 ? 90 : 0);
        assert_int_equal(c->slow_calls, c->tid == 41 ? 5 : 0);
    }
}

/* Of one thread, which was forked since it got it. */
static void only_chain_is_the_process_s(void **state)
{
    chains[1].tid = 0;
    look();
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(heap->chains[i].tid, heap->chains[i].slabs ? getpid() : 0);
}

static void memory_of_the_allocator_is_told_from_others(void **state)
{
    uint64_t m =
        (uintptr_t)macros[0] < (uintptr_t)macros[1] ? (uintptr_t)macros[0] : (uintptr_t)macros[1];
    bool own;
    huge_cache.n = 1;
    huge_cache.ranges[0] = (struct huge_range){.at = (char *)0x10000, .bytes = 0x3000};
    lots[0].cut[0] = LOT_HEADER;
    lots[0].cut[LOT_PARTS - 1] = 8;
    look();
    assert_int_equal(heap->lot_bytes, LOT_PART_BYTES + sizeof(lots));
    lots[0].cut[0]++;
    look();
    assert_int_equal(heap->lot_bytes, 2 * LOT_PART_BYTES + sizeof(lots[1]));
    assert_int_equal(scan_heap_stretch(heap, m, &own), m + MACRO_BYTES);
    assert_true(own);
    assert_int_equal(scan_heap_stretch(heap, m + 12345, &own), m + MACRO_BYTES);
    assert_true(own);
    assert_int_equal(scan_heap_stretch(heap, m - 8, &own), m);
    assert_false(own);
    assert_int_equal(scan_heap_stretch(heap, 0x8000, &own), 0x10000);
    assert_false(own);
    assert_int_equal(scan_heap_stretch(heap, 0x12000, &own), 0x13000);
    assert_true(own);
    uint64_t lot = (uintptr_t)&lots[0];
    assert_int_equal(heap->n_lots, 2);
    assert_int_equal(scan_heap_stretch(heap, lot, &own), lot + LOT_BYTES);
    assert_true(own);
    scan_heap_stretch(heap, lot - 8, &own);
    assert_false(own);
    assert_int_equal(scan_heap_macro(heap, m + 12345), m);
    assert_int_equal(scan_heap_macro(heap, lot), 0);
}

/* Whoever walks a mapping by these stretches must get on. */
static void ranges_that_wrap_hold_nobody_up(void **state)
{
    static const uint64_t starts[] = {0, 0x1000, 0x20000, UINT64_MAX - 0x1000, UINT64_C(1) << 60};
    static const uint64_t lengths[] = {0, UINT64_MAX, UINT64_MAX - 0x1000, INT64_MAX, 0x100000};
    huge_cache.n = 1;
    for (size_t i = 0; i < 5; i++) {
        for (size_t k = 0; k < 5; k++) {
            huge_cache.ranges[0] =
                (struct huge_range){.at = (char *)(uintptr_t)starts[i], .bytes = lengths[k]};
            look();
            bool own;
            for (uint64_t at = 0x8000; at < 0x200000; at += 0x8000)
                assert_true(scan_heap_stretch(heap, at, &own) > at);
        }
    }
}

/* It says that it is full, and was never cut: no figure goes below nothing. */
static void a_full_slab_has_no_more_than_was_cut(void **state)
{
    macro_slab(macros[0], 2)->made = 10;
    look();
    assert_int_equal(heap->classes[0].used, 90 + 10 - 5);
    assert_int_equal(heap->classes[0].free, 256 - 90 + 5);
}

static void who_has_no_root_or_another_is_told(void **state)
{
    root.layout++;
    assert_int_equal(scan_heap_read(getpid(), &heap), -EPROTO);
    root.layout--;
    root.version++;
    assert_int_equal(scan_heap_read(getpid(), &heap), -EPROTO);
    root.version--;
    root.self = &root + 1; /* a copy of another's */
    assert_int_equal(scan_heap_read(getpid(), &heap), -ENOENT);
    assert_int_equal(scan_heap_read(INT32_MAX - 1, &heap), -ESRCH);
}

static void lists_that_lead_nowhere_end(void **state)
{
    macros[1]->next = macros[0]; /* round and round */
    look();
    assert_true(heap->cut);
    macros[1]->next = (struct macro *)((uintptr_t)macros[0] + 4096);
    look();
    assert_true(heap->cut);
    macros[1]->next = (struct macro *)(UINT64_C(1) << 46);
    look();
    assert_true(heap->cut);
    assert_int_equal(heap->n_macros, 2);
    macros[1]->next = NULL;
    chains[1].next = &chains[0];
    look();
    assert_true(heap->cut);
    assert_int_equal(heap->n_chains, SCAN_HEAP_CHAINS_MAX);
    chains[1].next = (struct heap *)8;
    look();
    assert_true(heap->cut);
    chains[1].next = NULL;
    lots[1].next = &lots[0];
    look();
    assert_true(heap->cut);
    assert_int_equal(heap->n_lots, SCAN_HEAP_LOTS_MAX);
    lots[1].next = (struct words_lot *)UINTPTR_MAX;
    look();
    assert_true(heap->cut);
    assert_int_equal(heap->n_lots, 2);
    n_sources = 3;
    root.sources_more = (struct source *)(UINTPTR_MAX - 64);
    look();
    assert_int_equal(heap->n_nodes, 1);
    root.source_main = (struct source *)16;
    assert_int_not_equal(scan_heap_read(getpid(), &heap), 0);
}

/* Descriptors full of anything: no figure leaves its bounds. */
static void garbage_is_counted_as_such(void **state)
{
    uint64_t random = 88172645463325252;
    for (unsigned round = 0; round < 200; round++) {
        uint8_t *bytes = (uint8_t *)macros[0] + sizeof(struct slab);
        for (size_t i = 0; i < (MACRO_SLICES - 1) * sizeof(struct slab); i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            bytes[i] = (uint8_t)(random & (round % 2 ? 0xff : random >> 8));
        }
        macros[0]->free[0] = random;
        macros[0]->free[1] = ~random;
        chains[0].tid = (int32_t)random;
        chains[0].spare[0].n = (uint32_t)random;
        memset((char *)&chains[0] + offsetof(struct heap, on_node), (int)random, 1);
        huge_cache.n = (unsigned)random;
        look();
        uint64_t slices = heap->large_slices + heap->spare_slices + heap->kept_slices +
                          heap->given_slices + heap->broken;
        for (unsigned i = 0; i < SIZE_CLASSES; i++) {
            const struct scan_heap_class *c = &heap->classes[i];
            slices += c->slices;
            assert_true((c->used + c->free + c->uncut) * size_of_class(i) <= c->slices
                                                                                 << SLICE_SHIFT);
        }
        assert_true(slices <= MACROS * MACRO_SLICES);
        assert_true(heap->huge_cache.n <= HUGE_CACHE_RANGES);
        for (size_t i = 0; i < heap->n_chains; i++)
            assert_true(heap->chains[i].tid >= 0 && heap->chains[i].spares <= 3 * HEAP_SPARES);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(every_slab_counts_by_its_state),     TEST(chains_have_what_they_own),
        TEST(only_chain_is_the_process_s),        TEST(memory_of_the_allocator_is_told_from_others),
        TEST(ranges_that_wrap_hold_nobody_up),    TEST(a_full_slab_has_no_more_than_was_cut),
        TEST(who_has_no_root_or_another_is_told), TEST(lists_that_lead_nowhere_end),
        TEST(garbage_is_counted_as_such),
    };
    return cmocka_run_group_tests_name("scan_heap", tests, NULL, NULL);
}

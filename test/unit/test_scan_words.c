/* Live blocks of our allocator as a scan finds them from outside: this process has a macro-block and words, made by hand; then such that
 * make no sense. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "malloc/root.h"
#include "scan/heap.h"
#include "scan/memory.h"
#include "scan/scan.h"
#include "scan/words.h"

#include "check.h"

enum { GENERATION = 3, SITES = 100, SMALL = 5 /* 96 bytes */, FOUND_MAX = 4096 };

static struct malloc_root root __attribute__((aligned(ROOT_ALIGN))) = {.magic = {'x'}};
static struct source main_source;
static unsigned n_sources = 1;
static struct heap *no_chain;
static struct huge_counts huge_counts;
static struct huge_cache huge_cache;
static const struct huge_look huge = {&huge_counts, &huge_cache};
static struct os_counts counts;
static struct malloc_settings settings;
static struct words_lot *first_lot;
static struct macro *macro;
static struct slab *slab, *large;
static struct word *array;

static struct scan_block found[FOUND_MAX];
static size_t n_found;

static struct slab *slab_make(unsigned slice, unsigned slices, unsigned class)
{
    struct slab *s = macro_slab(macro, slice);
    for (unsigned i = slice; i < slice + slices; i++)
        macro->free[i / 64] &= ~(UINT64_C(1) << i % 64);
    *s = (struct slab){.class = (uint8_t) class, .slices = (uint8_t)slices};
    return s;
}

/* The array of the slab lies there. */
static void words_set(void *at)
{
    slab->magic = words_magic(slab->block_bytes);
    slab->words = at;
}

static int begin(void **state)
{
    char *at = mmap(NULL, 2 * (size_t)MACRO_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    macro = (struct macro *)(((uintptr_t)at + MACRO_BYTES - 1) & ~(uintptr_t)(MACRO_BYTES - 1));
    macro->free[0] = ~UINT64_C(1);
    macro->free[1] = ~UINT64_C(0);
    macro->class = SLAB_UNUSED;
    first_lot = mmap(NULL, LOT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(first_lot != MAP_FAILED);
    array = (struct word *)(first_lot + 1);
    slab = slab_make(7, 1, SMALL);
    slab->block_bytes = size_of_class(SMALL);
    slab->limit = SLICE_BYTES / slab->block_bytes;
    slab->made = 42; /* a page's worth */
    words_set(array);
    large = slab_make(10, 4, SLAB_LARGE);
    large->asked = 50000;
    large->start = 192;
    main_source = (struct source){.n_macros = 1, .macros = macro};
    huge_cache = (struct huge_cache){0};
    root = (struct malloc_root){
        ROOT_HEAD(root),         .source_main = &main_source, .sources_more = &main_source,
        .sources_n = &n_sources, .heaps = &no_chain,          .huge = &huge,
        .os = &counts,           .settings = &settings,       .words = &first_lot,
    };
    return 0;
}

static int end(void **state)
{
    munmap(macro, MACRO_BYTES);
    munmap(first_lot, LOT_BYTES);
    return 0;
}

/* Of the macro-block alone: what else this process has may pass for trailers. */
static void keep(const struct scan_block *block, void *context)
{
    if (block->start - (uintptr_t)macro >= MACRO_BYTES)
        return;
    if (n_found < FOUND_MAX)
        found[n_found] = *block;
    n_found++;
}

static int look(void)
{
    uint64_t searched;
    struct scan_options options = {
        .pid = getpid(),
        .key = {.key = 12345, .generation = GENERATION},
        .words = true,
        .sites = SITES,
    };
    n_found = 0;
    return scan_each(&options, 0, keep, NULL, &searched);
}

static struct word word_of(uint32_t site, uint32_t time, uint32_t generation, uint32_t slack)
{
    return (struct word){.low = site << WORD_SITE_SHIFT | word_time_pack(time),
                         .high = (uint16_t)(slack << WORD_SLACK_SHIFT | generation)};
}

static void live_blocks_are_found_by_their_words(void **state)
{
    char *memory = slab_memory(slab);
    uint32_t size = slab->block_bytes, asked = 3;
    array[0] = word_of(7, 20, GENERATION, 6);
    array[2] = word_of(8, 21, GENERATION - 1, 0);
    array[41] = word_of(9, 22, GENERATION, 0);
    array[41].high = GENERATION | WORD_ODD | WORD_FAR;
    memcpy(memory + 42 * size - sizeof(asked), &asked, sizeof(asked));
    large->large_word = word_of(10, 23, GENERATION, 0);
    assert_int_equal(look(), 0);
    assert_int_equal(n_found, 4);
    assert_int_equal(found[0].start, (uintptr_t)memory);
    assert_int_equal(found[0].bytes, size - 6);
    assert_int_equal(found[0].site, 7);
    assert_int_equal(found[0].time, 20);
    assert_false(found[0].inherited);
    assert_int_equal(found[1].start, (uintptr_t)memory + 2 * size);
    assert_true(found[1].inherited);
    assert_int_equal(found[2].start, (uintptr_t)memory + 41 * size);
    assert_int_equal(found[2].bytes, 3);
    assert_int_equal(found[3].start, (uintptr_t)slab_memory(large) + 192);
    assert_int_equal(found[3].bytes, 50000);
}

/* Free slices, slabs that are empty, and blocks that were not carved have none, whatever is left there. */
static void what_is_free_has_no_blocks(void **state)
{
    array[0] = word_of(7, 20, GENERATION, 0);
    array[42] = word_of(7, 20, GENERATION, 0);
    assert_int_equal(look(), 0);
    assert_int_equal(n_found, 1);
    slab->class = SLAB_UNUSED;
    assert_int_equal(look(), 0);
    assert_int_equal(n_found, 0);
    slab->class = SMALL;
    macro->free[0] |= UINT64_C(1) << 7;
    assert_int_equal(look(), 0);
    assert_int_equal(n_found, 0);
}

/* ---- while it is looked at ---- */

/* The slab behind the first one: what becomes of it while blocks of the first are told of. */
static struct slab *second;

static void it_goes(void)
{
    second->words = NULL;
}

static void its_words_go_elsewhere(void)
{
    second->words += 200;
}

static void it_is_cut_anew(void)
{
    second->class = SMALL + 1;
    second->block_bytes = size_of_class(SMALL + 1);
}

static void it_is_large(void)
{
    second->class = SLAB_LARGE;
}

static void it_carves_more(void)
{
    second->made++;
}

static int change_it(void *context, const struct book_trailer *block)
{
    void (*const *change)(void) = context;
    if (n_found++ == 0)
        (*change)();
    return 0;
}

static void the_large_one_is_another(void)
{
    large->large_word.low += 1 << WORD_SITE_SHIFT;
}

static void the_large_one_has_other_bytes(void)
{
    large->asked--;
}

static void the_large_one_goes(void)
{
    large->class = SLAB_UNUSED;
}

/* What is told of two slabs and a large block, the last two of which may change when the first is told of. */
static size_t look_at_changes(void (*change)(void), bool goes_on)
{
    uint64_t from = (uintptr_t)macro, read = 0;
    struct scan_memory memory;
    struct scan_words *words;
    struct slab *first = slab;
    second = slab = slab_make(8, 1, SMALL);
    slab->block_bytes = first->block_bytes;
    slab->limit = first->limit;
    slab->made = first->made;
    words_set(array + 100);
    slab = first;
    large = slab_make(10, 4, SLAB_LARGE);
    large->asked = 50000;
    large->large_word = array[0] = array[100] = word_of(7, 20, GENERATION, 0);
    n_found = 0;
    assert_int_equal(scan_memory_open(&memory, getpid()), 0);
    assert_int_equal(scan_words_new(&words), 0);
    assert_int_equal(scan_words_macro(words, &memory, from, from, from + MACRO_BYTES, goes_on,
                                      GENERATION, change_it, (void *)&change, &read),
                     0);
    scan_words_free(words);
    scan_memory_close(&memory);
    return n_found;
}

/* Where nothing can go, it is not looked at twice. */
static void what_went_meanwhile_is_not_told(void **state)
{
    static const struct {
        void (*change)(void);
        size_t found;
    } cases[] = {{it_carves_more, 3},
                 {it_goes, 2},
                 {its_words_go_elsewhere, 2},
                 {it_is_cut_anew, 2},
                 {it_is_large, 2},
                 {the_large_one_is_another, 2},
                 {the_large_one_has_other_bytes, 2},
                 {the_large_one_goes, 2}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(look_at_changes(cases[i].change, true), cases[i].found);
        if (cases[i].change != its_words_go_elsewhere)
            assert_int_equal(look_at_changes(cases[i].change, false), 3);
    }
}

/* Blocks come and go as fast as a thread can do it, by sites that have a slack of their own each. Many, so that two looks that are both
 * wrong are not so in the same way. */
enum { LOOKS = 50000, COMING_SITES = 64, COMING_BLOCKS = 42 };
static bool coming_stop;

static void *come_and_go(void *unused)
{
    for (uint32_t site = 0; !load_relaxed(&coming_stop); site = (site + 1) % COMING_SITES)
        for (size_t i = 0; i < COMING_BLOCKS; i++) {
            struct word word = word_of(site, 20, GENERATION, site);
            store_release(&array[i].high, 0);
            array[i].low = word.low;
            store_release(&array[i].high, word.high);
        }
    return NULL;
}

static int coming_check(void *context, const struct book_trailer *block)
{
    n_found++;
    return slab->block_bytes - block->bytes == block->site ? 0 : -EILSEQ;
}

static void a_block_is_never_told_with_the_site_of_another(void **state)
{
    uint64_t from = (uintptr_t)macro, read = 0;
    struct scan_memory memory;
    struct scan_words *words;
    pthread_t thread;
    int r = 0;
    assert_int_equal(scan_memory_open(&memory, getpid()), 0);
    assert_int_equal(scan_words_new(&words), 0);
    coming_stop = false;
    assert_int_equal(pthread_create(&thread, NULL, come_and_go, NULL), 0);
    for (int i = 0; i < LOOKS && r == 0; i++)
        r = scan_words_macro(words, &memory, from, from, from + MACRO_BYTES, true, GENERATION,
                             coming_check, NULL, &read);
    store_relaxed(&coming_stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(r, 0);
    n_found = 0; /* and all are, once they stay */
    assert_int_equal(scan_words_macro(words, &memory, from, from, from + MACRO_BYTES, true,
                                      GENERATION, coming_check, NULL, &read),
                     0);
    assert_int_equal(n_found, COMING_BLOCKS);
    scan_words_free(words);
    scan_memory_close(&memory);
}

static void an_allocator_of_another_version_is_told(void **state)
{
    root.version++;
    assert_int_equal(look(), -EPROTO);
    root.version--;
    root.self = NULL;
    assert_int_equal(look(), -EPROTO);
}

static void words_at_places_that_are_none_are_no_blocks(void **state)
{
    static const uint64_t places[] = {8, 0x7fffffffff00, UINT64_MAX - 16, UINT64_MAX / 2};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        words_set((void *)(uintptr_t)places[i]);
        assert_int_equal(look(), 0);
        assert_int_equal(n_found, 0);
    }
}

/* Words and descriptors full of anything: blocks stay within their slabs, and in order. */
static void garbage_leads_nowhere(void **state)
{
    uint64_t random = 88172645463325252;
    for (unsigned round = 0; round < 100; round++) {
        uint8_t *bytes = (uint8_t *)(round % 2 ? (void *)array : (void *)macro_slab(macro, 1));
        size_t n = round % 2 ? SLICE_BYTES : 126 * sizeof(struct slab);
        for (size_t i = 0; i < n; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            bytes[i] = (uint8_t)(random & (round % 4 < 2 ? 0xff : random >> 8));
        }
        assert_int_equal(look(), 0);
        assert_true(n_found <= FOUND_MAX);
        uint64_t before = (uintptr_t)macro + SLICE_BYTES;
        for (size_t i = 0; i < n_found; i++) {
            assert_true(found[i].start >= before && found[i].site < SITES);
            before = found[i].start + found[i].bytes;
            assert_true(before <= (uintptr_t)macro + MACRO_BYTES);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(live_blocks_are_found_by_their_words, begin, end),
        cmocka_unit_test_setup_teardown(what_is_free_has_no_blocks, begin, end),
        cmocka_unit_test_setup_teardown(what_went_meanwhile_is_not_told, begin, end),
        cmocka_unit_test_setup_teardown(a_block_is_never_told_with_the_site_of_another, begin, end),
        cmocka_unit_test_setup_teardown(an_allocator_of_another_version_is_told, begin, end),
        cmocka_unit_test_setup_teardown(words_at_places_that_are_none_are_no_blocks, begin, end),
        cmocka_unit_test_setup_teardown(garbage_leads_nowhere, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

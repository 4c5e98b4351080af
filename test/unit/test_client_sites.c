/* Call sites of reports: the right function, as deep as asked, also where libraries come and go. */
#include <dlfcn.h>
#include <errno.h>

#include "base/hash.h"
#include "client_fixture.h"

enum { HEAP = MEMOIR_SPACE_HEAP };

/* ---- what sites held at the peak ---- */

enum { KINDS = 4 };

/* Each is a site of its own. */
#define ASK(n)                                                                 \
    __attribute__((noinline)) static void ask_##n(uint64_t id, uint64_t bytes) \
    {                                                                          \
        memoir_alloc(0, HEAP, id, bytes);                                      \
        __asm__ volatile("" ::: "memory");                                     \
    }                                                                          \
    static_assert(n < KINDS, "a kind")

ASK(0);
ASK(1);
ASK(2);
ASK(3);
static void (*const ask[KINDS])(uint64_t, uint64_t) = {ask_0, ask_1, ask_2, ask_3};

static uint64_t difference(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* The sum over all sites is the peak, within the error that the book states. */
static void expect_sum(const struct own_book *book, uint64_t error)
{
    uint64_t sum = 0;
    for (size_t i = 1; i < book->sites.n_sites; i++) {
        EXPECT(book->sites.at_peak[i].bytes != BOOK_SITES_AT_PEAK_UNKNOWN);
        sum += book->sites.at_peak[i].bytes;
    }
    EXPECT(difference(sum, totals_of(0, HEAP).peak_bytes) <= error);
}

/* Blocks come and go at random while their number swells and shrinks, three times, each time to more; some are so large
 * that one alone makes a peak. */
static void peak_at_random(void)
{
    static struct {
        uint32_t kind, bytes;
    } blocks[3000];
    uint64_t held[KINDS] = {0}, at_peak[KINDS] = {0}, live = 0, peak = 0, state = 7;
    for (int i = 0; i < 60000; i++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        uint32_t at = (uint32_t)(state >> 33) % 3000, swell = (uint32_t)(i % 20000) / 5000;
        bool come = (state >> 20) % 8 < (swell < 2 ? 6 : 2);
        if (come == (blocks[at].bytes != 0))
            continue;
        uint32_t kind = blocks[at].kind;
        if (!come) {
            memoir_free(0, HEAP, at + 1);
            held[kind] -= blocks[at].bytes;
            live -= blocks[at].bytes;
            blocks[at].bytes = 0;
            continue;
        }
        bool large = (state >> 25) % 100 == 0;
        blocks[at].kind = kind = large ? 3 : (uint32_t)(state >> 28) % 3;
        blocks[at].bytes =
            1 + (uint32_t)(state >> 40) % (large ? 2000000 : 4000 * (1 + (uint32_t)i / 20000));
        ask[kind](at + 1, blocks[at].bytes);
        held[kind] += blocks[at].bytes;
        live += blocks[at].bytes;
        if (live > peak) {
            peak = live;
            memcpy(at_peak, held, sizeof(held));
        }
    }
    struct own_book book = own_book_open();
    uint64_t error = status_now().peak_error;
    EXPECT(live < peak / 2); /* else this proves nothing */
    expect_sum(&book, error);
    size_t found = 0;
    for (size_t k = 0; k < KINDS; k++)
        for (size_t i = 1; i < book.sites.n_sites; i++)
            found += difference(book.sites.at_peak[i].bytes, at_peak[k]) <= error &&
                     at_peak[k] > 2 * error;
    EXPECT(found >= KINDS);
    own_book_close(&book);
}

static void sites_at_the_peak_sum_to_it(void **unused)
{
    in_child(peak_at_random, 0);
}

/* One free of all that there is: nothing folds before it. */
static void peak_of_one_block(void)
{
    ask_0(1, 50000);
    ask_1(2, 5 << 20);
    ask_2(3, 100 << 20);
    memoir_free(0, HEAP, 3);
    memoir_free(0, HEAP, 2);
    for (int i = 0; i < 100; i++)
        ask_3(10 + (uint64_t)i, 3000);
    struct own_book book = own_book_open();
    expect_sum(&book, status_now().peak_error);
    uint64_t most = 0, blocks = 0;
    for (size_t i = 1; i < book.sites.n_sites; i++)
        if (book.sites.at_peak[i].bytes > most) {
            most = book.sites.at_peak[i].bytes;
            blocks = book.sites.at_peak[i].blocks;
        }
    EXPECT_EQUAL(most, 100 << 20);
    EXPECT_EQUAL(blocks, 1);
    own_book_close(&book);
}

static void a_peak_of_one_block_is_known(void **unused)
{
    in_child(peak_of_one_block, 0);
}

/* ---- who is charged ---- */

static uint64_t next_id = 1;

__attribute__((noinline)) static void inner(void)
{
    memoir_alloc(0, HEAP, next_id++, 10);
    __asm__ volatile("" ::: "memory"); /* not a tail call */
}

__attribute__((noinline)) static void middle(void)
{
    inner();
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static void outer(void)
{
    middle();
    __asm__ volatile("" ::: "memory");
}

struct find {
    uint64_t id;
    uint32_t site;
};

static int find_block(const struct book_block_view *block, void *context)
{
    struct find *find = context;
    if (block->id != find->id)
        return 0;
    find->site = block->site;
    return 1;
}

static const struct book_site *site_of(struct own_book *book, uint64_t id)
{
    struct find find = {.id = id};
    EXPECT(book_reader_blocks(book->reader, book->fd, find_block, &find, NULL) == 1);
    EXPECT(find.site < book->sites.n_sites);
    return &book->sites.sites[find.site];
}

/* Address in this process of frame number `i`. */
static uintptr_t frame_of(const struct own_book *book, const struct book_site *site, uint32_t i)
{
    EXPECT(i < site->frames);
    uint64_t frame = book->sites.frames[site->first_frame + i];
    uint32_t module = BOOK_FRAME_MODULE(frame);
    EXPECT(module < book->sites.n_modules);
    uint64_t bias = module ? book->sites.modules[module].bias : 0;
    return (uintptr_t)(BOOK_FRAME_OFFSET(frame) + bias);
}

/* A return address lies behind the start of its function, and not far. */
static bool lies_in(uintptr_t pc, void (*function)(void))
{
    return pc > (uintptr_t)function && pc - (uintptr_t)function < 256;
}

static void callers(void)
{
    memoir_open(0);
    outer();
    outer();
    struct own_book book = own_book_open();
    const struct book_site *site = site_of(&book, 1);
    EXPECT_EQUAL(site->frames, 1);
    EXPECT_EQUAL(site->flags, BOOK_SITE_CALLER_ONLY);
    EXPECT(lies_in(frame_of(&book, site, 0), inner));
    EXPECT(site_of(&book, 2) == site);
    EXPECT_EQUAL(book.sites.n_sites, 2);
    EXPECT_EQUAL(book.sites.counters[1].alloc_bytes, 20);
    own_book_close(&book);
}

static void stacks(void)
{
    setenv("MEMOIR_STACKS", "all", 1);
    memoir_open(0);
    outer();
    middle();
    outer();
    struct own_book book = own_book_open();
    const struct book_site *site = site_of(&book, 1), *other = site_of(&book, 2);
    EXPECT(site->frames >= 4 && other->frames >= 3);
    EXPECT(lies_in(frame_of(&book, site, 0), inner));
    EXPECT(lies_in(frame_of(&book, site, 1), middle));
    EXPECT(lies_in(frame_of(&book, site, 2), outer));
    EXPECT(lies_in(frame_of(&book, other, 1), middle));
    EXPECT(!lies_in(frame_of(&book, other, 2), outer));
    own_book_close(&book);
}

static void none(void)
{
    setenv("MEMOIR_STACKS", "off", 1);
    memoir_open(0);
    outer();
    struct own_book book = own_book_open();
    EXPECT_EQUAL(book.sites.n_sites, 0);
    EXPECT_EQUAL(totals_of(0, HEAP).live_blocks, 1);
    EXPECT_EQUAL(status_now().lost, 0);
    own_book_close(&book);
}

static void given(void)
{
    memoir_open(0);
    memoir_alloc_with(&(struct memoir_alloc_options){
        .struct_size = sizeof(struct memoir_alloc_options),
        .space = HEAP,
        .id = 1,
        .bytes = 1,
        .caller = (const char *)(uintptr_t)outer + 1,
    });
    memoir_alloc_with(&(struct memoir_alloc_options){
        .struct_size = sizeof(struct memoir_alloc_options),
        .space = HEAP,
        .id = 2,
        .bytes = 1,
        .caller = (const void *)0x1234, /* nobody's code */
    });
    struct own_book book = own_book_open();
    EXPECT_EQUAL(frame_of(&book, site_of(&book, 1), 0), (uintptr_t)outer + 1);
    EXPECT_EQUAL(frame_of(&book, site_of(&book, 2), 0), 0x1234);
    own_book_close(&book);
}

static void site_is_the_caller(void **unused)
{
    in_child(callers, 0);
    in_child(given, 0);
}

static void site_is_the_stack_if_asked(void **unused)
{
    in_child(stacks, 0);
}

static void site_is_nothing_if_asked(void **unused)
{
    in_child(none, 0);
}

/* ---- many ---- */

static void many(void)
{
    enum { SITES = 20000 };
    memoir_open(0);
    for (uint64_t i = 0; i < SITES; i++)
        for (int twice = 0; twice < 2; twice++)
            memoir_alloc_with(&(struct memoir_alloc_options){
                .struct_size = sizeof(struct memoir_alloc_options),
                .space = HEAP,
                .id = i * 2 + (uint64_t)twice,
                .bytes = 8,
                .caller = (const void *)(uintptr_t)(0x10000 + i * 16),
            });
    struct own_book book = own_book_open();
    EXPECT_EQUAL(book.sites.n_sites, SITES + 1);
    for (size_t i = 1; i <= SITES; i++)
        EXPECT_EQUAL(book.sites.counters[i].alloc_bytes, 16);
    EXPECT_EQUAL(status_now().lost, 0);
    own_book_close(&book);
}

static void sites_by_the_thousand_are_told_apart(void **unused)
{
    in_child(many, 0);
}

/* ---- libraries that come and go ---- */

static uintptr_t plugin_pc;

static int report_for_plugin(void)
{
    plugin_pc = (uintptr_t)__builtin_return_address(0);
    memoir_alloc_with(&(struct memoir_alloc_options){
        .struct_size = sizeof(struct memoir_alloc_options),
        .space = HEAP,
        .id = next_id++,
        .bytes = 1,
        .caller = __builtin_return_address(0),
    });
    return 0;
}

static void visit(const char *path)
{
    int (*call)(int (*)(void));
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    EXPECT(library);
    *(void **)&call = dlsym(library, "plugin_call");
    call(report_for_plugin);
    call(report_for_plugin);
    EXPECT(dlclose(library) == 0);
}

static void plugins(void)
{
    static const char *const paths[] = {PLUGIN_A, PLUGIN_B, PLUGIN_NOID_A, PLUGIN_NOID_B};
    enum { PATHS = sizeof(paths) / sizeof(paths[0]), ROUNDS = 3 };
    uintptr_t pcs[ROUNDS * PATHS];
    memoir_open(0);
    for (int i = 0; i < ROUNDS * PATHS; i++) {
        visit(paths[i % PATHS]);
        pcs[i] = plugin_pc;
    }
    struct own_book book = own_book_open();
    int same_place = 0;
    for (int i = 0; i < ROUNDS * PATHS; i++) {
        same_place += i > 0 && pcs[i] == pcs[i - 1];
        for (uint64_t k = 0; k < 2; k++) {
            const struct book_site *site = site_of(&book, 1 + (uint64_t)i * 2 + k);
            uint64_t frame = book.sites.frames[site->first_frame];
            const char *path = book.sites.modules[BOOK_FRAME_MODULE(frame)].path;
            EXPECT(strcmp(path, paths[i % PATHS]) == 0);
        }
    }
    fprintf(stderr, "# %d of %d loaded where another was\n", same_place, ROUNDS * PATHS - 1);
    EXPECT(same_place > 0);
    own_book_close(&book);
}

static void sites_in_replaced_libraries_have_the_right_name(void **unused)
{
    in_child(plugins, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sites_at_the_peak_sum_to_it),
        cmocka_unit_test(a_peak_of_one_block_is_known),
        cmocka_unit_test(site_is_the_caller),
        cmocka_unit_test(site_is_the_stack_if_asked),
        cmocka_unit_test(site_is_nothing_if_asked),
        cmocka_unit_test(sites_by_the_thousand_are_told_apart),
        cmocka_unit_test(sites_in_replaced_libraries_have_the_right_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

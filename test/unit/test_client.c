/* libmemoir by its public calls: what is reported is what totals, status and the book say. */
#include <errno.h>

#include "client_fixture.h"

enum { DRAM = MEMOIR_SPACE_DRAM, HEAP = MEMOIR_SPACE_HEAP };

/* ---- figures ---- */

static void figures(void)
{
    int gpu = declare(0);
    EXPECT_EQUAL(gpu, 1);
    EXPECT_EQUAL(declare(0), 1); /* the same again */
    EXPECT(declare(1) != gpu);
    for (uint64_t i = 1; i <= 3000; i++) /* across the making of the book */
        memoir_alloc(gpu, DRAM, i, i);
    for (uint64_t i = 1; i <= 3000; i += 3)
        memoir_free(gpu, DRAM, i);
    struct memoir_totals t = totals_of(gpu, DRAM);
    EXPECT_EQUAL(t.alloc_blocks, 3000);
    EXPECT_EQUAL(t.alloc_bytes, 3000 * 3001 / 2);
    EXPECT_EQUAL(t.freed_blocks, 1000);
    EXPECT_EQUAL(t.freed_bytes, 1000 * 1 + 3 * (999 * 1000 / 2));
    EXPECT_EQUAL(t.live_blocks, 2000);
    EXPECT_EQUAL(t.live_bytes, t.alloc_bytes - t.freed_bytes);
    EXPECT(t.peak_bytes <= t.alloc_bytes);
    EXPECT(t.peak_bytes + status_now().peak_error >= t.alloc_bytes);

    memoir_realloc(gpu, DRAM, 2, 9999, 50000);
    struct memoir_totals after = totals_of(gpu, DRAM);
    EXPECT_EQUAL(after.live_blocks, 2000);
    EXPECT_EQUAL(after.live_bytes, t.live_bytes - 2 + 50000);
    memoir_alloc(gpu, DRAM, 9999, 10); /* reported again: replaces */
    after = totals_of(gpu, DRAM);
    EXPECT_EQUAL(after.live_blocks, 2000);
    EXPECT_EQUAL(after.live_bytes, t.live_bytes - 2 + 10);
    EXPECT_EQUAL(lost_by(BOOK_LOSS_REPLACED), 1);
    memoir_free(gpu, DRAM, 424242);
    EXPECT_EQUAL(lost_by(BOOK_LOSS_UNKNOWN_FREE), 1);
    EXPECT_EQUAL(totals_of(gpu, DRAM).live_bytes, after.live_bytes);
    memoir_alloc(gpu, DRAM, 0, 5); /* a handle may be 0 */
    memoir_free(gpu, DRAM, 0);
    EXPECT_EQUAL(totals_of(gpu, DRAM).live_bytes, after.live_bytes);
    EXPECT_EQUAL(status_now().lost, 2);
}

static void totals_are_exact(void **unused)
{
    in_child(figures, 0);
}

static void peaks(void)
{
    uint64_t live = 0, peak = 0, state = 1;
    static uint32_t sizes[1000];
    for (int i = 0; i < 100000; i++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        uint32_t at = (uint32_t)(state >> 33) % 1000;
        if (sizes[at]) {
            memoir_free(0, HEAP, at + 1);
            live -= sizes[at];
            sizes[at] = 0;
        } else {
            sizes[at] = 1 + (uint32_t)(state >> 40) % 20000;
            memoir_alloc(0, HEAP, at + 1, sizes[at]);
            live += sizes[at];
        }
        peak = live > peak ? live : peak;
    }
    struct memoir_totals t = totals_of(0, HEAP);
    EXPECT_EQUAL(t.live_bytes, live);
    EXPECT(t.peak_bytes <= peak); /* with one thread never too high */
    EXPECT(t.peak_bytes + status_now().peak_error >= peak);
    EXPECT(status_now().peak_error <= 2 * 65536 + peak / 64);
}

static void peak_is_within_the_stated_error(void **unused)
{
    in_child(peaks, 0);
}

static void bad_arguments(void)
{
    int gpu = declare(0);
    memoir_open(0);
    uint64_t bad = 0;
    static const int places[][2] = {{0, DRAM}, {0, 0},       {0, -1},      {0, 32},      {-1, HEAP},
                                    {7, DRAM}, {4095, DRAM}, {4096, DRAM}, {1 << 30, 1}, {2, DRAM}};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        memoir_alloc(places[i][0], places[i][1], 1, 100);
        memoir_free(places[i][0], places[i][1], 1);
        memoir_realloc(places[i][0], places[i][1], 1, 2, 100);
        bad += 3;
        EXPECT_EQUAL(lost_by(BOOK_LOSS_BAD_ARGUMENT), bad);
    }
    memoir_alloc(gpu, DRAM, 1, UINT64_C(1) << 48);
    memoir_alloc(gpu, DRAM, 1, UINT64_MAX);
    EXPECT_EQUAL(lost_by(BOOK_LOSS_BAD_ARGUMENT), bad += 2);
    memoir_alloc_with(NULL);
    memoir_alloc_with(&(struct memoir_alloc_options){.struct_size = 3});
    memoir_transfer(NULL);
    memoir_transfer(&(struct memoir_transfer_options){.struct_size = 1 << 20});
    EXPECT_EQUAL(lost_by(BOOK_LOSS_BAD_ARGUMENT), bad += 4);
    EXPECT(memoir_device(NULL) < 0);
    memoir_tag_push(NULL);
    memoir_tag_pop();
    memoir_tag_pop();
    struct memoir_totals t = {.struct_size = sizeof(t)};
    EXPECT(memoir_totals(gpu, DRAM, NULL) == -EINVAL);
    EXPECT(memoir_totals(gpu, 99, &t) == -EINVAL);
    EXPECT(memoir_totals(-1, HEAP, &t) == -EINVAL);
    EXPECT(memoir_totals(0, HEAP, &t) == -ENOENT);
    EXPECT(memoir_status(NULL) == -EINVAL);
    EXPECT_EQUAL(totals_of(gpu, DRAM).alloc_blocks, 0);
    memoir_alloc(gpu, DRAM, 1, (UINT64_C(1) << 48) - 1); /* the largest */
    EXPECT_EQUAL(totals_of(gpu, DRAM).live_bytes, (UINT64_C(1) << 48) - 1);
}

static void bad_arguments_are_counted_and_change_nothing(void **unused)
{
    in_child(bad_arguments, 0);
}

/* ---- lazy ---- */

static void laziness(void)
{
    EXPECT_EQUAL(status_now().state, MEMOIR_STATE_IDLE);
    EXPECT_EQUAL(client_books(), 0);
    for (uint64_t i = 1; i < 1000; i++)
        memoir_alloc(0, HEAP, i, 10);
    memoir_free(0, HEAP, 77777777);
    EXPECT_EQUAL(status_now().state, MEMOIR_STATE_OPEN); /* the 1,000th */
    EXPECT_EQUAL(totals_of(0, HEAP).live_bytes, 9990);
    EXPECT_EQUAL(status_now().lost, 1);
}

static void early(void)
{
    memoir_alloc(0, HEAP, 1, 65535);
    memoir_free(0, HEAP, 2);
    struct memoir_status s = status_now();
    EXPECT_EQUAL(s.state, MEMOIR_STATE_EARLY);
    EXPECT_EQUAL(s.lost, 1);
    EXPECT_EQUAL(totals_of(0, HEAP).live_bytes, 65535);
    EXPECT_EQUAL(totals_of(0, HEAP).peak_bytes, 65535);
    EXPECT_EQUAL(client_books(), 0);
    memoir_alloc(0, HEAP, 2, 1);
    EXPECT_EQUAL(status_now().state, MEMOIR_STATE_OPEN);
    EXPECT_EQUAL(client_books(), 1);
    EXPECT_EQUAL(totals_of(0, HEAP).live_bytes, 65536);
}

static void at_exit_alone(void)
{
    memoir_alloc(0, HEAP, 1, 100);
}

/* A destructor of the program itself, which runs before those of its libraries, and one that the
 * library's own is not before: reports still count, and no book is left. */
static bool report_late;
__attribute__((destructor(101))) static void late(void)
{
    if (report_late)
        memoir_alloc(0, HEAP, 2, 1 << 20);
}

static void at_exit_much(void)
{
    report_late = true;
    memoir_alloc(0, HEAP, 1, 100);
}

static void book_is_made_when_it_is_worth_it(void **unused)
{
    in_child(laziness, 0);
    in_child(early, 0);
    in_child(at_exit_alone, 0);
    in_child(at_exit_much, 0);
}

/* ---- tags ---- */

struct tagged {
    const char *expected[64]; /* by id */
    struct own_book *book;
    size_t n;
};

static int check_tag(const struct book_block_view *block, void *context)
{
    struct tagged *t = context;
    const char *expected = t->expected[block->id];
    if (!expected)
        return 0;
    EXPECT(block->tag < t->book->sites.n_tags);
    EXPECT(strcmp(t->book->sites.tags[block->tag].name, expected) == 0);
    t->n++;
    return 0;
}

static void tags(void)
{
    char deep[20][8];
    struct tagged t = {{0}};
    memoir_open(0);
    memoir_alloc(0, HEAP, 1, 1);
    t.expected[1] = "";
    memoir_tag_push("outer");
    memoir_alloc(0, HEAP, 2, 1);
    t.expected[2] = "outer";
    memoir_alloc_with(
        &(struct memoir_alloc_options){.struct_size = sizeof(struct memoir_alloc_options),
                                       .space = HEAP,
                                       .id = 3,
                                       .bytes = 1,
                                       .tag = "own"});
    t.expected[3] = "own";
    for (int i = 0; i < 20; i++) { /* deeper than is kept */
        snprintf(deep[i], sizeof(deep[i]), "t%d", i);
        memoir_tag_push(deep[i]);
    }
    memoir_alloc(0, HEAP, 4, 1);
    for (int i = 19; i >= 0; i--) {
        memoir_tag_pop();
        if (i > 0 && i < 14) { /* "outer" and 15 of them are kept */
            memoir_alloc(0, HEAP, (uint64_t)(20 + i), 1);
            t.expected[20 + i] = deep[i - 1];
        }
    }
    memoir_alloc(0, HEAP, 5, 1);
    t.expected[5] = "outer";
    memoir_tag_pop();
    memoir_tag_pop(); /* one too many */
    memoir_alloc(0, HEAP, 6, 1);
    t.expected[6] = "";
    char longest[100];
    memset(longest, 'x', sizeof(longest));
    longest[99] = '\0';
    memoir_tag_push(longest);
    memoir_alloc(0, HEAP, 7, 1);
    longest[63] = '\0';
    t.expected[7] = longest;
    struct own_book book = own_book_open();
    t.book = &book;
    EXPECT(book_reader_blocks(book.reader, book.fd, check_tag, &t, NULL) == 0);
    EXPECT_EQUAL(t.n, 6 + 13);
    own_book_close(&book);
}

static void tags_nest_and_are_copied(void **unused)
{
    in_child(tags, 0);
}

/* ---- transfers ---- */

static int moves_of(const struct book_block_view *block, void *context)
{
    uint32_t *moves = context;
    if (block->id < 3)
        moves[block->id] = block->moves;
    return 0;
}

static void transfers(void)
{
    int gpu = declare(0);
    memoir_alloc(0, MEMOIR_SPACE_PINNED, 1, 1000);
    memoir_alloc(gpu, DRAM, 2, 1000);
    struct memoir_transfer_options o = {sizeof(o), 0, MEMOIR_SPACE_PINNED, 1, gpu, DRAM, 2, 1000};
    for (int i = 0; i < 5; i++)
        memoir_transfer(&o);
    o.from_id = 0;
    memoir_transfer(&o);
    for (uint64_t i = 100; i < 20000; i++) /* moves survive growth */
        memoir_alloc(gpu, DRAM, i, 1);
    struct own_book book = own_book_open();
    uint32_t moves[3] = {0};
    EXPECT(book_reader_blocks(book.reader, book.fd, moves_of, moves, NULL) == 0);
    EXPECT_EQUAL(moves[1], 5);
    EXPECT_EQUAL(moves[2], 6);
    size_t n;
    const struct book_account_view *accounts = book_reader_accounts(book.reader, &n);
    for (size_t i = 0; i < n; i++) {
        struct book_totals t;
        EXPECT(book_reader_totals(book.reader, i, &t) == 0);
        bool device = accounts[i].space == DRAM;
        EXPECT_EQUAL(device ? t.moved_in_bytes : t.moved_out_bytes, 6000);
        EXPECT_EQUAL(device ? t.moved_in : t.moved_out, 6);
    }
    own_book_close(&book);
}

static void transfers_are_counted_by_account_and_block(void **unused)
{
    in_child(transfers, 0);
}

/* ---- the ABI ---- */

static void sizes(void)
{
    struct {
        struct memoir_device_options o;
        char later[512];
    } larger = {
        .o = {.struct_size = sizeof(larger), .kind = MEMOIR_DEVICE_NPU, .name = "n", .uid = "u1"}};
    memset(larger.later, 0xff, sizeof(larger.later));
    int device = memoir_device(&larger.o);
    EXPECT(device > 0);
    struct memoir_device_options smaller = {.struct_size =
                                                offsetof(struct memoir_device_options, uid),
                                            .kind = MEMOIR_DEVICE_NPU,
                                            .ordinal = 5,
                                            .uid = "not read",
                                            .capacity = {{DRAM, 77}}};
    int other = memoir_device(&smaller);
    EXPECT(other > 0 && other != device);
    smaller.struct_size = sizeof(size_t);
    EXPECT(memoir_device(&smaller) < 0);
    struct memoir_alloc_options alloc = {.struct_size = offsetof(struct memoir_alloc_options, tag),
                                         .device = device,
                                         .space = DRAM,
                                         .id = 1,
                                         .bytes = 64,
                                         .tag = (const char *)1,
                                         .caller = (const void *)1};
    memoir_alloc_with(&alloc); /* neither tag nor caller are looked at */
    EXPECT_EQUAL(totals_of(device, DRAM).live_bytes, 64);
    struct {
        struct memoir_totals t;
        uint64_t guard;
    } cut = {.t = {.struct_size = offsetof(struct memoir_totals, alloc_bytes)}, .guard = 42};
    cut.t.alloc_bytes = 123;
    EXPECT(memoir_totals(device, DRAM, &cut.t) == 0);
    EXPECT(cut.t.live_bytes == 64 && cut.t.live_blocks == 1 && cut.t.alloc_bytes == 123);
    EXPECT_EQUAL(cut.t.struct_size, offsetof(struct memoir_totals, alloc_bytes));
    cut.t.struct_size = sizeof(cut);
    EXPECT(memoir_totals(device, DRAM, &cut.t) == 0);
    EXPECT_EQUAL(cut.guard, 42);
    cut.t.struct_size = 0;
    EXPECT(memoir_totals(device, DRAM, &cut.t) == -EINVAL);
    struct memoir_status status = {.struct_size = 4};
    EXPECT(memoir_status(&status) == -EINVAL);
}

static void structs_of_other_versions_are_understood(void **unused)
{
    in_child(sizes, 0);
}

static void every_call(int gpu)
{
    struct memoir_totals t = {.struct_size = sizeof(t)};
    struct memoir_status s = {.struct_size = sizeof(s)};
    memoir_tag_push("a");
    memoir_alloc(gpu, DRAM, 1, 10);
    memoir_alloc_with(
        &(struct memoir_alloc_options){.struct_size = sizeof(struct memoir_alloc_options),
                                       .device = gpu,
                                       .space = DRAM,
                                       .id = 2,
                                       .bytes = 1,
                                       .tag = "b"});
    memoir_realloc(gpu, DRAM, 1, 3, 20);
    memoir_transfer(
        &(struct memoir_transfer_options){.struct_size = sizeof(struct memoir_transfer_options),
                                          .to_device = gpu,
                                          .to_space = DRAM,
                                          .to_id = 3,
                                          .bytes = 1});
    memoir_free(gpu, DRAM, 3);
    memoir_free(gpu, DRAM, 99);
    memoir_totals(gpu, DRAM, &t);
    memoir_status(&s);
    memoir_tag_pop();
    declare(3);
    for (uint64_t i = 0; i < 3000; i++)
        memoir_alloc(gpu, DRAM, 1000 + i, 1);
}

static void errnos(void)
{
    errno = 77;
    int gpu = declare(0);
    every_call(gpu);
    EXPECT_EQUAL(errno, 77);
    memoir_open(1000);
    every_call(gpu);
    memoir_seal();
    every_call(gpu);
    EXPECT_EQUAL(errno, 77);
}

static void errnos_off(void)
{
    setenv("MEMOIR_DIR", "/proc/nowhere", 1);
    errno = 77;
    every_call(1);
    EXPECT(memoir_open(0) < 0);
    memoir_seal();
    every_call(0);
    EXPECT_EQUAL(errno, 77);
    EXPECT_EQUAL(status_now().state, MEMOIR_STATE_OFF);
}

static void errno_is_left_alone(void **unused)
{
    in_child(errnos, 1); /* sealed: even its end makes no system call */
    in_child(errnos_off, 0);
}

/* ---- switched off ---- */

static void off(void)
{
    setenv("MEMOIR_OFF", "1", 1);
    int gpu = declare(0);
    EXPECT(gpu < 0);
    memoir_alloc(gpu, DRAM, 1, 1); /* there is no need to look */
    for (uint64_t i = 0; i < 5000; i++)
        memoir_alloc(0, HEAP, i, 1000);
    struct memoir_status s = status_now();
    EXPECT_EQUAL(s.state, MEMOIR_STATE_OFF);
    EXPECT_EQUAL(s.error, ECANCELED);
    EXPECT(strstr(s.reason, "MEMOIR_OFF"));
    EXPECT_EQUAL(s.lost, 5001);
    struct memoir_totals t = {.struct_size = sizeof(t)};
    EXPECT(memoir_totals(0, HEAP, &t) == -ENOENT);
    EXPECT_EQUAL(status_now().lost, 5001); /* questions are no reports */
    EXPECT_EQUAL(client_books(), 0);
}

static void switched_off_means_nothing_happens(void **unused)
{
    in_child(off, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(totals_are_exact),
        cmocka_unit_test(peak_is_within_the_stated_error),
        cmocka_unit_test(bad_arguments_are_counted_and_change_nothing),
        cmocka_unit_test(book_is_made_when_it_is_worth_it),
        cmocka_unit_test(tags_nest_and_are_copied),
        cmocka_unit_test(transfers_are_counted_by_account_and_block),
        cmocka_unit_test(structs_of_other_versions_are_understood),
        cmocka_unit_test(errno_is_left_alone),
        cmocka_unit_test(switched_off_means_nothing_happens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Books that a daemon writes: blocks of a device are found whatever their space. */
#include "book/bare.h"

#include <errno.h>
#include <memoir/memoir.h>

#include "base/hash.h"
#include "writer_fixture.h"

enum { SPACES = 5, MANY = 20000 };

static const struct book_writer_options bare = {
    .source = BOOK_SOURCE_SOCKET, .on_behalf = true, .bare = true};

/* A writer with a device and an account for each of some spaces. */
struct book {
    struct fixture *f;
    uint16_t accounts[SPACES];
    uint16_t elsewhere; /* of another device */
};

static struct book book_new(void)
{
    struct book b = {.f = fixture_new(&bare)};
    struct book_device device = {.kind = MEMOIR_DEVICE_NPU, .name = "D"};
    struct book_device other = {.kind = MEMOIR_DEVICE_NPU, .ordinal = 1, .name = "D"};
    int number = book_device_add(&b.f->w, &b.f->t, &device);
    assert_true(number > 0);
    for (int i = 0; i < SPACES; i++) {
        int account = book_account_add(&b.f->w, &b.f->t, (uint32_t)(MEMOIR_SPACE_DRAM + i),
                                       (uint32_t)number, "x");
        assert_true(account > 0);
        b.accounts[i] = (uint16_t)account;
    }
    number = book_device_add(&b.f->w, &b.f->t, &other);
    b.elsewhere =
        (uint16_t)book_account_add(&b.f->w, &b.f->t, MEMOIR_SPACE_DRAM, (uint32_t)number, "x");
    return b;
}

static int64_t release(struct book *b, uint64_t id)
{
    uint32_t account;
    return book_bare_free_among(&b->f->w, &b->f->t, b->accounts, SPACES, id, &account);
}

/* As behalf_alloc_among() does it. */
static void alloc(struct book *b, int space, uint64_t id, uint64_t bytes)
{
    if (book_bare_alloc_new(&b->f->w, b->accounts[space], id, bytes, 0))
        return;
    while (release(b, id) >= 0)
        ;
    assert_int_equal(book_bare_alloc(&b->f->w, &b->f->t, b->accounts[space], id, bytes, 0), 0);
}

static uint64_t live_bytes(struct book *b, uint32_t account)
{
    const struct book_counters *c = &book_account_at(&b->f->w, account)->common;
    return c->alloc_bytes - c->freed_bytes;
}

static void block_is_found_in_whichever_space(void **unused)
{
    struct book b = book_new();
    for (int space = 0; space < SPACES; space++)
        alloc(&b, space, 100 + (uint64_t)space, 10 + (uint64_t)space);
    for (int space = SPACES - 1; space >= 0; space--) {
        assert_int_equal(release(&b, 100 + (uint64_t)space), 10 + space);
        assert_int_equal(live_bytes(&b, b.accounts[space]), 0);
    }
    assert_int_equal(release(&b, 100), -ENOENT);
    assert_int_equal(table_check(&b.f->w), 0);
    fixture_free(b.f);
}

static void id_that_comes_in_another_space_leaves_the_first(void **unused)
{
    struct book b = book_new();
    alloc(&b, 0, 7, 1000);
    alloc(&b, 3, 7, 2000);
    assert_int_equal(live_bytes(&b, b.accounts[0]), 0);
    assert_int_equal(live_bytes(&b, b.accounts[3]), 2000);
    alloc(&b, 3, 7, 3000);
    assert_int_equal(live_bytes(&b, b.accounts[3]), 3000);
    assert_int_equal(book_bare_blocks(&b.f->w), 1);
    assert_false(book_bare_alloc_new(&b.f->w, b.accounts[1], 7, 10, 0)); /* it is not new */
    fixture_free(b.f);
}

static void same_id_of_another_device_is_another_block(void **unused)
{
    struct book b = book_new();
    alloc(&b, 0, 7, 1000);
    assert_int_equal(book_bare_alloc(&b.f->w, &b.f->t, b.elsewhere, 7, 500, 0), 0);
    assert_int_equal(release(&b, 7), 1000);
    assert_int_equal(release(&b, 7), -ENOENT);
    assert_int_equal(live_bytes(&b, b.elsewhere), 500);
    uint16_t all[] = {0, b.accounts[0], b.elsewhere};
    uint32_t account;
    assert_int_equal(book_bare_free_among(&b.f->w, &b.f->t, all, 3, 7, &account), 500);
    assert_int_equal(account, b.elsewhere);
    fixture_free(b.f);
}

/* Accounts that share no ids (CBs and buffers) each keep their own. */
static void same_id_in_spaces_that_do_not_share_ids(void **unused)
{
    struct book b = book_new();
    for (int space = 0; space < SPACES; space++)
        assert_int_equal(book_bare_alloc(&b.f->w, &b.f->t, b.accounts[space], 7, 10, 0), 0);
    assert_int_equal(book_bare_blocks(&b.f->w), SPACES);
    for (int space = 0; space < SPACES; space++)
        assert_int_equal(book_bare_free(&b.f->w, &b.f->t, b.accounts[space], 7), 10);
    assert_int_equal(table_check(&b.f->w), 0);
    fixture_free(b.f);
}

static void thousands_come_and_go_and_the_table_grows(void **unused)
{
    struct book b = book_new();
    uint64_t wanted[SPACES] = {0};
    for (uint64_t i = 0; i < MANY; i++) {
        uint64_t id = hash_combine(1, i), gone = hash_combine(1, i - 3000);
        alloc(&b, (int)(i % SPACES), id, 1 + i);
        wanted[i % SPACES] += 1 + i;
        if (i >= 3000 && i % 3 == 0) {
            assert_int_equal(release(&b, gone), i - 3000 + 1);
            wanted[(i - 3000) % SPACES] -= i - 3000 + 1;
        }
    }
    for (int space = 0; space < SPACES; space++)
        assert_int_equal(live_bytes(&b, b.accounts[space]), wanted[space]);
    assert_int_equal(table_check(&b.f->w), 0);
    fixture_free(b.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(block_is_found_in_whichever_space),
        cmocka_unit_test(id_that_comes_in_another_space_leaves_the_first),
        cmocka_unit_test(same_id_of_another_device_is_another_block),
        cmocka_unit_test(same_id_in_spaces_that_do_not_share_ids),
        cmocka_unit_test(thousands_come_and_go_and_the_table_grows),
    };
    return cmocka_run_group_tests(tests, fixture_enter, fixture_leave);
}

/* Changes of accounts whose books count and enter no blocks: what a tracked heap does while it is busy. */
#include "ledger/changes.h"
#include "ledger_world.h"

struct told {
    uint64_t came, came_bytes, went, went_bytes;
};

static int hear(const struct change *change, void *context)
{
    struct told *told = context;
    assert_int_equal(change->kind, CHANGE_UNSEEN);
    told->came += change->came;
    told->came_bytes += change->came_bytes;
    told->went += change->went;
    told->went_bytes += change->went_bytes;
    return 0;
}

static void put(struct book_builder *b, uint32_t account, struct told counters)
{
    struct book_counters c = {.alloc_blocks = counters.came,
                              .alloc_bytes = counters.came_bytes,
                              .freed_blocks = counters.went,
                              .freed_bytes = counters.went_bytes};
    off_t at = (off_t)builder_common_offset(b, account);
    assert_int_equal(pwrite(b->fd, &c, sizeof(c), at), sizeof(c));
}

/* Its counters are never the same in two looks, and nothing of it is ever in a table. */
static void busy_heap_adds_up(struct world *w, uint32_t source, uint64_t bytes_each)
{
    struct book_builder b;
    struct told now = {.came = 100, .came_bytes = 64000}, told = now;
    struct changes *changes = NULL;
    book_begin(w, &b, "busy", source);
    uint32_t account = account_add(&b, MEMOIR_SPACE_HEAP, 0, now.came, now.came_bytes);
    builder_publish(&b);
    add(w, "busy");
    assert_int_equal(changes_new(&changes), 0);
    ledger_refresh(w->ledger);
    assert_int_equal(changes_look(changes, w->ledger, hear, &told), 0);
    assert_int_equal(told.came, 100); /* the first look tells nothing */
    for (unsigned i = 1; i <= 50; i++) {
        now.came += 10;
        now.came_bytes += 10 * bytes_each;
        now.went += i % 3;
        now.went_bytes += i % 3 * bytes_each;
        put(&b, account, now);
        ledger_refresh(w->ledger);
        assert_int_equal(changes_look(changes, w->ledger, hear, &told), 0);
        assert_int_equal(told.came, now.came);
        assert_int_equal(told.came_bytes, now.came_bytes);
        assert_int_equal(told.went, now.went);
        assert_int_equal(told.went_bytes, now.went_bytes);
    }
    changes_free(changes);
}

static void a_busy_tracked_heap_adds_up_in_every_look(void **state)
{
    busy_heap_adds_up(*state, BOOK_SOURCE_TRACK, 1000);
}

static void a_busy_allocator_adds_up_in_every_look(void **state)
{
    busy_heap_adds_up(*state, BOOK_SOURCE_MALLOC, 48);
}

/* Of a source with a table, what is counted and in no table for a second is told, also while counters move. */
static void what_stays_missing_is_told_while_counters_move(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    struct told now = {.came = 100, .came_bytes = 64000}, told = now;
    struct changes *changes = NULL;
    book_begin(w, &b, "busy", BOOK_SOURCE_CLIENT);
    uint32_t account = account_add(&b, MEMOIR_SPACE_HEAP, 0, now.came, now.came_bytes);
    builder_publish(&b);
    add(w, "busy");
    assert_int_equal(changes_new(&changes), 0);
    ledger_refresh(w->ledger);
    assert_int_equal(changes_look(changes, w->ledger, hear, &told), 0);
    for (unsigned i = 0; i < 70; i++) {
        now.came += 10;
        now.came_bytes += 10000;
        put(&b, account, now);
        ledger_refresh(w->ledger);
        assert_int_equal(changes_look(changes, w->ledger, hear, &told), 0);
        usleep(50000);
    }
    /* In 3.5 s at least what had come after 1.5 s. */
    assert_in_range(told.came, 100 + 300, now.came);
    assert_in_range(told.came_bytes, 64000 + 300 * 1000, now.came_bytes);
    changes_free(changes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(a_busy_tracked_heap_adds_up_in_every_look),
        WORLD_TEST(a_busy_allocator_adds_up_in_every_look),
        WORLD_TEST(what_stays_missing_is_told_while_counters_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What changed between two histories. */
#include "fault.h"
#include "trace/diff.h"
#include "trace_fixture.h"

/* Sites have the numbers that the feeder gave, which differ from run to run, and keys that do not. */
static void define(struct trace_history *h, uint32_t number, uint64_t key)
{
    struct trace_site site = {.number = number, .key = key};
    assert_int_equal(trace_sites_define(trace_history_sites(h), &site), 0);
}

static const struct trace_diff_row *row_of(const struct trace_diff *d, uint64_t key)
{
    for (size_t i = 0; i < d->n_rows; i++)
        if (d->rows[i].key == key)
            return &d->rows[i];
    fail_msg("no row of key %u", (unsigned)key);
    return NULL;
}

static void holders_are_matched_by_key_whatever_their_numbers(void **state)
{
    (void)state;
    struct trace_history *a = history_with(NULL), *b = history_with(NULL);
    for (uint32_t i = 1; i <= 5; i++) {
        define(a, i, 100 + i);
        define(b, 10 - i, 100 + i);
    }
    alloc_at(a, 1, DEVICE_AT, 1000, 1); /* grows to 5000 */
    alloc_at(b, 1, DEVICE_AT, 5000, 9);
    alloc_at(a, 2, DEVICE_AT + 65536, 1000, 2); /* gone */
    alloc_at(b, 2, DEVICE_AT + 65536, 100, 7);  /* new: key 103 */
    alloc_at(a, 3, DEVICE_AT + 2 * 65536, 500, 4);
    alloc_at(b, 3, DEVICE_AT + 2 * 65536, 500, 6); /* busier */
    copy_to(b, 4, DEVICE_AT + 2 * 65536, 0, 77, TRACE_TO_DEVICE);
    alloc_at(a, 5, DEVICE_AT + 3 * 65536, 500, 5);
    alloc_at(b, 5, DEVICE_AT + 3 * 65536, 500, 5); /* same: key 105 */
    struct trace_diff *d = NULL;
    assert_int_equal(trace_diff_new(a, b, &d), 0);
    assert_int_equal(d->n_rows, 5);
    assert_int_equal(d->rows[0].key, 101);
    assert_int_equal(d->rows[0].change, TRACE_CHANGE_GROWN);
    assert_int_equal(d->rows[0].live_bytes, 4000);
    assert_int_equal(d->rows[0].before_site, 1);
    assert_int_equal(d->rows[0].after_site, 9);
    assert_int_equal(row_of(d, 102)->change, TRACE_CHANGE_GONE);
    assert_int_equal(row_of(d, 102)->live_bytes, -1000);
    assert_int_equal(row_of(d, 103)->change, TRACE_CHANGE_NEW);
    assert_int_equal(row_of(d, 104)->change, TRACE_CHANGE_BUSIER);
    assert_int_equal(row_of(d, 104)->copied_bytes, 77);
    assert_int_equal(row_of(d, 105)->change, TRACE_CHANGE_SAME);
    assert_int_equal(d->live_bytes, 4000 - 1000 + 100);
    assert_int_equal(d->copied_bytes, 77);
    assert_string_equal(trace_change_word(TRACE_CHANGE_GROWN), "grown");
    trace_diff_free(d);
    trace_history_free(a);
    trace_history_free(b);
}

static void blocks_of_one_process_are_matched(void **state)
{
    (void)state;
    struct trace_history *a = history_with(NULL), *b = history_with(NULL);
    for (uint64_t i = 0; i < 10; i++) {
        alloc_at(a, i + 1, DEVICE_AT + i * 65536, 100, 1);
        alloc_at(b, i + 1, DEVICE_AT + i * 65536, 100, 1);
    }
    free_at(b, 20, DEVICE_AT);
    alloc_at(b, 21, DEVICE_AT, 100, 1); /* the same address, another block */
    copy_to(b, 22, DEVICE_AT + 65536, 0, 10, TRACE_TO_DEVICE);
    struct trace_diff *d = NULL;
    assert_int_equal(trace_diff_new(a, b, &d), 0);
    assert_true(d->same_process);
    assert_int_equal(d->blocks[TRACE_CHANGE_GONE], 1);
    assert_int_equal(d->blocks[TRACE_CHANGE_NEW], 1);
    assert_int_equal(d->blocks[TRACE_CHANGE_BUSIER], 1);
    assert_int_equal(d->blocks[TRACE_CHANGE_SAME], 8);
    trace_diff_free(d);
    struct trace_history *other = NULL;
    struct trace_identity identity = {.pid = 1};
    assert_int_equal(trace_history_new(&identity, NULL, &other), 0);
    assert_int_equal(trace_diff_new(a, other, &d), 0);
    assert_false(d->same_process);
    assert_int_equal(d->blocks[TRACE_CHANGE_GONE], 0);
    trace_diff_free(d);
    trace_history_free(other);
    trace_history_free(a);
    trace_history_free(b);
}

static void sites_of_one_key_count_as_one(void **state)
{
    (void)state;
    struct trace_history *a = history_with(NULL), *b = history_with(NULL);
    define(a, 1, 7);
    define(a, 2, 7);
    define(b, 3, 7);
    alloc_at(a, 1, DEVICE_AT, 100, 1);
    alloc_at(a, 1, DEVICE_AT + 4096, 200, 2);
    alloc_at(b, 1, DEVICE_AT, 300, 3);
    struct trace_diff *d = NULL;
    assert_int_equal(trace_diff_new(a, b, &d), 0);
    assert_int_equal(d->n_rows, 1);
    assert_int_equal(d->rows[0].change, TRACE_CHANGE_SAME);
    assert_int_equal(d->rows[0].before.live_blocks, 2);
    trace_diff_free(d);
    trace_history_free(a);
    trace_history_free(b);
}

static void without_memory_it_fails_cleanly(void **state)
{
    (void)state;
    struct trace_history *a = rich_history(1), *b = rich_history(2);
    for (int nth = 0; fault_arm(nth); nth++) {
        struct trace_diff *d = NULL;
        int r = trace_diff_new(a, b, &d);
        fault_disarm();
        assert_true(r == 0 || fault_fired());
        trace_diff_free(d);
    }
    trace_history_free(a);
    trace_history_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holders_are_matched_by_key_whatever_their_numbers),
        cmocka_unit_test(blocks_of_one_process_are_matched),
        cmocka_unit_test(sites_of_one_key_count_as_one),
        cmocka_unit_test(without_memory_it_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

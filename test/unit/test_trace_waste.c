/* Copies and memory that need not be, from a history. */
#include "trace/waste.h"

#include <stdlib.h>

#include "fault.h"
#include "trace_fixture.h"

static void copy_by(struct trace_history *h, uint64_t time_ns, uint64_t address, uint64_t size,
                    uint32_t site, uint32_t flags)
{
    struct trace_event e = event_of(TRACE_COPY, time_ns, address, size);
    e.source = HOST_AT;
    e.direction = TRACE_TO_DEVICE;
    e.site = site;
    e.flags = flags;
    feed(h, e);
}

static void lines_are_ranked_by_what_crosses_the_bus(void **state)
{
    (void)state;
    struct trace_history *h = history_with(NULL);
    struct trace_copier *rows = NULL;
    alloc_at(h, 1, DEVICE_AT, 1 << 20, 1);
    for (uint64_t i = 0; i < 50; i++)
        copy_by(h, 10 + i, DEVICE_AT, 100, (uint32_t)i + 2, TRACE_FLAG_PAGEABLE);
    copy_by(h, 100, DEVICE_AT, 700, 7, 0);
    copy_by(h, 101, DEVICE_AT, 300, 40, 0);
    assert_int_equal(waste_copiers(h, 3, &rows), 3);
    assert_int_equal(rows[0].site, 7);
    assert_int_equal(rows[0].flow[TRACE_TO_DEVICE].bytes, 800);
    assert_int_equal(rows[0].pageable.bytes, 100);
    assert_int_equal(rows[1].site, 40);
    free(rows);
    trace_history_free(h);
}

static void blocks_that_nothing_touched_are_summed_by_line(void **state)
{
    (void)state;
    struct trace_history *h = history_with(NULL);
    struct waste_uncopied *rows = NULL;
    for (uint64_t i = 0; i < 2000; i++) /* more places than the first table holds */
        alloc_at(h, 1 + i, DEVICE_AT + i * 65536, 1000 + i, (uint32_t)(i % 1000) + 1);
    copy_by(h, 5000, DEVICE_AT + 1999 * 65536, 8, 3, 0);
    feed(h, event_of(TRACE_SET, 5001, DEVICE_AT + 999 * 65536, 8));
    free_at(h, 5002, DEVICE_AT + 998 * 65536);
    assert_int_equal(waste_uncopied(h, 2, &rows), 2);
    assert_int_equal(rows[0].site, 999); /* both of site 1000 were used */
    assert_int_equal(rows[0].blocks, 2);
    assert_int_equal(rows[0].bytes, 1998 + 2998);
    assert_int_equal(rows[0].live_bytes, 2998);
    free(rows);
    trace_history_free(h);
}

static void repetitions_are_ranked_by_bytes_and_know_their_line(void **state)
{
    (void)state;
    struct trace_history *h = history_with(NULL);
    struct waste_repeat *rows = NULL;
    alloc_at(h, 1, DEVICE_AT, 1 << 20, 1);
    alloc_at(h, 2, DEVICE_AT + (1 << 20), 1 << 20, 2);
    for (uint64_t i = 0; i < 10; i++)
        copy_by(h, 10 + i, DEVICE_AT, 100, 5, 0);
    for (uint64_t i = 0; i < 3; i++)
        copy_by(h, 30 + i, DEVICE_AT + (1 << 20), 5000, i < 2 ? 6 : 9, 0);
    ptrdiff_t n = waste_repeats(h, 1, &rows);
    assert_int_equal(n, 1);
    assert_int_equal(rows[0].bytes, 2 * 5000);
    assert_int_equal(rows[0].repeat.copies, 3);
    assert_int_equal(waste_copy_site(h, &rows[0].block), 6);
    free(rows);
    trace_history_free(h);
}

static void what_pinning_saves_is_the_difference_of_two_rates(void **state)
{
    (void)state;
    assert_int_equal(waste_saving_ns(NULL, 0), 0);
    assert_int_equal(waste_saving_ns(NULL, WASTE_PAGEABLE_RATE),
                     1000000000 - 1000000000 * WASTE_PAGEABLE_RATE / WASTE_PINNED_RATE);
    assert_true(waste_saving_ns(NULL, UINT64_MAX) > 0);
}

static void without_memory_it_fails_cleanly(void **state)
{
    (void)state;
    struct trace_history *h = rich_history(1);
    for (int nth = 0; fault_arm(nth); nth++) {
        struct waste_uncopied *uncopied = NULL;
        struct waste_repeat *repeats = NULL;
        struct trace_copier *copiers = NULL;
        ptrdiff_t r = waste_uncopied(h, 10, &uncopied);
        if (r >= 0)
            r = waste_repeats(h, 10, &repeats);
        if (r >= 0)
            r = waste_copiers(h, 10, &copiers);
        fault_disarm();
        assert_true(r >= 0 || fault_fired());
        free(uncopied);
        free(repeats);
        free(copiers);
    }
    trace_history_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_ranked_by_what_crosses_the_bus),
        cmocka_unit_test(blocks_that_nothing_touched_are_summed_by_line),
        cmocka_unit_test(repetitions_are_ranked_by_bytes_and_know_their_line),
        cmocka_unit_test(what_pinning_saves_is_the_difference_of_two_rates),
        cmocka_unit_test(without_memory_it_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

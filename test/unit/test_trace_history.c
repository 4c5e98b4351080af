/* The history of a traced process, case by case. test_trace_model.c compares it with a model. */
#include <errno.h>

#include "trace_fixture.h"

static struct trace_history *make(void **state)
{
    struct trace_history *h = history_with(NULL);
    *state = h;
    return h;
}

static int end(void **state)
{
    struct trace_history *h = *state;
    int r = h ? trace_history_check(h) : 0;
    trace_history_free(h);
    *state = NULL;
    return r;
}

static void a_block_has_its_range_site_call_and_state(void **state)
{
    struct trace_history *h = make(state);
    struct trace_event e = event_of(TRACE_ALLOC, 10, DEVICE_AT, 4096);
    e.site = 3;
    e.device = 1;
    e.call = 17;
    e.function = 5;
    feed(h, e);
    struct trace_block b = block_at(h, DEVICE_AT + 4095);
    assert_int_equal(b.address, DEVICE_AT);
    assert_int_equal(b.size, 4096);
    assert_int_equal(b.site, 3);
    assert_int_equal(b.device, 1);
    assert_int_equal(b.call, 17);
    assert_int_equal(b.function, 5);
    assert_int_equal(b.tid, 7);
    assert_int_equal(b.state, TRACE_STATE_ALLOCATED);
    assert_true(b.active);
    assert_int_equal(b.start_ns, 10);
    assert_int_equal(trace_history_find(h, DEVICE_AT + 4096, &b), -ENOENT);
    assert_int_equal(trace_history_find(h, DEVICE_AT - 1, &b), -ENOENT);
    free_at(h, 20, DEVICE_AT);
    assert_int_equal(trace_history_find(h, DEVICE_AT, &b), -ENOENT);
    assert_int_equal(trace_history_block(h, b.id, &b), 0);
    assert_int_equal(b.state, TRACE_STATE_FREED);
    assert_int_equal(b.end, TRACE_END_FREE);
    assert_int_equal(b.end_ns, 20);
}

static void an_address_has_several_histories_of_which_one_is_active(void **state)
{
    struct trace_history *h = make(state);
    struct trace_block b[8];
    for (uint64_t i = 1; i <= 5; i++) {
        alloc_at(h, i * 10, DEVICE_AT, i * 100, 1);
        if (i < 5)
            free_at(h, i * 10 + 5, DEVICE_AT);
    }
    assert_int_equal(trace_history_at(h, DEVICE_AT, b, 3), 5);
    assert_int_equal(trace_history_at(h, DEVICE_AT, b, 8), 5);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(b[i].size, (5 - i) * 100);
        assert_int_equal(b[i].active, i == 0);
    }
    assert_int_equal(trace_history_at(h, DEVICE_AT + 1, b, 8), 0);
}

static void a_copy_counts_for_both_its_sides_and_once_for_its_line(void **state)
{
    struct trace_history *h = make(state);
    alloc_at(h, 1, DEVICE_AT, 1 << 20, 1);
    struct trace_event pinned = event_of(TRACE_ALLOC, 2, HOST_AT, 1 << 20);
    pinned.space = MEMOIR_SPACE_PINNED;
    pinned.site = 2;
    feed(h, pinned);
    copy_to(h, 10, DEVICE_AT + 512, HOST_AT + 1024, 4096, TRACE_TO_DEVICE);
    copy_to(h, 20, HOST_AT, DEVICE_AT, 100, TRACE_FROM_DEVICE);
    struct trace_block device = block_at(h, DEVICE_AT), host = block_at(h, HOST_AT);
    assert_int_equal(device.flow[TRACE_TO_DEVICE].bytes, 4096);
    assert_int_equal(device.flow[TRACE_FROM_DEVICE].bytes, 100);
    assert_int_equal(device.written.bytes, 4096);
    assert_int_equal(device.read.bytes, 100);
    assert_int_equal(host.written.bytes, 100);
    assert_int_equal(host.flow[TRACE_TO_DEVICE].copies, 1);
    assert_int_equal(host.first_copy_ns, 10);
    assert_int_equal(host.last_copy_ns, 20);
    struct trace_copier c[2];
    uint64_t cursor = 0;
    assert_int_equal(trace_history_copiers(h, &cursor, c, 2), 1);
    assert_int_equal(c[0].site, 50);
    assert_int_equal(c[0].flow[TRACE_TO_DEVICE].copies + c[0].flow[TRACE_FROM_DEVICE].copies, 2);
    struct trace_totals t = trace_history_totals(h);
    assert_int_equal(t.flow[TRACE_TO_DEVICE].bytes, 4096);
    assert_int_equal(t.unknown_sides, 0);
}

static void the_direction_follows_from_what_is_known_of_both_sides(void **state)
{
    struct trace_history *h = make(state);
    alloc_at(h, 1, DEVICE_AT, 4096, 1);
    struct trace_event pinned = event_of(TRACE_ALLOC, 2, HOST_AT, 4096);
    pinned.space = MEMOIR_SPACE_PINNED;
    feed(h, pinned);
    copy_to(h, 3, DEVICE_AT, HOST_AT, 10, TRACE_DIRECTION_UNKNOWN);
    copy_to(h, 4, HOST_AT, DEVICE_AT, 20, TRACE_DIRECTION_UNKNOWN);
    copy_to(h, 5, DEVICE_AT, DEVICE_AT + 100, 30, TRACE_DIRECTION_UNKNOWN);
    copy_to(h, 6, DEVICE_AT, HOST_AT + 8192, 40, TRACE_DIRECTION_UNKNOWN);
    struct trace_block b = block_at(h, DEVICE_AT);
    assert_int_equal(b.flow[TRACE_TO_DEVICE].bytes, 10);
    assert_int_equal(b.flow[TRACE_FROM_DEVICE].bytes, 20);
    assert_int_equal(b.flow[TRACE_ON_DEVICE].bytes, 30);
    assert_int_equal(b.flow[TRACE_ON_DEVICE].copies, 1);
    assert_int_equal(b.flow[TRACE_DIRECTION_UNKNOWN].bytes, 40);
}

static void a_failed_free_is_taken_back_with_all_sums(void **state)
{
    struct trace_history *h = make(state);
    alloc_at(h, 1, DEVICE_AT, 4096, 1);
    copy_to(h, 2, DEVICE_AT, 0, 10, TRACE_TO_DEVICE);
    struct trace_block before = block_at(h, DEVICE_AT);
    free_at(h, 3, DEVICE_AT);
    feed(h, event_of(TRACE_RESTORE, 4, DEVICE_AT, 0));
    struct trace_block after = block_at(h, DEVICE_AT);
    assert_memory_equal(&before, &after, sizeof(before));
    struct trace_totals t = trace_history_totals(h);
    assert_int_equal(t.live_bytes, 4096);
    assert_int_equal(t.freed_blocks, 0);
    assert_int_equal(t.unknown_restores, 0);
    feed(h, event_of(TRACE_RESTORE, 5, DEVICE_AT + 8192, 0));
    assert_int_equal(trace_history_totals(h).unknown_restores, 1);
}

static void a_restored_block_does_not_displace_a_newer_one(void **state)
{
    struct trace_history *h = make(state);
    alloc_at(h, 1, DEVICE_AT, 4096, 1);
    free_at(h, 2, DEVICE_AT);
    alloc_at(h, 3, DEVICE_AT + 100, 50, 2);
    feed(h, event_of(TRACE_RESTORE, 4, DEVICE_AT, 4096));
    assert_int_equal(trace_history_totals(h).unknown_restores, 1);
    assert_int_equal(block_at(h, DEVICE_AT + 120).site, 2);
}

static void an_overlapping_allocation_ends_what_was_there_as_unknown(void **state)
{
    struct trace_history *h = make(state);
    struct trace_block b[4];
    alloc_at(h, 1, DEVICE_AT, 4096, 1);
    alloc_at(h, 2, DEVICE_AT + 4096, 4096, 1);
    alloc_at(h, 3, DEVICE_AT + 2048, 4096, 2);
    assert_int_equal(trace_history_at(h, DEVICE_AT, b, 4), 1);
    assert_int_equal(b[0].state, TRACE_STATE_UNKNOWN);
    assert_int_equal(b[0].end, TRACE_END_LOST);
    assert_int_equal(trace_history_totals(h).superseded, 2);
    assert_int_equal(trace_history_totals(h).live_bytes, 4096);
}

static void found_blocks_that_are_known_stay_as_they_are(void **state)
{
    struct trace_history *h = make(state);
    alloc_at(h, 1, DEVICE_AT, 4096, 3);
    feed(h, event_of(TRACE_GAP, 2, 0, 77));
    feed(h, event_of(TRACE_FOUND, 3, DEVICE_AT, 4096));
    feed(h, event_of(TRACE_FOUND, 3, DEVICE_AT + 8192, 100));
    struct trace_block b = block_at(h, DEVICE_AT);
    assert_int_equal(b.site, 3);
    assert_false(b.found);
    assert_true(block_at(h, DEVICE_AT + 8192).found);
    struct trace_gap gap;
    assert_int_equal(trace_history_gaps(h, &gap, 1), 1);
    assert_int_equal(gap.lost, 77);
    assert_int_equal(gap.time_ns, 2);
    assert_int_equal(trace_history_totals(h).gap_events, 77);
}

static void a_reset_ends_the_blocks_of_its_context_only(void **state)
{
    struct trace_history *h = make(state);
    for (uint64_t i = 0; i < 100; i++) {
        struct trace_event e = event_of(TRACE_ALLOC, i + 1, DEVICE_AT + i * 4096, 4096);
        e.context = i % 10 + 1;
        e.device = (int32_t)(i % 2);
        feed(h, e);
    }
    struct trace_event reset = event_of(TRACE_RESET, 1000, 0, 0);
    reset.context = 3;
    feed(h, reset);
    assert_int_equal(trace_history_totals(h).live_blocks, 90);
    feed(h, reset);
    assert_int_equal(trace_history_totals(h).live_blocks, 90);
    reset.context = 0;
    reset.device = 1; /* contexts 2, 4, ...: the tenth of them is context 2's */
    feed(h, reset);
    assert_int_equal(trace_history_totals(h).live_blocks, 40);
    struct trace_block b[1];
    assert_int_equal(trace_history_at(h, DEVICE_AT + 2 * 4096, b, 1), 1);
    assert_int_equal(b[0].end, TRACE_END_RESET);
}

static void the_end_of_the_process_ends_every_block(void **state)
{
    struct trace_history *h = make(state);
    alloc_at(h, 1, DEVICE_AT, 4096, 1);
    copy_to(h, 2, DEVICE_AT, HOST_AT, 100, TRACE_TO_DEVICE);
    struct trace_event e = event_of(TRACE_EXIT, 3, 0, 0);
    e.result = 9;
    feed(h, e);
    struct trace_totals t = trace_history_totals(h);
    assert_int_equal(t.live_bytes, 0);
    assert_int_equal(t.exit_ns, 3);
    assert_int_equal(t.exit_result, 9);
    struct trace_holder holders[4];
    uint64_t cursor = 0;
    assert_int_equal(trace_history_holders(h, &cursor, holders, 4), 2);
    assert_int_equal(holders[0].exit_bytes, 4096);
}

static void host_memory_that_no_call_allocated_is_named_by_the_line_that_copies_it(void **state)
{
    struct trace_history *h = make(state);
    alloc_at(h, 1, DEVICE_AT, 1 << 20, 1);
    copy_to(h, 2, DEVICE_AT, HOST_AT, 4096, TRACE_TO_DEVICE);
    struct trace_block b = block_at(h, HOST_AT + 10);
    assert_int_equal(b.state, TRACE_STATE_UNKNOWN);
    assert_int_equal(b.class, TRACE_CLASS_IMPLICIT);
    assert_int_equal(b.site, 50);
    assert_int_equal(b.size, 4096);
    /* Two more that the next copy joins. */
    copy_to(h, 3, DEVICE_AT, HOST_AT + 8192, 4096, TRACE_TO_DEVICE);
    copy_to(h, 4, DEVICE_AT, HOST_AT + 1000, 100, TRACE_TO_DEVICE);
    assert_int_equal(trace_history_totals(h).implicit_blocks, 2);
    copy_to(h, 5, HOST_AT + 4000, DEVICE_AT, 4200, TRACE_FROM_DEVICE);
    assert_int_equal(trace_history_totals(h).implicit_blocks, 1);
    assert_int_equal(trace_history_totals(h).merged_implicit, 2);
    b = block_at(h, HOST_AT);
    assert_int_equal(b.size, 12288);
    assert_int_equal(b.flow[TRACE_TO_DEVICE].copies, 3);
    assert_int_equal(b.flow[TRACE_FROM_DEVICE].bytes, 4200);
    assert_int_equal(b.first_copy_ns, 2);
    /* In no sum of live memory. */
    assert_int_equal(trace_history_totals(h).live_bytes, 1 << 20);
}

static void ranges_known_from_copies_are_bounded_and_the_used_ones_stay(void **state)
{
    struct trace_limits limits = {.implicit = 16};
    struct trace_history *h = history_with(&limits);
    *state = h;
    for (uint64_t i = 0; i < 1000; i++) {
        copy_to(h, i + 1, DEVICE_AT, HOST_AT + i * 8192, 4096, TRACE_TO_DEVICE);
        copy_to(h, i + 1, DEVICE_AT, HOST_AT, 4096, TRACE_TO_DEVICE);
    }
    struct trace_totals t = trace_history_totals(h);
    assert_int_equal(t.implicit_blocks, 16);
    assert_int_equal(t.folded_implicit, 1000 - 16);
    assert_int_equal(block_at(h, HOST_AT).flow[TRACE_TO_DEVICE].copies, 1001);
    struct trace_holder holders[4];
    uint64_t cursor = 0;
    assert_int_equal(trace_history_holders(h, &cursor, holders, 4), 1);
    assert_int_equal(holders[0].flow[TRACE_TO_DEVICE].copies, 2000);
}

static void registered_memory_hides_the_mapping_it_lies_in(void **state)
{
    struct trace_history *h = make(state);
    struct trace_event map = event_of(TRACE_ALLOC, 1, HOST_AT, 1 << 20);
    map.flags = TRACE_FLAG_SYSTEM;
    map.space = MEMOIR_SPACE_MAPPED;
    feed(h, map);
    assert_int_equal(block_at(h, HOST_AT + 5000).class, TRACE_CLASS_SYSTEM);
    struct trace_event reg = event_of(TRACE_ALLOC, 2, HOST_AT + 4096, 8192);
    reg.flags = TRACE_FLAG_REGISTERED;
    reg.space = MEMOIR_SPACE_PINNED;
    feed(h, reg);
    assert_int_equal(block_at(h, HOST_AT + 5000).class, TRACE_CLASS_REGISTERED);
    assert_int_equal(block_at(h, HOST_AT + 4095).class, TRACE_CLASS_SYSTEM);
    free_at(h, 3, HOST_AT + 4096);
    assert_int_equal(block_at(h, HOST_AT + 5000).class, TRACE_CLASS_SYSTEM);
    assert_int_equal(trace_history_totals(h).live_bytes, 0);
}

static void unmapping_a_part_leaves_the_rest(void **state)
{
    struct trace_history *h = make(state);
    struct trace_event map = event_of(TRACE_ALLOC, 1, HOST_AT, 10 * 4096);
    map.flags = TRACE_FLAG_SYSTEM;
    map.space = MEMOIR_SPACE_MAPPED;
    feed(h, map);
    map.kind = TRACE_FREE;
    map.address += 4 * 4096;
    map.size = 4096;
    feed(h, map);
    struct trace_block b;
    assert_int_equal(trace_history_find(h, HOST_AT + 4 * 4096, &b), -ENOENT);
    assert_int_equal(block_at(h, HOST_AT).size, 4 * 4096);
    assert_int_equal(block_at(h, HOST_AT + 9 * 4096).size, 5 * 4096);
    map.address = HOST_AT;
    map.size = 10 * 4096;
    feed(h, map);
    assert_int_equal(trace_history_totals(h).active_blocks, 0);
    assert_int_equal(trace_history_totals(h).unknown_frees, 0);
    feed(h, map);
    assert_int_equal(trace_history_totals(h).unknown_frees, 1);
}

static void a_handle_is_no_place_in_the_address_space(void **state)
{
    struct trace_history *h = make(state);
    struct trace_event e = event_of(TRACE_ALLOC, 1, DEVICE_AT + 100, 1 << 20);
    e.flags = TRACE_FLAG_HANDLE;
    feed(h, e);
    alloc_at(h, 2, DEVICE_AT, 4096, 1);
    assert_int_equal(trace_history_totals(h).live_blocks, 2);
    assert_int_equal(block_at(h, DEVICE_AT + 100).address, DEVICE_AT);
    struct trace_block b;
    assert_int_equal(trace_history_find(h, DEVICE_AT + 8192, &b), -ENOENT);
    free_at(h, 3, DEVICE_AT);
    assert_int_equal(block_at(h, DEVICE_AT + 100).size, 1 << 20);
    free_at(h, 4, DEVICE_AT + 100); /* without the flag */
    assert_int_equal(trace_history_totals(h).live_blocks, 0);
}

static void ended_blocks_are_folded_and_sums_stay_exact(void **state)
{
    struct trace_limits limits = {.ended = 10, .blocks = 50};
    struct trace_history *h = history_with(&limits);
    *state = h;
    for (uint64_t i = 0; i < 100; i++) {
        alloc_at(h, 2 * i + 1, DEVICE_AT + i * 4096, 100, 1 + i % 2);
        copy_to(h, 2 * i + 1, DEVICE_AT + i * 4096, 0, 7, TRACE_TO_DEVICE);
        free_at(h, 2 * i + 2, DEVICE_AT + i * 4096);
    }
    struct trace_totals t = trace_history_totals(h);
    assert_int_equal(t.kept_blocks, 10);
    assert_int_equal(t.folded_blocks, 90);
    assert_int_equal(t.freed_bytes, 10000);
    struct trace_holder holders[4];
    uint64_t cursor = 0;
    assert_int_equal(trace_history_holders(h, &cursor, holders, 4), 2);
    assert_int_equal(holders[0].freed_blocks, 50);
    assert_int_equal(holders[0].flow[TRACE_TO_DEVICE].bytes, 350);
    assert_int_equal(holders[0].folded_blocks, 45);
    /* Past the limit of active blocks: counted, and never live. */
    for (uint64_t i = 0; i < 60; i++)
        alloc_at(h, 1000, DEVICE_AT + i * 4096, 100, 1);
    t = trace_history_totals(h);
    assert_int_equal(t.unkept_blocks, 10);
    assert_int_equal(t.live_blocks, 50);
    assert_int_equal(t.allocated_blocks, 160);
}

static void moments_are_in_order_bounded_and_counted(void **state)
{
    struct trace_limits limits = {.moments = 8};
    struct trace_history *h = history_with(&limits);
    *state = h;
    alloc_at(h, 1, DEVICE_AT, 4096, 1);
    for (uint64_t i = 0; i < 20; i++)
        copy_to(h, 10 + i, DEVICE_AT + i, HOST_AT, 100, TRACE_TO_DEVICE);
    struct trace_block b = block_at(h, DEVICE_AT);
    struct trace_moment m[64];
    assert_int_equal(b.moments, 21);
    assert_int_equal(b.moments_kept, 9);
    assert_int_equal(trace_history_moments(h, b.id, m, 64), 9);
    assert_int_equal(m[0].kind, TRACE_ALLOC);
    for (unsigned i = 1; i < 9; i++) {
        assert_int_equal(m[i].kind, TRACE_COPY);
        assert_int_equal(m[i].time_ns, 21 + i);
        assert_int_equal(m[i].offset, 11 + i);
        assert_int_equal(m[i].peer, HOST_AT);
    }
    free_at(h, 99, DEVICE_AT);
    assert_int_equal(trace_history_moments(h, b.id, m, 2), 2);
    assert_int_equal(m[0].time_ns, 29);
    assert_int_equal(m[1].kind, TRACE_FREE);
    assert_int_equal(trace_history_moments(h, b.id + (UINT64_C(1) << 32), m, 2), -ENOENT);
}

static void room_for_moments_is_bounded_and_the_oldest_ended_make_place(void **state)
{
    struct trace_limits limits = {.moments = 4, .moments_all = 40};
    struct trace_history *h = history_with(&limits);
    *state = h;
    for (uint64_t i = 0; i < 30; i++) {
        alloc_at(h, i + 1, DEVICE_AT + i * 4096, 4096, 1);
        copy_to(h, i + 1, DEVICE_AT + i * 4096, 0, 100, TRACE_TO_DEVICE);
        if (i < 20)
            free_at(h, i + 1, DEVICE_AT + i * 4096);
    }
    struct trace_totals t = trace_history_totals(h);
    assert_int_equal(t.unkept_moments, 0);
    assert_int_equal(t.folded_blocks, 20);
    alloc_at(h, 50, HOST_AT, 4096, 1);
    copy_to(h, 51, HOST_AT, 0, 100, TRACE_TO_DEVICE);
    assert_int_equal(trace_history_totals(h).unkept_moments, 1);
    assert_int_equal(block_at(h, HOST_AT).moments, 2);
    assert_int_equal(block_at(h, HOST_AT).moments_kept, 1);
}

static void the_same_copy_again_is_counted(void **state)
{
    struct trace_history *h = make(state);
    alloc_at(h, 1, DEVICE_AT, 1 << 20, 1);
    for (uint64_t i = 0; i < 10; i++) {
        copy_to(h, 10 + i, DEVICE_AT, HOST_AT, 4096, TRACE_TO_DEVICE);
        copy_to(h, 10 + i, DEVICE_AT + 4096, HOST_AT + 65536 * i, 512, TRACE_TO_DEVICE);
    }
    copy_to(h, 30, HOST_AT, DEVICE_AT, 4096, TRACE_FROM_DEVICE); /* another direction */
    struct trace_block b = block_at(h, DEVICE_AT);
    assert_int_equal(b.repeated, 18);
    assert_int_equal(b.repeated_bytes, 9 * (4096 + 512));
    assert_int_equal(b.repeats[0].copies, 10);
    assert_int_equal(b.repeats[1].copies, 10);
    assert_int_equal(b.repeats[2].copies, 0);
    /* Of the line: only where both sides were the same. */
    assert_int_equal(trace_history_totals(h).repeated, 9);
}

static void what_the_system_did_before_the_first_copy_is_told_apart(void **state)
{
    struct trace_history *h = make(state);
    struct trace_event map = event_of(TRACE_ALLOC, 1, HOST_AT, 1 << 25);
    map.flags = TRACE_FLAG_SYSTEM;
    map.space = MEMOIR_SPACE_MAPPED;
    feed(h, map);
    struct trace_event fault = event_of(TRACE_SYSTEM, 2, HOST_AT + 4096, 8192);
    fault.detail = TRACE_SYSTEM_FAULT;
    feed(h, fault);
    copy_to(h, 3, DEVICE_AT, HOST_AT, 100, TRACE_TO_DEVICE);
    fault.size = 5;
    feed(h, fault);
    fault.address = 0;
    feed(h, fault);
    struct trace_block b = block_at(h, HOST_AT);
    assert_int_equal(b.system[TRACE_SYSTEM_FAULT], 8197);
    assert_int_equal(b.system_early[TRACE_SYSTEM_FAULT], 8192);
    assert_int_equal(trace_history_totals(h).system[TRACE_SYSTEM_FAULT], 8202);
}

static void hot_and_cold_follow_count_and_bytes(void **state)
{
    struct trace_history *h = make(state);
    struct trace_block b[8];
    for (uint64_t i = 0; i < 1000; i++) {
        alloc_at(h, i + 1, DEVICE_AT + i * 65536, 65536, 1);
        for (uint64_t k = 0; k < i % 100; k++)
            copy_to(h, i + 1, DEVICE_AT + i * 65536, 0, i, TRACE_TO_DEVICE);
    }
    assert_int_equal(trace_history_hot(h, TRACE_BY_COUNT, NULL, b, 8), 8);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(trace_block_value(&b[i], TRACE_BY_COUNT), 99);
    assert_int_equal(trace_history_hot(h, TRACE_BY_BYTES, NULL, b, 3), 3);
    assert_int_equal(trace_block_value(&b[0], TRACE_BY_BYTES), 999 * 99);
    assert_int_equal(trace_block_value(&b[1], TRACE_BY_BYTES), 998 * 98);
    assert_int_equal(trace_history_cold(h, TRACE_BY_COUNT, NULL, b, 8), 8);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(trace_block_value(&b[i], TRACE_BY_COUNT), 0);
    struct trace_filter at_least = {.min = 98};
    struct trace_block all[100];
    assert_int_equal(trace_history_hot(h, TRACE_BY_COUNT, &at_least, all, 100), 20);
    struct trace_filter between = {.min = 40, .max = 41, .active = true};
    assert_int_equal(trace_history_cold(h, TRACE_BY_COUNT, &between, all, 100), 20);
    assert_int_equal(trace_block_value(&all[0], TRACE_BY_COUNT), 40);
    assert_int_equal(trace_block_value(&all[19], TRACE_BY_COUNT), 41);
    free_at(h, 2000, DEVICE_AT + 999 * 65536);
    struct trace_filter ended = {.ended = true};
    assert_int_equal(trace_history_hot(h, TRACE_BY_COUNT, &ended, all, 100), 1);
    between = (struct trace_filter){.active = true};
    assert_int_equal(trace_history_hot(h, TRACE_BY_BYTES, &between, all, 1), 1);
    assert_int_equal(trace_block_value(&all[0], TRACE_BY_BYTES), 998 * 98);
}

static void out_of_memory_keeps_who_held_what_on_that_device(void **state)
{
    struct trace_history *h = make(state);
    for (uint64_t i = 0; i < 40; i++) {
        struct trace_event e = event_of(TRACE_ALLOC, i + 1, DEVICE_AT + i * 65536, (i + 1) * 100);
        e.site = (uint32_t)i + 1;
        e.device = i == 39;
        feed(h, e);
    }
    struct trace_event fail = event_of(TRACE_FAILED, 100, 0, UINT64_C(1) << 40);
    fail.result = TRACE_RESULT_OUT_OF_MEMORY;
    fail.site = 99;
    feed(h, fail);
    fail.time_ns += 1000; /* at once again */
    feed(h, fail);
    free_at(h, 3000000, DEVICE_AT);
    struct trace_failure_other other = {.pid = 5, .name = "other", .bytes = 77};
    assert_int_equal(trace_history_failure_context(h, 1000000, 999999, &other, 1), 0);
    assert_int_equal(trace_history_failure_context(h, 1000000, 999999, &other, 1), -ENOENT);
    struct trace_failure *f = calloc(4, sizeof(*f));
    assert_int_equal(trace_history_failures(h, f, 4), 1);
    assert_true(f->out_of_memory);
    assert_int_equal(f->repeats, 1);
    assert_int_equal(f->site, 99);
    assert_int_equal(f->held_bytes, 39 * 40 / 2 * 100);
    assert_int_equal(f->held_blocks, 39);
    assert_int_equal(f->n_holders, TRACE_FAILURE_HOLDERS);
    for (unsigned i = 0; i < f->n_holders; i++)
        assert_int_equal(f->holders[i].site, 39 - i);
    assert_int_equal(f->others[0].pid, 5);
    free(f);
    assert_int_equal(trace_history_totals(h).failures, 2);
}

static void events_that_make_no_sense_are_refused_and_counted(void **state)
{
    struct trace_history *h = make(state);
    alloc_at(h, 5, DEVICE_AT, 100, 1);
    feed(h, event_of(999, 6, DEVICE_AT, 1));
    feed(h, event_of(TRACE_ALLOC, 7, UINT64_MAX - 10, 100));
    feed(h, event_of(TRACE_ALLOC, 8, 0, 100));
    struct trace_event e = event_of(TRACE_SYSTEM, 9, DEVICE_AT, 1);
    e.detail = TRACE_SYSTEM_KINDS;
    feed(h, e);
    e = event_of(TRACE_COPY, 10, DEVICE_AT, 10);
    e.direction = TRACE_DIRECTIONS;
    feed(h, e);
    assert_int_equal(trace_history_totals(h).invalid, 5);
    free_at(h, 3, DEVICE_AT); /* goes back in time */
    struct trace_totals t = trace_history_totals(h);
    assert_int_equal(t.late, 1);
    assert_int_equal(t.live_blocks, 0);
    free_at(h, 11, DEVICE_AT);
    assert_int_equal(trace_history_totals(h).unknown_frees, 1);
    e = event_of(TRACE_COPY, 12, DEVICE_AT, 10);
    e.result = 1;
    feed(h, e);
    assert_int_equal(trace_history_totals(h).failed_copies, 1);
    feed(h, event_of(TRACE_COPY, 13, DEVICE_AT, UINT64_MAX / 2));
    assert_int_equal(trace_history_totals(h).unknown_sides, 2);
}

static void the_timeline_keeps_what_was_live_at_any_resolution(void **state)
{
    struct trace_history *h = make(state);
    /* 300 holders over an hour; the largest ones last. */
    for (uint64_t i = 0; i < 300; i++)
        alloc_at(h, 1 + i * 12000000000, DEVICE_AT + i * (1 << 20), 1000 + i * i * 10,
                 (uint32_t)i + 1);
    free_at(h, 1 + 300 * UINT64_C(12000000000), DEVICE_AT + 299 * (1 << 20));
    struct trace_timeline t;
    assert_int_equal(trace_history_timeline(h, &t), 0);
    assert_true(t.n_slots > TRACE_TIMELINE_SLOTS / 2 && t.n_slots <= TRACE_TIMELINE_SLOTS);
    assert_int_equal(t.n_lines, 1 + TRACE_TIMELINE_HOLDERS);
    assert_int_equal(t.lines[0].site, 300);
    assert_true(t.lines[t.n_lines - 1].other);
    for (size_t slot = 0; slot < t.n_slots; slot++) {
        uint64_t sum = 0, truth = 0, end = t.start_ns + (slot + 1) * t.step_ns;
        for (size_t i = 0; i < t.n_lines; i++)
            sum += t.lines[i].last[slot];
        for (uint64_t i = 0; i < 300; i++)
            if (1 + i * 12000000000 < end && !(i == 299 && 1 + 300 * UINT64_C(12000000000) < end))
                truth += 1000 + i * i * 10;
        assert_int_equal(sum, truth);
        assert_true(t.device_peak[slot] >= sum);
    }
    assert_int_equal(t.lines[0].last[t.n_slots - 1], 0);
    trace_timeline_release(&t);
}

static void iterating_tells_each_block_once(void **state)
{
    struct trace_history *h = make(state);
    for (uint64_t i = 0; i < 3000; i++)
        alloc_at(h, i + 1, DEVICE_AT + i * 65536, i + 1, 1);
    for (uint64_t i = 0; i < 3000; i += 3)
        free_at(h, 4000, DEVICE_AT + i * 65536);
    struct trace_block b[100];
    struct trace_filter active = {.active = true};
    uint64_t cursor = 0, sum = 0, n, all = 0;
    while ((n = trace_history_blocks(h, &active, &cursor, b, 100)) > 0)
        for (uint64_t i = 0; i < n; i++, all++)
            sum += b[i].size;
    assert_int_equal(all, 2000);
    assert_int_equal(sum, trace_history_totals(h).live_bytes);
}

static void sites_are_kept_and_named_once(void **state)
{
    struct trace_history *h = make(state);
    struct trace_sites *sites = trace_history_sites(h);
    struct trace_module m = {.path = "/lib/libtorch.so", .build_id = {1, 2, 3}, .build_id_len = 3};
    struct trace_line script = {"forward", "model.py", 42};
    struct trace_frame frames[] = {{.module = &m, .offset = 0x1234},
                                   {.lines = &script, .n_lines = 1}};
    struct trace_site site = {.number = 5, .n_frames = 2, .key = 77, .frames = frames};
    assert_int_equal(trace_sites_define(sites, &site), 0);
    site.key = 78;
    assert_int_equal(trace_sites_define(sites, &site), 0); /* stays */
    site.number = 0;
    assert_int_equal(trace_sites_define(sites, &site), -EINVAL);
    site.number = TRACE_SITES_MAX + 1;
    assert_int_equal(trace_sites_define(sites, &site), -EINVAL);
    const struct trace_site *have = trace_sites_get(sites, 5);
    assert_int_equal(have->key, 77);
    assert_string_equal(have->frames[0].module->path, "/lib/libtorch.so");
    assert_string_equal(have->frames[1].lines[0].function, "forward");
    assert_int_equal(
        trace_sites_name(sites, 5, 0, &(struct trace_line){"at::empty", "empty.cpp", 9}, 1), 0);
    assert_int_equal(trace_sites_name(sites, 5, 0, &script, 1), -EEXIST);
    assert_int_equal(trace_sites_name(sites, 6, 0, &script, 1), -ENOENT);
    const struct trace_line *lines;
    assert_int_equal(trace_frame_lines(&have->frames[0], &lines), 1);
    assert_string_equal(lines[0].function, "at::empty");
    assert_null(trace_sites_get(sites, 4));
    assert_int_equal(trace_sites_last(sites), 5);
    assert_int_equal(trace_sites_count(sites), 1);
}

#define CASE(name) cmocka_unit_test_teardown(name, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_block_has_its_range_site_call_and_state),
        CASE(an_address_has_several_histories_of_which_one_is_active),
        CASE(a_copy_counts_for_both_its_sides_and_once_for_its_line),
        CASE(the_direction_follows_from_what_is_known_of_both_sides),
        CASE(a_failed_free_is_taken_back_with_all_sums),
        CASE(a_restored_block_does_not_displace_a_newer_one),
        CASE(an_overlapping_allocation_ends_what_was_there_as_unknown),
        CASE(found_blocks_that_are_known_stay_as_they_are),
        CASE(a_reset_ends_the_blocks_of_its_context_only),
        CASE(the_end_of_the_process_ends_every_block),
        CASE(host_memory_that_no_call_allocated_is_named_by_the_line_that_copies_it),
        CASE(ranges_known_from_copies_are_bounded_and_the_used_ones_stay),
        CASE(registered_memory_hides_the_mapping_it_lies_in),
        CASE(unmapping_a_part_leaves_the_rest),
        CASE(a_handle_is_no_place_in_the_address_space),
        CASE(ended_blocks_are_folded_and_sums_stay_exact),
        CASE(moments_are_in_order_bounded_and_counted),
        CASE(room_for_moments_is_bounded_and_the_oldest_ended_make_place),
        CASE(the_same_copy_again_is_counted),
        CASE(what_the_system_did_before_the_first_copy_is_told_apart),
        CASE(hot_and_cold_follow_count_and_bytes),
        CASE(out_of_memory_keeps_who_held_what_on_that_device),
        CASE(events_that_make_no_sense_are_refused_and_counted),
        CASE(the_timeline_keeps_what_was_live_at_any_resolution),
        CASE(iterating_tells_each_block_once),
        CASE(sites_are_kept_and_named_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

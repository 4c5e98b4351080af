/* Events and histories for the tests of src/trace. */
#pragma once

#include <memoir/memoir.h>
#include <string.h>

#include "check.h"
#include "trace/history.h"

#define DEVICE_AT UINT64_C(0x7f0000000000)
#define HOST_AT   UINT64_C(0x550000000000)

static inline struct trace_history *history_with(const struct trace_limits *limits)
{
    struct trace_identity identity = {
        .pid = 4711, .uid = 1000, .start_ticks = 99, .start_ns = 1, .start_real_ns = 2};
    struct trace_history *h = NULL;
    strcpy(identity.name, "train");
    assert_int_equal(trace_history_new(&identity, limits, &h), 0);
    return h;
}

static inline struct trace_event event_of(uint16_t kind, uint64_t time_ns, uint64_t address,
                                          uint64_t size)
{
    return (struct trace_event){
        .time_ns = time_ns,
        .address = address,
        .size = size,
        .kind = kind,
        .context = 1,
        .call = time_ns,
        .pid = 4711,
        .tid = 7,
        .site = 1,
        .space = MEMOIR_SPACE_DRAM,
    };
}

static inline void feed(struct trace_history *h, struct trace_event e)
{
    trace_history_event(h, &e);
}

static inline void alloc_at(struct trace_history *h, uint64_t time_ns, uint64_t address,
                            uint64_t size, uint32_t site)
{
    struct trace_event e = event_of(TRACE_ALLOC, time_ns, address, size);
    e.site = site;
    feed(h, e);
}

static inline void free_at(struct trace_history *h, uint64_t time_ns, uint64_t address)
{
    feed(h, event_of(TRACE_FREE, time_ns, address, 0));
}

static inline void copy_to(struct trace_history *h, uint64_t time_ns, uint64_t address,
                           uint64_t source, uint64_t size, uint8_t direction)
{
    struct trace_event e = event_of(TRACE_COPY, time_ns, address, size);
    e.source = source;
    e.direction = direction;
    e.site = 50;
    feed(h, e);
}

static inline struct trace_block block_at(struct trace_history *h, uint64_t address)
{
    struct trace_block b = {0};
    assert_int_equal(trace_history_find(h, address, &b), 0);
    return b;
}

/* A history that has something of everything. */
static inline struct trace_history *rich_history(uint64_t seed)
{
    struct trace_history *h =
        history_with(&(struct trace_limits){.ended = 40, .moments = 8, .implicit = 20});
    struct trace_module torch = {
        .path = "/usr/lib/libtorch.so", .build_id = {1, 2, 3, 4}, .build_id_len = 4};
    struct trace_module plain = {.path = "/opt/\"quoted\"/train"};
    struct trace_line script = {"forward", "model.py", 42};
    struct trace_line inlined[] = {{"inner", "a.cpp", 1}, {"outer", "a.cpp", 2}};
    for (uint32_t i = 1; i <= 20; i++) {
        struct trace_frame frames[] = {
            {.module = i % 2 ? &torch : &plain,
             .offset = 0x1000 + i,
             .lines = inlined,
             .n_lines = i % 3},
            {.lines = &script, .n_lines = 1},
            {.offset = 7},
        };
        struct trace_site site = {.number = i * 3,
                                  .n_frames = (uint16_t)(i % 4),
                                  .key = seed * 1000 + i,
                                  .frames = frames};
        assert_int_equal(trace_sites_define(trace_history_sites(h), &site), 0);
    }
    for (uint64_t i = 0; i < 300; i++) {
        uint64_t now = 1000 + i * 7000000, at = DEVICE_AT + i % 120 * 65536;
        struct trace_event e =
            event_of(i % 20 == 19 ? TRACE_FOUND : TRACE_ALLOC, now, at, 1000 + (seed + i) % 60000);
        e.site = (uint32_t)(i % 60) + 1;
        e.device = (int32_t)(i % 3) - 1;
        e.flags = i % 7 == 0    ? TRACE_FLAG_SYSTEM
                  : i % 11 == 0 ? TRACE_FLAG_HANDLE
                  : i % 13 == 0 ? TRACE_FLAG_SHARED
                                : 0;
        e.space = i % 7 == 0 ? MEMOIR_SPACE_MAPPED : MEMOIR_SPACE_DRAM;
        feed(h, e);
        for (uint64_t k = 0; k < i % 17; k++)
            copy_to(h, now + k, at + k % 2 * 100, HOST_AT + i % 50 * 4096, 512 + seed % 7,
                    k % 2 ? TRACE_TO_DEVICE : TRACE_FROM_DEVICE);
        struct trace_event system = event_of(TRACE_SYSTEM, now, at, 3);
        system.detail = i % TRACE_SYSTEM_KINDS;
        feed(h, system);
        feed(h, event_of(TRACE_SET, now, at, 100));
        if (i % 3 == 0)
            free_at(h, now + 50, at);
        if (i % 90 == 0)
            feed(h, event_of(TRACE_GAP, now + 60, 0, i + 1));
    }
    struct trace_event fail = event_of(TRACE_FAILED, 5000000000, 0, UINT64_C(1) << 40);
    fail.result = TRACE_RESULT_OUT_OF_MEMORY;
    feed(h, fail);
    struct trace_failure_other other = {.pid = 9, .name = "beside", .bytes = 12345};
    assert_int_equal(trace_history_failure_context(h, 1 << 30, 1 << 29, &other, 1), 0);
    assert_int_equal(trace_history_check(h), 0);
    return h;
}

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

/* order.h: blocks in lists by a value, so that the hottest and the coldest are found without a search.
 *
 * Values below ORDER_EXACT have a list each; above, each octave has 16. A block changes its list only when its value
 * enters another step. See history.h for what that means for readers. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/pool.h"

enum {
    ORDER_EXACT = 32,
    ORDER_STEPS = ORDER_EXACT + 59 * 16, /* octaves from 2^5 to 2^63 */
    ORDER_WORDS = (ORDER_STEPS + 63) / 64,
};

struct trace_order {
    uint32_t heads[ORDER_STEPS];
    uint64_t used[ORDER_WORDS]; /* bit i: list i is not empty */
};

static inline unsigned order_step(uint64_t value)
{
    if (value < ORDER_EXACT)
        return (unsigned)value;
    unsigned octave = 63u - (unsigned)__builtin_clzll(value);
    return ORDER_EXACT + (octave - 5) * 16 + (unsigned)((value >> (octave - 4)) & 15);
}

/* `which` says which of a block's links the order uses. */
void trace_order_add(struct trace_order *order, struct trace_pool *pool, unsigned which,
                     uint32_t slot, uint64_t value);
void trace_order_remove(struct trace_order *order, struct trace_pool *pool, unsigned which,
                        uint32_t slot);

static inline void trace_order_move(struct trace_order *order, struct trace_pool *pool,
                                    unsigned which, uint32_t slot, uint64_t value)
{
    if (order_step(value) == pool_slot(pool, slot)->order_step[which])
        return;
    trace_order_remove(order, pool, which, slot);
    trace_order_add(order, pool, which, slot, value);
}

/* The list that is in use at `step` or above it (below it, with `down`); -1: none. */
int trace_order_list(const struct trace_order *order, int step, bool down);

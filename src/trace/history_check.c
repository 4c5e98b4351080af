/* Everything that a history keeps incrementally, computed anew and compared. For tests: O(n) in time and memory. */
#include <stdlib.h>

#include "trace/history_internal.h"

#define EXPECT(condition)    \
    do {                     \
        if (!(condition))    \
            return __LINE__; \
    } while (0)

static int check_order(struct trace_history *h, struct trace_order *order, unsigned which,
                       bool active, uint64_t expected)
{
    uint64_t n = 0;
    for (unsigned step = 0; step < ORDER_STEPS; step++) {
        uint32_t prev = 0;
        EXPECT((order->heads[step] != 0) == (order->used[step / 64] >> (step % 64) & 1));
        for (uint32_t slot = order->heads[step]; slot;
             slot = pool_slot(&h->pool, slot)->order_link[which].next) {
            const struct trace_slot *s = pool_slot(&h->pool, slot);
            EXPECT(s->used && s->active == active && s->order_link[which].prev == prev);
            EXPECT(order_step(history_block_value(s, which)) == step &&
                   s->order_step[which] == step);
            EXPECT(++n <= expected);
            prev = slot;
        }
    }
    EXPECT(n == expected);
    return 0;
}

static int check_ranges(struct trace_history *h)
{
    for (unsigned layer = 0; layer < LAYERS_OF_RANGES; layer++) {
        const struct trace_ranges *r = &h->ranges[layer];
        uint64_t next = 0;
        size_t n = 0;
        for (size_t i = 0; i < r->n_leaves; i++) {
            EXPECT(r->leaves[i]->n > 0 && r->firsts[i] == r->leaves[i]->starts[0]);
            for (uint32_t k = 0; k < r->leaves[i]->n; k++, n++) {
                const struct trace_slot *s = pool_slot(&h->pool, r->leaves[i]->slots[k]);
                EXPECT(s->used && s->active && s->layer == layer &&
                       s->address == r->leaves[i]->starts[k]);
                EXPECT(s->address >= next);
                next = s->address + (s->size ? s->size : 1);
            }
        }
        EXPECT(n == r->n);
    }
    return 0;
}

static int check_hash(struct trace_history *h)
{
    uint64_t all = 0;
    for (unsigned layer = 0; layer < LAYERS; layer++) {
        uint32_t addresses = 0;
        for (uint32_t i = 0; i < h->hash[layer].n_heads; i++)
            for (uint32_t head = h->hash[layer].heads[i]; head;
                 head = pool_slot(&h->pool, head)->hash_next) {
                addresses++;
                EXPECT(pool_slot(&h->pool, head)->newer == 0);
                for (uint32_t slot = head; slot; slot = pool_slot(&h->pool, slot)->older, all++) {
                    const struct trace_slot *s = pool_slot(&h->pool, slot);
                    EXPECT(s->used && s->layer == layer &&
                           s->address == pool_slot(&h->pool, head)->address);
                    EXPECT(!s->active || slot == head);
                }
            }
        EXPECT(addresses == h->hash[layer].n);
    }
    EXPECT(all == h->pool.in_use);
    return 0;
}

struct live {
    uint64_t blocks, bytes, ended;
};

static int check_holders(struct trace_history *h, const struct live *live)
{
    uint64_t blocks = 0, bytes = 0, device = 0;
    for (uint32_t i = 1; i < h->holders.holders.n; i++) {
        const struct trace_holder *s = &holders_get(&h->holders, i)->sums;
        EXPECT(s->live_blocks == live[i].blocks && s->live_bytes == live[i].bytes);
        EXPECT(s->allocated_blocks == s->live_blocks + s->freed_blocks + s->lost_blocks);
        EXPECT(s->allocated_bytes == s->live_bytes + s->freed_bytes + s->lost_bytes);
        EXPECT(s->peak_bytes >= s->live_bytes);
        EXPECT(h->totals.unkept_blocks ||
               s->freed_blocks + s->lost_blocks == live[i].ended + s->folded_blocks);
        if (s->class == TRACE_CLASS_OWN) {
            blocks += s->live_blocks;
            bytes += s->live_bytes;
            device += space_of_device(s->space) ? s->live_bytes : 0;
        }
    }
    EXPECT(h->totals.live_blocks == blocks && h->totals.live_bytes == bytes &&
           h->totals.device_bytes == device);
    timeline_fill(&h->timeline);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < h->timeline.n_lines; i++) {
        const struct timeline_line *line = h->timeline.lines[i];
        EXPECT(i == 0 || line->value == holders_get(&h->holders, line->holder)->sums.live_bytes);
        EXPECT(line->last[h->timeline.slot] == line->value);
        sum += line->value;
    }
    EXPECT(sum == bytes && h->timeline.device->value == device);
    return 0;
}

static int check_blocks(struct trace_history *h, struct live *live)
{
    uint64_t active = 0, implicit = 0, ended = 0, used = 0, moments = 0, activities = 0;
    for (uint32_t slot = 1; slot < h->pool.n_slots; slot++) {
        const struct trace_slot *s = pool_slot(&h->pool, slot);
        if (!s->used)
            continue;
        used++;
        active += s->active && s->layer != LAYER_IMPLICIT;
        implicit += s->active && s->layer == LAYER_IMPLICIT;
        ended += !s->active;
        moments += s->activity ? s->activity->ring_cap : 0;
        activities += s->activity != NULL;
        live[s->holder].blocks += s->active;
        live[s->holder].bytes += s->active ? s->size : 0;
        live[s->holder].ended += !s->active;
    }
    EXPECT(used == h->pool.in_use && active == h->n_active && implicit == h->n_implicit &&
           ended == h->n_ended);
    EXPECT(moments == h->moments && activities == h->n_activities);
    uint64_t listed = 0;
    for (uint32_t i = 0; i < h->cap_contexts; i++)
        for (uint32_t slot = h->contexts[i].first; slot;
             slot = pool_slot(&h->pool, slot)->context_link.next, listed++)
            EXPECT(pool_slot(&h->pool, slot)->active &&
                   pool_slot(&h->pool, slot)->context == h->contexts[i].handle);
    EXPECT(listed + h->n_unlisted == active + implicit);
    uint64_t aged = 0;
    for (uint32_t slot = h->ended_ages.prev; slot; slot = pool_slot(&h->pool, slot)->age_link.next)
        aged++;
    EXPECT(aged == ended);
    for (unsigned i = 0; i < ORDERS; i++) {
        int r = check_order(h, &h->active[i], i, true, active + implicit);
        r = r ? r : check_order(h, &h->ended[i], i, false, ended);
        if (r)
            return r;
    }
    return 0;
}

int trace_history_check(struct trace_history *h)
{
    history_enter(h);
    struct live *live = calloc(h->holders.holders.n + 1, sizeof(*live));
    int r = live ? check_blocks(h, live) : 0;
    r = r ? r : check_ranges(h);
    r = r ? r : check_hash(h);
    r = r || !live ? r : check_holders(h, live);
    history_leave(h);
    free(live);
    return r;
}

/* Blocks by a value. See order.h. */
#include "trace/order.h"

static_assert(ORDER_STEPS <= UINT16_MAX, "a step fits into its field");

void trace_order_add(struct trace_order *order, struct trace_pool *pool, unsigned which,
                     uint32_t slot, uint64_t value)
{
    struct trace_slot *s = pool_slot(pool, slot);
    unsigned step = order_step(value);
    uint32_t head = order->heads[step];
    s->order_step[which] = (uint16_t)step;
    s->order_link[which] = (struct trace_link){.next = head};
    if (head)
        pool_slot(pool, head)->order_link[which].prev = slot;
    order->heads[step] = slot;
    order->used[step / 64] |= UINT64_C(1) << (step % 64);
}

void trace_order_remove(struct trace_order *order, struct trace_pool *pool, unsigned which,
                        uint32_t slot)
{
    struct trace_slot *s = pool_slot(pool, slot);
    struct trace_link link = s->order_link[which];
    unsigned step = s->order_step[which];
    if (link.next)
        pool_slot(pool, link.next)->order_link[which].prev = link.prev;
    if (link.prev)
        pool_slot(pool, link.prev)->order_link[which].next = link.next;
    else
        order->heads[step] = link.next;
    if (!order->heads[step])
        order->used[step / 64] &= ~(UINT64_C(1) << (step % 64));
}

int trace_order_list(const struct trace_order *order, int step, bool down)
{
    if (step < 0 || step >= ORDER_STEPS)
        return -1;
    int word = step / 64, bit = step % 64;
    uint64_t bits = down ? order->used[word] & (UINT64_MAX >> (63 - bit))
                         : order->used[word] & (UINT64_MAX << bit);
    while (!bits) {
        word += down ? -1 : 1;
        if (word < 0 || word >= ORDER_WORDS)
            return -1;
        bits = order->used[word];
    }
    return word * 64 + (down ? 63 - __builtin_clzll(bits) : __builtin_ctzll(bits));
}

/*
 * Frees from other threads into a chain that has no lock: a queue through the freed blocks.
 *
 * Any thread pushes, the chain's next operation takes the whole queue at once. The first word of a
 * queued payload is the sealed link to the block queued before it, the second a mark that no program
 * writes by chance. Who exchanges the mark in has queued the block; who finds it there frees twice.
 */
#include "malloc/chain_bin.h"
#include "malloc/chain_fit.h"

static uint64_t mark_of(const struct memoir_chain *c, const uint64_t *b)
{
    uint64_t mix = (chain_distance(c, b) ^ c->seal) * UINT64_C(0xff51afd7ed558ccd);
    return (mix ^ mix >> 31) * UINT64_C(0xc4ceb9fe1a85ec53);
}

bool chain_is_queued(const struct memoir_chain *c, const uint64_t *b)
{
    return load_relaxed(&b[2]) == mark_of(c, b);
}

int chain_push(struct memoir_chain *c, uint64_t *b)
{
    uint64_t header, mark = mark_of(c, b);
    int r = fit_live(c, b, &header);
    if (r < 0)
        return r;
    if (exchange_acq_rel(&b[2], mark) == mark)
        return -EALREADY;
    uint64_t last = load_relaxed(&c->remote);
    do {
        link_put(c, &b[1], (void *)(uintptr_t)last);
    } while (!cas_weak_release(&c->remote, &last, (uint64_t)(uintptr_t)b));
    return 0;
}

int chain_drain_locked(struct memoir_chain *c)
{
    uint64_t *b = (uint64_t *)(uintptr_t)exchange_acquire(&c->remote, 0), *next, header;
    int n = 0;
    for (; b; b = next, n++) {
        /* It was live when it was queued. */
        if (!link_get(c, &b[1], &next) || !chain_is_queued(c, b) || fit_live(c, b, &header) < 0)
            return -EUCLEAN;
        store_relaxed(&b[2], 0);
        int r = chain_give(c, b, header);
        if (r < 0)
            return r;
    }
    return n;
}

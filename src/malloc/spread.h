/*
 * spread.h: several sources for the threads of one node, where these wait for each other.
 *
 * A source has one lock, and what it guards moves from processor to processor with it: eight threads that need a slab now and then get in each
 * other's way, though each of them does so seldom. So a source counts how often somebody had to wait, of late; and a heap that finds that this
 * was often moves to the source of its node that fewest threads have, or to a new one: up to one for two processors. What it has
 * stays where it is, and goes back there.
 *
 * A thread takes from other sources what these have free, and slabs out of their pools, before its own grows: so the process needs
 * hardly more memory than with one. Programs whose threads do not wait, and machines with up to three processors, have one source and
 * nothing of this. With the setting sources=N there are N for each node, from the beginning.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "malloc/heap.h"
#include "malloc/source.h"

enum {
    SPREAD_WAITS = 256, /* are often: in a tenth of a second, about */
    SPREAD_MAX = 8,     /* sources for a node, if it is not set */
    SPREAD_LEFT = 8,    /* free slices that are left to the threads of another source */
};

/* Threads wait for the heap's source, or it begins: find it another one, if there may be one. Without a lock. */
void spread(struct heap *h);

/* How many sources there are for the node of this one. */
unsigned spread_width_further(const struct source *s);
static inline unsigned spread_width(const struct source *s)
{
    return likely(load_relaxed(&sources_n) == 1) ? 1 : spread_width_further(s);
}

/* Another source of the same node, each time the next one; NULL: there is none. With or without a lock. */
struct source *spread_beside_further(struct source *s);
static inline struct source *spread_beside(struct source *s)
{
    return likely(load_relaxed(&sources_n) == 1) ? NULL : spread_beside_further(s);
}

/* With the source's lock: so many steps of time went by. */
static inline void spread_forget(struct source *s, uint64_t steps)
{
    store_relaxed(&s->waits, steps < 32 ? load_relaxed(&s->waits) >> steps : 0);
}

static inline bool spread_is_due(const struct source *s)
{
    return unlikely(load_relaxed(&s->waits) >= SPREAD_WAITS);
}

static inline void spread_look(struct heap *h)
{
    if (spread_is_due(h->source))
        spread(h);
}

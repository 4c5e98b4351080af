/*
 * chain_registry.h: which registered chain an address belongs to, for free().
 *
 * A sorted table of the buffers, in two copies. Whoever changes it writes the copy that nobody is sent to
 * and then sends all readers there. A reader is disturbed only when the table changed twice while
 * it searched, and then searches again: it never waits for anybody, also not for one that was
 * interrupted by itself.
 */
#pragma once

#include "malloc/chain.h"

enum { REGISTRY_MAX = 1 << 16 }; /* buffers of all registered chains */

/* Number of buffers: 0 spares the search. */
extern uint32_t registry_count __attribute__((visibility("hidden")));

/* Logarithmic; no lock; any thread, signal handlers too. NULL: none. */
struct memoir_chain *registry_find(const void *address);

/* Enter a buffer. 1: it lies in one that the same chain has entered before; -EBUSY: malloc's own memory, or another chain's
 * buffer is there; -ENOSPC: the table is full; -ENOMEM. Time grows with the number of entries, as for the other two. */
int registry_add(const void *start, size_t bytes, struct memoir_chain *chain);

/* Remove the buffer that begins at `start`, or all of a chain. */
void registry_remove(const void *start);
void registry_remove_chain(const struct memoir_chain *chain);

/* Is the chain registered in this process? */
static inline bool registry_has(struct memoir_chain *chain)
{
    return load_relaxed(&registry_count) != 0 && registry_find(chain) == chain;
}

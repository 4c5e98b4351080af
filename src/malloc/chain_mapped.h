/*
 * chain_mapped.h: what this process knows by itself of the shared chains that it has mapped.
 *
 * All words of a shared chain may be written by every process that maps it, also those that say how far the chain
 * goes and what kind it is. So each process remembers that from the call that made or attached the chain, and compares
 * at every entry. No word of the segment decides whether that happens: the chain's address does.
 */
#pragma once

#include "malloc/chain.h"

/* Readers look for the address first; the rest is written before it. */
struct mapped {
    uintptr_t chain; /* atomic */
    uint64_t bytes;  /* atomic */
    uint32_t flags;
    uint32_t control_bytes; /* follows from flags */
};

enum { MAPPED_MAX = 1 << 14 }; /* shared chains that one process uses */

/* The lowest and the highest address that a shared chain ever had; only widened. */
extern uintptr_t mapped_low __attribute__((visibility("hidden")));
extern uintptr_t mapped_high __attribute__((visibility("hidden")));

/* False: surely no shared chain. Costs next to nothing. */
static inline bool mapped_may(const struct memoir_chain *c)
{
    return (uintptr_t)c <= load_relaxed(&mapped_high) && (uintptr_t)c >= load_relaxed(&mapped_low);
}

/* Remember a shared chain, of which this process has mapped `bytes` from its start. -ENOMEM, -ENOSPC. */
int mapped_add(const struct memoir_chain *c, uint64_t bytes, uint32_t flags);

/* It has mapped more of it; nothing for a private chain. */
void mapped_widen(const struct memoir_chain *c, uint64_t bytes);
void mapped_remove(const struct memoir_chain *c);

/* From now on any chain may be one, as far as mapped_may() tells: all calls go the slow way. */
void mapped_may_all(void);

/* What is known of it; NULL: it is none of this process's shared chains. No lock. */
const struct mapped *mapped_find(const struct memoir_chain *c);

/* Do all buffers lie within these bytes behind the chain? */
static inline bool mapped_fits(const struct memoir_chain *c, uint64_t bytes)
{
    uint64_t low = load_relaxed(&c->low), span = load_relaxed(&c->span);
    return (low | span) % CHAIN_GRAIN == 0 && low <= bytes && span <= bytes - low;
}

/* Are the words of a shared chain such that they may be followed? 0; -EUCLEAN: they were overwritten; -ENOSPC: it is
 * larger than what is mapped here. */
static inline int mapped_compare(const struct memoir_chain *c, const struct mapped *known)
{
    if (load_relaxed(&c->flags) != known->flags || load_relaxed(&c->low) < known->control_bytes)
        return -EUCLEAN;
    return mapped_fits(c, load_relaxed(&known->bytes)) ? 0 : -ENOSPC;
}

/* The same of any chain; a private one's may be. -EINVAL: a shared one that this process has not attached to. */
static inline int mapped_check(const struct memoir_chain *c)
{
    const struct mapped *known = mapped_find(c);
    if (!known)
        return load_relaxed(&c->flags) & MEMOIR_CHAIN_SHARED ? -EINVAL : 0;
    return mapped_compare(c, known);
}

/*
 * chain_watch.h: who wants to know of the blocks of chains, and of whose call each one is: the accounting, where it is on
 * (account_chain.c).
 *
 * It costs nothing where nobody does: a watched process takes every chain for one that may be shared (mapped_may()), so that all calls go
 * the slow way, and only that one asks whether somebody watches. Shared chains are not watched: another process may free the blocks.
 */
#pragma once

#include "malloc/chain_mapped.h"

/* What was noted of a block. */
struct chain_note {
    uint64_t size, place;
};

/* All keep errno, may be called by any thread, and call nothing of the chain's. */
struct chain_watch {
    /* The program has a block more. */
    void (*add)(void *block, size_t bytes, uintptr_t caller);
    /* It has one less: before anybody else can be given its address. False: nothing was noted of it. */
    bool (*drop)(void *block, struct chain_note *ret_note);
    /* It has it still: freeing it failed. */
    void (*put_back)(void *block, const struct chain_note *note);
};

extern const struct chain_watch *chain_watcher; /* NULL: nobody; set once */

/* Before the first chain is made, or while the process has one thread. The watch stays for good. */
void chain_watch_begin(const struct chain_watch *watch);

/* Who watches the blocks of this chain, if any. */
static inline const struct chain_watch *chain_watch_of(const struct memoir_chain *c)
{
    const struct chain_watch *watch = load_relaxed(&chain_watcher);
    return __builtin_expect(!watch, 1) || mapped_find(c) ? NULL : watch;
}

/* A block of this chain was allocated, or NULL was: gives it. */
static inline void *chain_watch_add(const struct memoir_chain *c, void *block, size_t bytes,
                                    uintptr_t caller)
{
    const struct chain_watch *watch = chain_watch_of(c);
    if (watch && block)
        watch->add(block, bytes, caller);
    return block;
}

/* A block has another size now, and is that caller's. */
static inline void chain_watch_resized(const struct memoir_chain *c, void *block, size_t bytes,
                                       uintptr_t caller)
{
    const struct chain_watch *watch = chain_watch_of(c);
    struct chain_note old;
    if (watch) {
        watch->drop(block, &old);
        watch->add(block, bytes, caller);
    }
}

/* All blocks of a chain end at once. Under its lock, as long as its headers are whole: what lies behind damage is not found. */
void chain_watch_drop_all(struct memoir_chain *c);

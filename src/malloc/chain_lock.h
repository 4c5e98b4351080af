/*
 * chain_lock.h: the lock of a chain, and what is left of it when its holder is gone.
 *
 * A shared chain has a robust futex: the kernel itself marks it when a holder dies, in whatever
 * namespace. A private one has a word, on which waiters sleep. The word names the process
 * that holds it, by its number in the line of forks: a child that finds its parent's number there has
 * inherited a lock that no thread of its own will ever drop, and takes it over.
 */
#pragma once

#include "malloc/chain.h"

/* Make the lock of a new chain. 0 or -errno. */
int chain_lock_init(struct memoir_chain *c);

/* A shared chain that is attached to: when the machine was started anew since its lock was used (a chain in a file), whoever
 * the lock names is gone, and nobody was there to say so. 1: the lock is made anew; the chain may be torn. Only one of
 * several processes gets that; the others wait until it called chain_lock_revived(), for seconds at most. */
int chain_lock_revive(struct memoir_chain *c);
void chain_lock_revived(struct memoir_chain *c);

/* Take it. 1: taken, but the last holder died within an operation, and the chain is to be mended (who
 * dies over that leaves it to the next). 0, or -errno when it cannot be had. Waits, never for somebody
 * dead. */
int chain_lock_take(struct memoir_chain *c);
void chain_lock_drop(struct memoir_chain *c);

/* ---- the word of a private chain's lock, also for others that need one ---- */

/* A page that the kernel empties in a child of any kind of fork; NULL until the first lock is taken. It holds the
 * number of this process in its line of forks, or 0 when that is yet to be given. */
extern uint32_t *chain_era_page __attribute__((visibility("hidden")));

/* 1 when it was inherited from a parent's thread, else 0. `sleepers` is a word of its own, 0 at first. */
int chain_word_take(uint32_t *word, uint32_t *sleepers);
void chain_word_wake(uint32_t *word, uint32_t *sleepers);

/* Take it when that is a matter of one instruction. */
static inline bool chain_word_try(uint32_t *word)
{
    const uint32_t *page = load_acquire(&chain_era_page);
    uint32_t none = 0, own = page ? load_relaxed(page) : 0;
    return own != 0 && cas_acquire(word, &none, own);
}

/* Two words, so that dropping needs no atomic exchange, which costs as much as all the rest of an allocation. The
 * price: who goes to sleep at this very moment may be overlooked, so nobody sleeps longer than a moment. */
static inline void chain_word_drop(uint32_t *word, uint32_t *sleepers)
{
    store_release(word, 0);
    if (__builtin_expect(load_relaxed(sleepers), 0))
        chain_word_wake(word, sleepers);
}

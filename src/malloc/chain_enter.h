/*
 * chain_enter.h: how a call gets into a chain and out of it, and what is made of what it found there.
 */
#pragma once

#include "malloc/chain_lock.h"
#include "malloc/chain_mapped.h"

/* Check that a chain is there, take its lock, free what was queued. Mends what a dead owner of the
 * lock left. 0 or -errno; on success chain_leave() must follow, which gives empty buffers back to
 * the source. chain_enter_any() takes broken chains, too, and leaves the queue alone. */
int chain_enter_any(struct memoir_chain *c);
int chain_enter_slowly(struct memoir_chain *c);
void chain_leave_slowly(struct memoir_chain *c);

/* A chain without a lock that may be worked in at once. */
static inline bool chain_is_open(const struct memoir_chain *c)
{
    return !mapped_may(c) && c && (uintptr_t)c % CHAIN_GRAIN == 0 &&
           load_relaxed(&c->magic) == CHAIN_MAGIC && !chain_is_locked(c) &&
           c->state == CHAIN_WHOLE && load_relaxed(&c->remote) == 0;
}

static inline int chain_enter(struct memoir_chain *c)
{
    return chain_is_open(c) ? 0 : chain_enter_slowly(c);
}

static inline void chain_leave(struct memoir_chain *c)
{
    if (c->flags & (MEMOIR_CHAIN_THREAD_SAFE | MEMOIR_CHAIN_SHARED | CHAIN_HAS_SOURCE))
        chain_leave_slowly(c);
}

/* A private chain with a lock, which was free and is taken now, without more ado. */
static inline bool chain_enter_locked(struct memoir_chain *c)
{
    if (mapped_may(c) || !c || (uintptr_t)c % CHAIN_GRAIN ||
        load_relaxed(&c->magic) != CHAIN_MAGIC ||
        (c->flags & (MEMOIR_CHAIN_THREAD_SAFE | MEMOIR_CHAIN_SHARED)) != MEMOIR_CHAIN_THREAD_SAFE ||
        !chain_word_try(&c->lock))
        return false;
    if (__builtin_expect(c->state == CHAIN_WHOLE, 1))
        return true;
    chain_word_drop(&c->lock, &c->sleepers);
    return false;
}

/* To be called with the result of an operation: -EUCLEAN makes the chain a broken one, and bad frees
 * are counted. Under the lock, but for the results of chain_push(). With MEMOIR_CHAIN_ABORT all of
 * these end the program. Gives `result`. */
int chain_judge_slowly(struct memoir_chain *c, int result, const void *block);

static inline int chain_judge(struct memoir_chain *c, int result, const void *block)
{
    return result >= 0 ? result : chain_judge_slowly(c, result, block);
}

/*
 * chain_lock.h: the lock of a chain, and what is left of it when its holder is gone.
 *
 * A shared chain has a robust mutex of pthreads: the kernel itself marks it when a holder dies, in
 * whatever namespace. A private one has a word, on which waiters sleep. The word names the process
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

/* Take it. 1: taken, but the last holder died within an operation; call chain_lock_mended() once
 * that is seen to. 0, or -errno when it cannot be had. Waits, never for somebody dead. */
int chain_lock_take(struct memoir_chain *c);
void chain_lock_mended(struct memoir_chain *c);
void chain_lock_drop(struct memoir_chain *c);

/* The word of a private chain's lock, for others that need one: 1 when it was inherited from a parent's thread. */
int chain_word_take(uint32_t *word);
void chain_word_drop(uint32_t *word);

/*
 * chain_fit.h: which free block serves a request: two-level segregated fit with boundary tags.
 *
 * Free blocks are in lists by size: one list for each size up to 496 bytes, above that 16 for each
 * doubling, and the last list of the table holds everything larger than its classes. A map of bits says which
 * lists have blocks, so the first block of the first list whose blocks all fit is found by a few
 * instructions. Neighbouring free blocks are merged at once.
 *
 * All functions run under the chain's lock, take constant time but for the search said at
 * fit_take(), and give -EUCLEAN when a word that they need was overwritten: nothing was followed
 * then, but what was done before that may be half done.
 */
#pragma once

#include "malloc/chain.h"

/* Block size for a payload of `bytes`, which is at most CHAIN_BYTES_MAX. */
static inline uint64_t fit_bytes(size_t bytes)
{
    uint64_t need = (bytes + CHAIN_HEADER + CHAIN_GRAIN - 1) & ~(uint64_t)(CHAIN_GRAIN - 1);
    return need < CHAIN_BLOCK_MIN ? CHAIN_BLOCK_MIN : need;
}

/* Number of lists that a table needs for blocks of up to `bytes` to be found at once. */
unsigned fit_lists(uint64_t bytes);

/* Take a block of `need` bytes (from fit_bytes()) with its payload at a multiple of `alignment`, a
 * power of two. -ENOMEM: none. Where no list of larger blocks has any, the one list that may hold a
 * fit among others is searched. */
int fit_take(struct memoir_chain *c, uint64_t need, size_t alignment, uint64_t **ret_block);

/* Is it a live block? Its header word, or -EFAULT (never was one), -EALREADY (is free). Reads only
 * the header: needs no lock. */
int fit_live(const struct memoir_chain *c, const uint64_t *b, uint64_t *ret_header);

/* Put a block with that header, live or binned, among the free ones. *ret_empty is the region when that has no block
 * any more, else NULL. Does not count it as freed: that was done, or is the caller's. */
int fit_give(struct memoir_chain *c, uint64_t *b, uint64_t header, struct region **ret_empty);

/* Make a live block, whose header fit_live() gave, `need` bytes long where it is. -ENOMEM: no room there. */
int fit_resize(struct memoir_chain *c, uint64_t *b, uint64_t header, uint64_t need);

/* Put a free block into its list and write the words that belong to it, but not its header. */
int fit_insert(struct memoir_chain *c, uint64_t *b, uint64_t bytes);
int fit_remove(struct memoir_chain *c, uint64_t *b, uint64_t bytes);

/* All lists empty. */
void fit_clear(struct memoir_chain *c);

/* The list that a free block of that size belongs into. */
unsigned fit_list_of(const struct memoir_chain *c, uint64_t bytes);

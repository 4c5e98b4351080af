/*
 * chain_region.h: the buffers of a chain: the first one, refills, and those of the source.
 *
 * Under the chain's lock, but for the two that call the source.
 */
#pragma once

#include "malloc/chain.h"

/* Next region. False: the word is overwritten, or what it says makes no sense. *ret_bytes is the region's
 * size, *ret_sourced whether the source gave it. */
bool region_look(const struct memoir_chain *c, const struct region *r, uint64_t *ret_bytes,
                 bool *ret_sourced, struct region **ret_next);

/* Write the words of a region with one free block, in aligned memory; not the links. */
void region_lay(struct memoir_chain *c, struct region *r, uint64_t bytes, bool sourced);

/* Widen the limits of the chain: before anything leads into a region. */
void region_span(struct memoir_chain *c, const struct region *r, uint64_t bytes);

/* Count a region into the totals of the chain. */
void region_count(struct memoir_chain *c, uint64_t bytes);

/* Add a buffer as the second region. -ENOSPC: too small; -ERANGE: too large or too far away; -EBUSY: in the
 * chain already, which is looked for unless the source gave it. */
int region_add(struct memoir_chain *c, void *buffer, size_t bytes, bool sourced);

/* A region has no block any more: take it out if it is the source's and another empty one is kept. */
int region_emptied(struct memoir_chain *c, struct region *empty);

/* Take all regions of the source's out, whatever is in them, but for the first. */
int region_pull_all(struct memoir_chain *c);

/* Ask a source for a buffer. -EINVAL: it gave one that cannot be used, which it has back. */
int region_source_first(const struct chain_source *source, size_t bytes, void **ret_buffer,
                        size_t *ret_bytes);

/* Add a buffer to the chain and, when that is registered, to the registry. Takes the lock itself. */
int region_enter(struct memoir_chain *c, void *buffer, size_t bytes, bool sourced);

/* Ask the chain's source for room for a block of `need` bytes, and add it. Without the lock. */
int region_request(struct memoir_chain *c, uint64_t need);

/* Give a buffer back that is no longer part of a chain. Without the lock. */
void region_give_back(const struct chain_source *source, void *buffer, uint64_t bytes);

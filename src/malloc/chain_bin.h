/*
 * chain_bin.h: small blocks that were freed, by size, as they are: the next one of that size is served from there.
 *
 * A bin is a stack of blocks of one size. Putting one in and taking one out changes its header, its first word and the
 * head of the bin; neighbours are not looked at and nothing is merged. What bins hold is bounded, and goes among the
 * free blocks (chain_fit.h), merged, when that is reached, when nothing else fits, and by memoir_chain_drain().
 *
 * Heads are distances as they are, links are mixed with the chain's key; neither has a seal. Where they lead is
 * checked when they are followed, and there must be the sealed header of a block that is in a bin and has its size.
 * No ring and no second owner can come of a wrong one: a block that was taken out has another header, and is refused.
 *
 * All functions run under the chain's lock.
 */
#pragma once

#include "malloc/chain.h"

/* The number of the bin for blocks of that size; none when it is chain_bins() or more. */
static inline uint64_t bin_of(uint64_t bytes)
{
    return bytes / CHAIN_GRAIN - CHAIN_BLOCK_MIN / CHAIN_GRAIN;
}

/* The same for a payload of that size. */
static inline uint64_t bin_of_payload(size_t bytes)
{
    enum { LESS = CHAIN_GRAIN - CHAIN_HEADER + 1 };
    return ((bytes < LESS ? LESS : bytes) - LESS) / CHAIN_GRAIN;
}

static inline uint64_t bin_block_bytes(uint64_t bin)
{
    return bin * CHAIN_GRAIN + CHAIN_BLOCK_MIN;
}

/* Can a block be there? */
static inline bool bin_leads_inside(const struct memoir_chain *c, uint64_t head)
{
    return head - load_relaxed(&c->low) < load_relaxed(&c->span);
}

/* The block of a bin that `head` leads to, its header, and the head that is to follow. NULL: what is there is no
 * block of this bin. */
static inline uint64_t *bin_at(const struct memoir_chain *c, uint64_t bin, uint64_t head,
                               uint64_t *ret_header, uint64_t *ret_next)
{
    uint64_t *b = chain_at(c, head);
    if (head % CHAIN_GRAIN != CHAIN_GRAIN - CHAIN_HEADER ||
        !chain_spans_all(c, b, bin_block_bytes(bin)) || !word_get(c, b, ret_header) ||
        (*ret_header | CHAIN_BEFORE_USED) !=
            (bin_block_bytes(bin) | (CHAIN_USED | CHAIN_BEFORE_USED | CHAIN_BINNED)))
        return NULL;
    *ret_next = load_relaxed(&b[1]) ^ c->seal;
    return *ret_next == 0 || bin_leads_inside(c, *ret_next) ? b : NULL;
}

/* Take a block out of the bin for such payloads. NULL: none; bin_is_damaged() says whether there should be one. */
static inline uint64_t *bin_take(struct memoir_chain *c, size_t payload)
{
    uint64_t bin = bin_of_payload(payload), header = 0, next = 0;
    if (bin >= chain_bins(c))
        return NULL;
    uint64_t head = c->bins[bin], *b = head ? bin_at(c, bin, head, &header, &next) : NULL;
    if (!b)
        return NULL;
    chain_store(&c->bins[bin], next);
    word_put(c, b, header & ~(uint64_t)CHAIN_BINNED); /* the store that counts */
    chain_count_used(c, bin_block_bytes(bin));
    c->allocations++;
    return b;
}

static inline bool bin_is_damaged(const struct memoir_chain *c, size_t payload)
{
    uint64_t bin = bin_of_payload(payload);
    return bin < chain_bins(c) && c->bins[bin] != 0;
}

/* Is the word after a block what it should be? Asked only where a program wants to know at once who wrote past the
 * end of a block: it lies in another cache line, which costs a tenth of the time of a free. */
static inline bool bin_end_is_whole(const struct memoir_chain *c, const uint64_t *b, uint64_t bytes)
{
    const uint64_t *after = b + bytes / sizeof(*b);
    uint64_t header;
    return chain_spans(c, after) && word_get(c, after, &header) && (header & CHAIN_BEFORE_USED);
}

/* Put a live block with that header (fit_live()) into its bin. False: there is none, or bins are full, or the
 * block's end is damaged. */
static inline bool bin_put(struct memoir_chain *c, uint64_t *b, uint64_t header)
{
    uint64_t bytes = header_bytes(header), bin = bin_of(bytes), used = c->used_bytes - bytes;
    if (bin >= chain_bins(c) || c->carved_bytes - used > c->binned_bytes_max)
        return false;
    if (__builtin_expect(c->flags & MEMOIR_CHAIN_ABORT, 0) && !bin_end_is_whole(c, b, bytes))
        return false;
    chain_store(&b[1], c->bins[bin] ^ c->seal);
    word_put(c, b, header | CHAIN_BINNED); /* the store that counts */
    chain_store(&c->bins[bin], chain_distance(c, b));
    c->used_bytes = used;
    c->frees++;
    return true;
}

/* Put all that is in bins among the free blocks. -EUCLEAN: something was overwritten. */
int bin_drain(struct memoir_chain *c);

/* All bins empty, wherever their blocks are. */
void bin_clear(struct memoir_chain *c);

/* Free a live block with that header (fit_live()): into its bin, or else among the free ones. */
int chain_give_slowly(struct memoir_chain *c, uint64_t *b, uint64_t header);

/* The last block was freed. A chain that is empty but for bins shall not keep the source's buffers: all but the first
 * and the spare go back. */
int chain_idle(struct memoir_chain *c);

static inline int chain_give(struct memoir_chain *c, uint64_t *b, uint64_t header)
{
    if (!bin_put(c, b, header))
        return chain_give_slowly(c, b, header);
    return c->used_bytes ? 0 : chain_idle(c);
}

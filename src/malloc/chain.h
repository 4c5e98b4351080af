/*
 * chain.h: what a chain looks like inside its buffer.
 *
 *     buffer   struct memoir_chain | bin heads | map words | list heads | [shared] | [source] | region
 *     region   struct region (24) | block | block | ... | end word (8)
 *     block    header word (8) | payload, at a multiple of 16
 *     free     header word | next link | previous link | ... | size, in the last 8 bytes
 *     binned   header word | next link | ...
 *
 * A small block that is freed goes into the bin of its size as it is (chain_bin.h): its neighbours take it for
 * used. Larger ones, and small ones when bins are emptied, are merged with free neighbours (chain_fit.h).
 *
 * Nothing in there is an address, except in what only one process uses (source, queue of remote
 * frees): links are distances from the chain's start, so that processes may map it where they like.
 *
 * Words that lie among the blocks are sealed: 48 bits of value and 16 bits computed from the value,
 * the word's place and the chain's key. A stray write is found with a chance of 65,535 in 65,536 before
 * anybody follows it, and a word is never valid at another place.
 *
 * What makes a torn operation mendable: the header words alone say which blocks there are and which
 * are used; every operation changes that by exactly one store of 8 bytes, after the words that
 * become visible by it were written. Lists, maps, sizes at the end of free blocks, the "block before
 * is used" bits and counters follow from the headers, and chain_rebuild() makes them anew.
 */
#pragma once

#include <errno.h>
#include <memoir/malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"

enum {
    CHAIN_GRAIN = 16,            /* alignment and step of block sizes */
    CHAIN_HEADER = 8,            /* bytes of a block that are not its payload */
    CHAIN_BLOCK_MIN = 32,        /* header, two links, size at the end */
    CHAIN_REFILL_MIN = 128,      /* smallest buffer of a refill */
    CHAIN_LISTS_EXACT = 30,      /* lists of one size each: 32, 48, ... 496 */
    CHAIN_LISTS_MAX = 30 + 624,  /* then 16 for each doubling, up to 2^48 */
    CHAIN_TABLE_SHARE = 16,      /* the table takes at most this part of the first buffer */
    CHAIN_BINS_MAX = 63,         /* bins of one size each: 32, 48, ... 1024 */
    CHAIN_BINS_SHARE = 32,       /* their heads take at most this part of the first buffer */
    CHAIN_BINNED_SHARE = 8,      /* what lies in them is at most this part of the chain, */
    CHAIN_BINNED_MAX = 1 << 20,  /* and this: emptying them at once takes a millisecond or two */
    CHAIN_REGIONS_MAX = 1 << 20, /* a longer list of regions is taken for a ring */
};

#define CHAIN_VALUE_MASK ((UINT64_C(1) << 48) - 1)
#define CHAIN_BYTES_MAX  (UINT64_C(1) << 46)
/* What a link can tell, either way: from static memory to mappings it is 43 TiB on x86-64, and 86 on aarch64. */
#define CHAIN_FAR_MAX (INT64_C(1) << 47)
#define CHAIN_MAGIC   UINT64_C(0x32304e494148434d) /* "MCHAIN02", by bytes */

/* Bits of a header word beside the size, which is a multiple of 16. */
enum {
    CHAIN_USED = 1,        /* allocated, or the end word */
    CHAIN_BEFORE_USED = 2, /* so is the block before it (or there is none) */
    CHAIN_END = 4,    /* not a block: the end of a region, whose bytes are in place of the size */
    CHAIN_BINNED = 8, /* free, but "used" for its neighbours: it waits in a bin */
};

enum chain_state {
    CHAIN_WHOLE = 0,
    CHAIN_BROKEN = 1,    /* words were found overwritten; headers may be wrong, too */
    CHAIN_DESTROYED = 2, /* ended for all who still have it mapped */
};

/* All words sealed, by the chain's key. The block after it begins at +24, so that its payload is aligned. */
struct region {
    uint64_t bytes;  /* from here to after the end word; bit 0: given by the source */
    uint64_t next;   /* distance from the chain, 0: the last */
    uint64_t before; /* 0 in the first one; follows from `next` */
};

struct chain_source {
    void *(*request)(void *user, size_t bytes, size_t *ret_bytes);
    void (*give_back)(void *user, void *buffer, size_t bytes);
    void *user;
    uint64_t spare;         /* an empty region that is kept, as a distance; 0 for none */
    struct region *retired; /* no longer part of the chain; chain_leave() gives them back */
    void *buffer;           /* of the chain itself, when the source gave that, too */
    size_t buffer_bytes;
};

struct memoir_chain {
    /* Constant once made. */
    uint64_t magic;
    uint64_t key;   /* of the seals of regions */
    uint32_t flags; /* 0..15: enum memoir_chain_flags, 16..25: number of lists, 26..31: of bins */
    uint32_t constants; /* check sum of the above, and of having a source */

    uint32_t lock;     /* of a private chain that is thread-safe: chain_lock.h */
    uint32_t sleepers; /* atomic: somebody may sleep on it */
    uint32_t state;    /* enum chain_state; under the lock */
    uint32_t regions;

    /* Under the lock, as all that follows. */
    uint64_t low,
        span; /* all buffers lie in [low, low + span), as distances modulo 2^64; only widened */

    uint64_t remote;   /* atomic: payload of the block queued last, an address; any thread pushes */
    const void *owner; /* thread whose free() need not queue */

    /* key of the other seals: another one after each reset, so that old blocks are none */
    uint64_t seal;
    uint64_t total_bytes, used_bytes, used_bytes_peak;
    uint64_t carved_bytes; /* used or in bins */
    uint64_t allocations, frees;
    uint32_t failures, recoveries;
    uint32_t bad_frees;        /* atomic: any thread adds */
    uint32_t binned_bytes_max; /* follows from total_bytes: chain_count_total() */

    uint64_t map_top; /* bit i: map word i is not 0 */
    uint64_t bins[];  /* the block freed last of each size, as a distance; 0: none */
};

static_assert(sizeof(struct memoir_chain) == 152, "layout shared by processes");
static_assert(sizeof(struct region) == 24, "layout shared by processes");

/* ---- places in the buffer ---- */

enum { CHAIN_LISTS_SHIFT = 16, CHAIN_LISTS_MASK = 0x3ff, CHAIN_BINS_SHIFT = 26 };

static inline unsigned chain_lists(const struct memoir_chain *c)
{
    return c->flags >> CHAIN_LISTS_SHIFT & CHAIN_LISTS_MASK;
}

static inline unsigned chain_bins(const struct memoir_chain *c)
{
    return c->flags >> CHAIN_BINS_SHIFT;
}

static inline unsigned chain_map_words(unsigned lists)
{
    return (lists + 63) / 64;
}

/* Bit j of word i: list 64 i + j is not empty. */
static inline uint64_t *chain_map(const struct memoir_chain *c)
{
    return (uint64_t *)c->bins + chain_bins(c);
}

static inline uint64_t *chain_heads(struct memoir_chain *c)
{
    return chain_map(c) + chain_map_words(chain_lists(c));
}

/* What a shared chain has beside. */
struct chain_shared {
    /* a robust futex, as the kernel defines it: the thread that holds it, and two bits */
    uint32_t lock;
    uint32_t unused;
    uint64_t boot; /* atomic: since which start of the machine the lock is in use: chain_lock.c */
};

static inline struct chain_shared *chain_shared(struct memoir_chain *c)
{
    return (struct chain_shared *)(chain_heads(c) + chain_lists(c));
}

/* Internal flag, beside those of memoir_chain_flags. */
enum { CHAIN_HAS_SOURCE = 0x8000 };

static inline size_t chain_shared_bytes(unsigned flags)
{
    return flags & MEMOIR_CHAIN_SHARED ? sizeof(struct chain_shared) : 0;
}

static inline struct chain_source *chain_source(struct memoir_chain *c)
{
    if (!(c->flags & CHAIN_HAS_SOURCE))
        return NULL;
    return (struct chain_source *)((char *)chain_shared(c) + chain_shared_bytes(c->flags));
}

/* Bytes before the first region of a chain with such a word of flags. */
static inline size_t chain_control_bytes(uint32_t flags)
{
    unsigned lists = flags >> CHAIN_LISTS_SHIFT & CHAIN_LISTS_MASK,
             bins = flags >> CHAIN_BINS_SHIFT;
    size_t bytes = sizeof(struct memoir_chain) + 8 * (bins + chain_map_words(lists) + lists) +
                   chain_shared_bytes(flags) +
                   (flags & CHAIN_HAS_SOURCE ? sizeof(struct chain_source) : 0);
    return (bytes + CHAIN_GRAIN - 1) / CHAIN_GRAIN * CHAIN_GRAIN;
}

static inline struct region *chain_first_region(struct memoir_chain *c)
{
    return (struct region *)((char *)c + chain_control_bytes(c->flags));
}

static inline uint64_t *region_first(struct region *r)
{
    return (uint64_t *)(r + 1);
}

static inline uint64_t *region_end(struct region *r, uint64_t bytes)
{
    return (uint64_t *)((char *)r + bytes - CHAIN_HEADER);
}

static inline uint64_t *block_at(uint64_t *b, uint64_t bytes)
{
    return (uint64_t *)((char *)b + bytes);
}

static inline uint64_t *block_of(const void *payload)
{
    return (uint64_t *)((char *)(uintptr_t)payload - CHAIN_HEADER);
}

static inline void *block_payload(uint64_t *b)
{
    return b + 1;
}

static inline uint64_t header_bytes(uint64_t header)
{
    return header & ~(uint64_t)(CHAIN_GRAIN - 1);
}

/* Is it a program's block? */
static inline bool header_is_live(uint64_t header)
{
    return (header & (CHAIN_USED | CHAIN_BINNED | CHAIN_END)) == CHAIN_USED;
}

/* ---- sealed words ---- */

static inline uint64_t chain_distance(const struct memoir_chain *c, const void *at)
{
    return (uint64_t)((uintptr_t)at - (uintptr_t)c);
}

static inline void *chain_at(const struct memoir_chain *c, uint64_t distance)
{
    return (void *)((uintptr_t)c + (uintptr_t)distance);
}

/* The top 16 bits of a product that depends on all bits of value, place and key. */
static inline uint64_t word_seal(const struct memoir_chain *c, uint64_t key, const void *at,
                                 uint64_t value)
{
    uint64_t mix = value ^ key ^ chain_distance(c, at) << 16;
    return mix * UINT64_C(0x9e3779b97f4a7c15);
}

#ifdef CHAIN_TEAR
/* For tests: called before each store, may leave by longjmp(). */
extern void (*chain_tear)(void);
#endif

/* Every store that may be the last one of a process. */
static inline void chain_store(uint64_t *at, uint64_t word)
{
#ifdef CHAIN_TEAR
    if (chain_tear)
        chain_tear();
#endif
    store_release(at, word);
}

static inline void word_put_by(struct memoir_chain *c, uint64_t key, uint64_t *at, uint64_t value)
{
    chain_store(at, value | (word_seal(c, key, at, value) & ~CHAIN_VALUE_MASK));
}

/* False: somebody else wrote there. */
static inline bool word_get_by(const struct memoir_chain *c, uint64_t key, const uint64_t *at,
                               uint64_t *ret)
{
    uint64_t word = load_relaxed(at), value = word & CHAIN_VALUE_MASK;
    *ret = value;
    return ((word ^ word_seal(c, key, at, value)) & ~CHAIN_VALUE_MASK) == 0;
}

static inline void word_put(struct memoir_chain *c, uint64_t *at, uint64_t value)
{
    word_put_by(c, c->seal, at, value);
}

static inline bool word_get(const struct memoir_chain *c, const uint64_t *at, uint64_t *ret)
{
    return word_get_by(c, c->seal, at, ret);
}

/* Is this within the buffers of the chain? Exact for one buffer; of several, the space between them
 * counts, too. Seals let one overwritten word in 65,536 pass: it shall not lead out of here. */
static inline bool chain_spans(const struct memoir_chain *c, const void *at)
{
    return chain_distance(c, at) - load_relaxed(&c->low) < load_relaxed(&c->span);
}

/* So are these bytes from here, and one more. */
static inline bool chain_spans_all(const struct memoir_chain *c, const void *at, uint64_t bytes)
{
    uint64_t from = chain_distance(c, at) - load_relaxed(&c->low), span = load_relaxed(&c->span);
    return from < span && bytes < span - from;
}

static inline bool block_fits(const struct memoir_chain *c, const uint64_t *b, uint64_t bytes)
{
    return bytes >= CHAIN_BLOCK_MIN && chain_spans(c, (const char *)b + bytes);
}

/* Links: distances of 48 bits with a sign, 0 for none. */
static inline uint64_t link_distance(uint64_t value)
{
    return (uint64_t)((int64_t)(value << 16) >> 16);
}

static inline void link_put_by(struct memoir_chain *c, uint64_t key, uint64_t *at, const void *to)
{
    word_put_by(c, key, at, to ? chain_distance(c, to) & CHAIN_VALUE_MASK : 0);
}

static inline bool link_get_by(const struct memoir_chain *c, uint64_t key, const uint64_t *at,
                               uint64_t **ret)
{
    uint64_t value;
    if (!word_get_by(c, key, at, &value))
        return false;
    if (value == 0) {
        *ret = NULL;
        return true;
    }
    *ret = chain_at(c, link_distance(value));
    return value % 8 == 0 && chain_spans_all(c, *ret, CHAIN_BLOCK_MIN);
}

static inline void link_put(struct memoir_chain *c, uint64_t *at, const void *to)
{
    link_put_by(c, c->seal, at, to);
}

static inline bool link_get(const struct memoir_chain *c, const uint64_t *at, uint64_t **ret)
{
    return link_get_by(c, c->seal, at, ret);
}

/* ---- counters ---- */

static inline void chain_count_used(struct memoir_chain *c, uint64_t bytes)
{
    uint64_t used = c->used_bytes + bytes;
    c->used_bytes = used;
    if (used > c->used_bytes_peak)
        c->used_bytes_peak = used;
}

static inline void chain_count_total(struct memoir_chain *c, uint64_t bytes)
{
    uint64_t binned = bytes / CHAIN_BINNED_SHARE;
    c->total_bytes = bytes;
    c->binned_bytes_max = binned < CHAIN_BINNED_MAX ? (uint32_t)binned : CHAIN_BINNED_MAX;
}

/* ---- between the files of the chain ---- */

static inline bool chain_is_locked(const struct memoir_chain *c)
{
    return c->flags & (MEMOIR_CHAIN_THREAD_SAFE | MEMOIR_CHAIN_SHARED);
}

/* Put a block that is not counted as used any more among the free ones; take its region out when that is to go back to the source. Under
 * the lock. */
int chain_merge(struct memoir_chain *c, uint64_t *b, uint64_t header);

/* A key for the seals of blocks, other than the one before. */
uint64_t chain_seal_next(const struct memoir_chain *c);

/* Check sum over what never changes. */
uint32_t chain_constants(const struct memoir_chain *c);

/* The calling thread, as an address that no other living thread has. */
const void *chain_thread(void);

/* Queue a block (chain_remote.c). Any thread, no lock. -EALREADY, -EFAULT as fit_live(). */
int chain_push(struct memoir_chain *c, uint64_t *b);

/* Free what was queued; the number of blocks or -EUCLEAN. Under the lock. */
int chain_drain_locked(struct memoir_chain *c);

/* Is this live block queued already? */
bool chain_is_queued(const struct memoir_chain *c, const uint64_t *b);

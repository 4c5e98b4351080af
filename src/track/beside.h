/*
 * beside.h: words of small blocks that are not in the blocks (book/trailer.h).
 *
 * The array is for a part of the address space that begins where the heap of glibc does, and grows with it. A block whose
 * chunk is small has its word there if, and only if, its address is in that part. That must not change while it lives: so the
 * part grows before the first small block beyond its end is counted, or never again.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"
#include "book/trailer.h"
#include "track/real.h"

/* Where a block has what is kept of it. */
enum beside_where {
    BESIDE_NOT,     /* in a trailer, if it has any */
    BESIDE_THERE,   /* beside */
    BESIDE_NOTHING, /* it would be beside, and nothing is */
};

struct book_header;

#ifdef TRACK_OVER_CORE

/* All blocks of our own allocator but the huge ones: see src/malloc/account.c, where these are. */
enum {
    BESIDE_SITES = 1 << 19,          /* sites that the fast way can name */
    BESIDE_GENERATIONS_MAX = 1 << 6, /* forks of forks */
};

enum beside_where beside_put(struct book_trailer_key k, void *block, size_t bytes, uint32_t site,
                             uint32_t time, bool sampled);
enum beside_where beside_take(struct book_trailer_key k, void *block, void **ret_place,
                              uint64_t *ret_word, struct book_trailer *ret);
void beside_put_back(void *place, uint64_t word);
bool beside_ready(void *block);
enum beside_where beside_named(const void *block, uint32_t site);
bool beside_usable(const void *block, size_t *usable);
void beside_enter(struct book_header *header);
uint64_t beside_stamp(uint32_t time);
uint64_t beside_site(uint32_t site, uint32_t generation);

static inline void beside_begin(void)
{
}

#else

enum {
    BESIDE_CLOSED = 1,
    BESIDE_SITES = BOOK_TRAILER_SHORT_SITES,
    BESIDE_GENERATIONS_MAX = BOOK_TRAILER_GENERATIONS_MAX,
};

#define BESIDE_SPAN_MAX (UINT64_C(4) << 30) /* larger heaps go on with trailers */

struct beside {
    /* where the part begins, less 8: then no block is at `span` exactly, whatever its lowest bits */
    uint64_t heap;
    uint64_t span;  /* its bytes, a multiple of 32; and BESIDE_CLOSED once it cannot grow */
    uint64_t words; /* address of the array */
};

extern struct beside beside __attribute__((visibility("hidden"))); /* no way round */

/* How far into the part a block begins, and 8; many if it is not one of those. */
static inline uint64_t beside_distance(const void *block)
{
    return (uintptr_t)block - beside.heap;
}

static inline bool beside_has(size_t chunk, uint64_t distance)
{
    return chunk <= BOOK_BESIDE_CHUNK_MAX + REAL_CHUNK_FLAGS &&
           distance < load_relaxed(&beside.span);
}

static inline uint64_t *beside_at(uint64_t distance)
{
    return (uint64_t *)(beside.words + book_beside_offset(distance));
}

/* The word of a block that has it beside, or NULL. */
static inline uint64_t *beside_word(const void *block)
{
    uint64_t span = load_acquire(&beside.span), distance = beside_distance(block);
    return distance < span && beside_has(real_chunk(block), distance) ? beside_at(distance) : NULL;
}

/* True if a small block at this distance is outside the part and stays outside, even if the part grows:
 * then it has a trailer. The caller loads the span once for all that it decides about a block. */
static inline bool beside_never(uint64_t span, uint64_t distance)
{
    return distance >= span && (span & BESIDE_CLOSED || distance >= BESIDE_SPAN_MAX);
}

/* Let the part grow so that it has this small block; false if it cannot. Any thread, any time; keeps errno. */
bool beside_reach(const void *block);

/* The same for a block that is new. */
static inline uint64_t *beside_claim(const void *block)
{
    uint64_t span = load_acquire(&beside.span);
    if (beside_distance(block) >= span && !(span & BESIDE_CLOSED) &&
        real_chunk(block) <= BOOK_BESIDE_CHUNK_MAX + REAL_CHUNK_FLAGS)
        beside_reach(block);
    return beside_word(block);
}

/* Store what a new block is, if it has that beside. */
static inline enum beside_where beside_put(struct book_trailer_key k, void *block, size_t bytes,
                                           uint32_t site, uint32_t time, bool sampled)
{
    uint64_t *word = beside_claim(block);
    if (!word)
        return BESIDE_NOT;
    *word =
        book_beside_word(k, (uintptr_t)block, bytes, site, book_trailer_short_stamp(time), sampled);
    return BESIDE_THERE;
}

/* Take that away: what it said, where it was and what it was there; and put it back. */
static inline enum beside_where beside_take(struct book_trailer_key k, void *block,
                                            void **ret_place, uint64_t *ret_word,
                                            struct book_trailer *ret)
{
    uint64_t *word = beside_word(block);
    if (!word)
        return BESIDE_NOT;
    if (!book_beside_read(k, *word, 0, ret))
        return BESIDE_NOTHING;
    *ret_place = word;
    *ret_word = *word;
    *word = 0;
    return BESIDE_THERE;
}

static inline void beside_put_back(void *place, uint64_t word)
{
    *(uint64_t *)place = word;
}

/* Is there memory for it? */
static inline bool beside_ready(void *block)
{
    return true;
}

/* Can that of a new block name this site? */
static inline enum beside_where beside_named(const void *block, uint32_t site)
{
    return beside_claim(block) ? BESIDE_THERE : BESIDE_NOT;
}

/* Has the block nothing of ours inside? Else `usable` is as it was. */
static inline bool beside_usable(const void *block, size_t *usable)
{
    return beside_word(block) != NULL;
}

/* What the fast way has ready: its parts of a short trailer. */
static inline uint64_t beside_stamp(uint32_t time)
{
    return book_trailer_short_stamp(time);
}

static inline uint64_t beside_site(uint32_t site, uint32_t generation)
{
    return book_beside_site(site, generation);
}

/* Prepare the array, before the first block is counted. Where address space is limited there is none. */
void beside_begin(void);

/* Tell readers where it is. */
void beside_enter(struct book_header *header);

#endif

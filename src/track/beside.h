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

enum { BESIDE_CLOSED = 1 };

struct beside {
    uint64_t
        heap; /* where the part begins, less 8: then no block is at `span` exactly, whatever its lowest bits */
    uint64_t span;  /* its bytes, a multiple of 32; and BESIDE_CLOSED once it cannot grow */
    uint64_t words; /* address of the array */
};

struct book_header;

#ifdef TRACK_OVER_CORE

/* Our own allocator needs none. */
static inline uint64_t *beside_word(const void *block)
{
    return NULL;
}
static inline uint64_t *beside_claim(const void *block)
{
    return NULL;
}
static inline void beside_begin(void)
{
}
static inline void beside_enter(struct book_header *header)
{
}

#else

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

/* Prepare the array, before the first block is counted. Where address space is limited there is none. */
void beside_begin(void);

/* Tell readers where it is. */
void beside_enter(struct book_header *header);

#endif

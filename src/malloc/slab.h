/*
 * slab.h: what happens to one slab: carving blocks, and the protocol of its remote word (macro.h).
 *
 * "Owner" functions are for the heap that owns the slab, "free" for anybody.
 */
#pragma once

#include "malloc/macro.h"

/* A run of slices becomes a slab of that class, owned by `owner`, with no block carved yet. */
void slab_begin(struct slab *s, unsigned class, struct heap *owner);

/* Owner, with an empty free list: carve the next blocks, a page's worth. False if all are carved. */
bool slab_carve(struct slab *s);

/* Owner: take over what others have freed. False if there was nothing. */
bool slab_collect(struct slab *s);

/* Owner of a slab with no free block: let it go (FULL). False if others have freed some meanwhile: then it is still owned. */
bool slab_let_go(struct slab *s);

enum slab_outcome {
    SLAB_DONE,    /* nothing more to do */
    SLAB_CLAIMED, /* the slab is the caller's now, with the blocks on its free list */
    SLAB_EMPTY,   /* that were its last blocks: it is the caller's, to be given to its source */
};

/* Owner: leave it to others: into the pool, or let it go if it is full. SLAB_EMPTY: it turned out that all blocks are free, so it
 * is still the caller's. SLAB_DONE otherwise. */
enum slab_outcome slab_leave(struct source *source, struct slab *s);

/* Free blocks of a slab that the caller does not own, one or more. `claim`: take over a slab that was full, once that ends: with these blocks, if
 * it was this heap that let it go. `at_once`: it is full no more with the first block that comes back. */
enum slab_outcome slab_free(struct source *source, struct slab *s, const struct slab_list *list,
                            bool claim, bool at_once, struct heap *heap);

/* Take a slab of that class out of the pool, with at least one free block or some yet to be carved. NULL: none. */
struct slab *slab_adopt(struct source *source, unsigned class, struct heap *heap);

/*
 * bin.h: the slabs of a heap by their class, and the ways that lead to the current ones: for heap.c.
 *
 * Where a thread has few blocks of many sizes, a slab for each class would take some pages for a block or two. So from 65 bytes on a class
 * begins without slabs of its own (`sharing`): the way leads to the current slab of the next power of two, up to HEAP_SHARED blocks, or
 * one slab. Then whichever class asks for more gets slabs of its own, and keeps to them (`grown`) until the thread ends. It does so at once
 * where there are such slabs in the pool; and all that share do, when one of these slabs is let go or the power of two itself needs more.
 */
#pragma once

#include "malloc/heap.h"
#include "malloc/macro.h"

/* ---- lists of slabs ---- */

/* At the end. */
static inline void slabs_link(struct slabs *list, struct slab *s)
{
    struct slab *first = list->first;
    s->next = NULL;
    if (first) {
        s->prev = first->prev;
        s->prev->next = s;
        first->prev = s;
    } else {
        s->prev = s;
        list->first = s;
    }
    list->n++;
}

static inline void slabs_unlink(struct slabs *list, struct slab *s)
{
    struct slab *first = list->first;
    if (s == first)
        list->first = first = s->next;
    else
        s->prev->next = s->next;
    if (s->next)
        s->next->prev = s->prev;
    else if (first)
        first->prev = s->prev;
    list->n--;
}

/* ---- bins ---- */

/* `used` is never less than the blocks that are out and `current`, which is what others subtract. */
static inline void current_mark(struct slab *s)
{
    s->used++; /* so that it does not become empty while it is current */
    fence_signal();
    s->current = 1;
}

static inline void current_unmark(struct slab *s)
{
    s->current = 0;
    fence_signal();
    s->used--;
}

/* Blocks of that class come from this slab first; slab_none: not yet known from which. */
static inline void way_set(struct heap *h, unsigned class, struct slab *s)
{
    h->way[class] = s;
    if (class >= SIZE_DIRECT_CLASSES)
        return;
    uint32_t bytes = size_of_class(class);
    unsigned from = class == 0 ? 0 : size_of_class(class - 1) / SIZE_STEP + 1;
    for (unsigned i = from; i <= bytes / SIZE_STEP; i++)
        h->direct[i] = s;
}

/* The classes that share slabs of this one, as bits. */
static inline uint64_t sharers(const struct heap *h, unsigned class)
{
    unsigned n = size_sharers[class];
    return h->sharing & ((UINT64_C(1) << n) - 1) << (class - n);
}

/* Theirs leads to that one, too. Seldom: so it is not part of whatever changes a current slab. */
static __attribute__((noinline)) void sharers_follow(struct heap *h, uint64_t left, struct slab *s)
{
    for (; left; left &= left - 1)
        way_set(h, (unsigned)__builtin_ctzll(left), s);
}

/* The current slab of a class is that one, or none. */
static inline void current_set(struct heap *h, unsigned class, struct slab *s)
{
    if (s)
        current_mark(s);
    else
        s = &slab_none;
    way_set(h, class, s);
    uint64_t others = sharers(h, class);
    if (unlikely(others))
        sharers_follow(h, others, s);
}

static inline void bin_link(struct heap *h, struct slab *s)
{
    struct slabs *open = &h->bin[s->class].open;
    slabs_link(open, s);
    if (open->first == s)
        current_set(h, s->class, s);
}

/* So that it comes after the current one, if there are any others. */
static inline void bin_link_soon(struct heap *h, struct slab *s)
{
    struct slabs *open = &h->bin[s->class].open;
    struct slab *first = open->first;
    if (!first || !first->next) {
        bin_link(h, s);
        return;
    }
    s->prev = first;
    s->next = first->next;
    s->next->prev = s;
    first->next = s;
    open->n++;
}

static inline void bin_unlink(struct heap *h, struct slab *s)
{
    struct slabs *open = &h->bin[s->class].open;
    slabs_unlink(open, s);
    if (s->current) {
        current_unmark(s);
        current_set(h, s->class, open->first);
    }
}

/* ---- slabs that several classes share ---- */

/* Has the heap so few slabs of a class that others may share them? Or a single one, with room. Of more, with room or not, none would ever be empty
 * again where small blocks that stay have come into them. */
static inline bool bin_has_few(const struct heap *h, unsigned class)
{
    const struct bin *b = &h->bin[class];
    const struct slab *s = b->open.first;
    uint32_t slabs = b->open.n + b->held.n;
    if (slabs == 1 && s && (s->free || s->made < s->limit))
        return true;
    return slabs == 0 ||
           slabs * size_slices[class] * SLICE_BYTES < HEAP_SHARED * size_of_class(class);
}

static inline void share_begin(struct heap *h, unsigned class)
{
    struct slab *first = h->bin[size_shared[class]].open.first;
    h->sharing |= UINT64_C(1) << class;
    way_set(h, class, first ? first : &slab_none);
}

/* A class gets slabs of its own, and keeps to them. */
static inline void share_leave(struct heap *h, unsigned class)
{
    h->sharing &= ~(UINT64_C(1) << class);
    h->grown |= UINT64_C(1) << class;
    way_set(h, class, &slab_none);
}

/* None shares slabs of this class any more. */
static __attribute__((noinline)) void share_end(struct heap *h, unsigned class)
{
    for (uint64_t left = sharers(h, class); left; left &= left - 1)
        share_leave(h, (unsigned)__builtin_ctzll(left));
}

/*
 * bin.h: the slabs of a heap by their class, and the ways that lead to the current ones: for heap.c.
 *
 * Where a thread has few blocks of many sizes, a slab for each class would take some pages for a block or two. So up to 8 KiB a class
 * begins without slabs of its own (`sharing`): the way leads to the current slab of the next power of two, from 64 bytes on, as long as that has up to HEAP_SHARED
 * blocks, or a few slabs with room. Then whichever class asks for more gets slabs of its own, and keeps to them (`grown`) until the thread ends. It does so at once
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

/* A slab of the heap's with free blocks comes last; or after the current one, if there are any others; or leaves. The current one is the first
 * one, and the ways lead there. */
void bin_link(struct heap *h, struct slab *s);
void bin_link_soon(struct heap *h, struct slab *s);
void bin_unlink(struct heap *h, struct slab *s);

/* Whose slab is to have a block for this class: its own, or the one that it shares. */
unsigned bin_serving(struct heap *h, unsigned class);

/* None shares slabs of this class any more. */
void bin_share_end(struct heap *h, unsigned class);

/* spare.h: runs of one or two slices that a heap keeps: those of its last slabs and large blocks. */
#pragma once

#include "malloc/heap.h"
#include "malloc/node.h"
#include "malloc/os.h"
#include "malloc/source.h"

/* Is it of the node whose memory the heap takes? What a range was emptied of is of none (range_open.c). */
static inline bool heap_of_node(const struct heap *h, const struct slab *s)
{
    return likely(!node_many && !os_places) || macro_of(s)->source->node == h->source->node;
}

/* False: it is longer, or there is no room. */
static inline bool spare_put(struct heap *h, struct slab *s)
{
    unsigned slices = s->slices;
    if (slices > HEAP_SPARE_SLICES)
        return false;
    struct spares *spare = &h->spare[slices - 1];
    if (spare->n == HEAP_SPARES || !heap_of_node(h, s))
        return false;
    s->class = SLAB_UNUSED;
    spare->runs[spare->n++] = s;
    return true;
}

/* NULL: there is none. */
static inline struct slab *spare_take(struct heap *h, unsigned slices)
{
    if (slices > HEAP_SPARE_SLICES)
        return NULL;
    struct spares *spare = &h->spare[slices - 1];
    return spare->n > 0 ? spare->runs[--spare->n] : NULL;
}

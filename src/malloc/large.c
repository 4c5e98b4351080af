/*
 * large.c: blocks from above 32 KiB to 1 MiB, with slices of their own; larger ones are huge.c's.
 *
 * Arrays that all start at the same place of a page fight for the same sets of the cache. So a block starts a few cache lines
 * further on than the one before, as far as its last slice has room to spare.
 */
#include <string.h>

#include "malloc/heap.h"
#include "malloc/huge.h"
#include "malloc/node.h"
#include "malloc/source.h"

enum { LINE = 64, COLOURS = 64 };

/* What is dirty of the block's slices is cleared, the rest is zero. */
static void clear_dirty(char *memory, slice_bits dirty, size_t from, size_t to)
{
    for (unsigned i = 0; dirty; i++, dirty >>= 1) {
        size_t begin = (size_t)i << SLICE_SHIFT, end = begin + SLICE_BYTES;
        begin = begin > from ? begin : from;
        end = end < to ? end : to;
        if ((dirty & 1) && begin < end)
            memset(memory + begin, 0, end - begin);
    }
}

static void *huge(size_t bytes, size_t align, bool zero)
{
    bool zeroed = false;
    void *block = huge_alloc(bytes, align, zero ? &zeroed : NULL);
    if (block && zero && !zeroed)
        memset(block, 0, bytes);
    return block;
}

void *large_alloc(struct heap *h, size_t bytes, size_t align, bool zero)
{
    if (bytes > HEAP_LARGE_MAX || align > HEAP_LARGE_MAX)
        return huge(bytes, align, zero);
    struct span span;
    unsigned slices = (unsigned)((bytes + SLICE_BYTES - 1) >> SLICE_SHIFT);
    slices = slices > 0 ? slices : 1;
    unsigned align_slices = align > SLICE_BYTES ? (unsigned)(align >> SLICE_SHIFT) : 1;
    if (align_slices + slices > MACRO_SLICES)
        return huge(bytes, align, zero);
    if (!source_take(heap_source(h), slices, align_slices, &span))
        return NULL;
    struct slab *s = span.slab;
    size_t slack = ((size_t)slices << SLICE_SHIFT) - bytes, start = 0;
    if (align <= LINE)
        start = (size_t)(h->colour++ % COLOURS) * LINE;
    s->class = SLAB_LARGE;
    s->block_bytes = 0;
    s->start = (uint32_t)(start <= slack ? start : 0);
    s->asked = bytes;
    h->large_allocs++;
    char *memory = slab_memory(s);
    if (zero)
        clear_dirty(memory, span.dirty, s->start, s->start + bytes);
    return memory + s->start;
}

void large_free(struct slab *s)
{
    source_give(macro_of(s)->source, s);
}

bool large_resize(struct slab *s, size_t bytes)
{
    if (bytes > HEAP_LARGE_MAX)
        return false;
    unsigned slices = (unsigned)((s->start + bytes + SLICE_BYTES - 1) >> SLICE_SHIFT);
    slice_bits dirty;
    if (slices != s->slices && !source_resize(macro_of(s)->source, s, slices, &dirty))
        return false;
    s->asked = bytes;
    return true;
}

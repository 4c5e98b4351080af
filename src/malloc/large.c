/*
 * large.c: blocks above SIZE_SMALL_MAX and up to 1 MiB, with slices of their own; larger ones are huge.c's.
 *
 * Arrays that all start at the same place of a page fight for the same sets of the cache. So a block starts a few cache lines
 * further on than its neighbour, as far as its last slice has room to spare: at the same place whenever that memory is used, since the
 * lines there may still be in the cache. Not so far that it takes one more page, where that is much of it.
 */
#include <string.h>

#include "malloc/exchange.h"
#include "malloc/heap.h"
#include "malloc/huge.h"
#include "malloc/node.h"
#include "malloc/os.h"
#include "malloc/policy.h"
#include "malloc/pressure.h"
#include "malloc/source.h"
#include "malloc/spare.h"
#include "malloc/words.h"

enum { LINE = 64, PAGE_MATTERS = 64 << 10 };

/* Where a block starts in its slices. */
static inline uint32_t start_of(const struct slab *s, size_t bytes)
{
    size_t colour =
        (uint32_t)((uintptr_t)slab_memory(s) >> SLICE_SHIFT) * UINT32_C(0x9e3779b1) >> 26;
    size_t room = ((size_t)s->slices << SLICE_SHIFT) - bytes, start = colour * LINE;
    if (bytes < PAGE_MATTERS)
        room = -bytes % OS_PAGE_BYTES;
    return (uint32_t)(start <= room ? start : 0);
}

/* What is dirty of the block's slices is cleared, the rest is zero. */
static __attribute__((noinline)) void clear_dirty(char *memory, slice_bits dirty, size_t from,
                                                  size_t to)
{
    for (unsigned i = 0; dirty && (size_t)i << SLICE_SHIFT < to; i++, dirty >>= 1) {
        size_t begin = (size_t)i << SLICE_SHIFT, end = begin + SLICE_BYTES;
        begin = begin > from ? begin : from;
        end = end < to ? end : to;
        if ((dirty & 1) && begin < end)
            memset(memory + begin, 0, end - begin);
    }
}

/* Where slices would have to go, they may become the block's instead (exchange.h): then this heap's empty slabs should not keep macro-blocks
 * from being empty. */
static __attribute__((noinline)) void *huge(struct heap *h, size_t bytes, size_t align, bool zero)
{
    bool zeroed = false;
    bool exchanged = align < MACRO_BYTES && bytes < EXCHANGE_MAX && exchange_share() > 0;
    if (exchanged && policy_would_yield(bytes, true))
        heap_give_empty(h);
    void *block = huge_alloc(bytes, align, zero ? &zeroed : NULL);
    if (block && zero && !zeroed)
        memset(block, 0, bytes);
    policy_grown(true);
    return block;
}

/* ---- runs that a heap keeps: what was freed last is likely in the cache, and needs no lock ---- */

static void kept_remove(struct heap *h, unsigned at)
{
    h->n_kept--;
    for (unsigned i = at; i < h->n_kept; i++) {
        h->kept[i] = h->kept[i + 1];
        fence_signal(); /* or the compiler calls memmove() for it */
    }
}

/* One that is not much larger, of more than HEAP_SPARE_SLICES; NULL: there is none. */
static __attribute__((noinline)) struct slab *kept_take(struct heap *h, unsigned slices)
{
    for (unsigned i = h->n_kept; i-- > 0;) {
        struct slab *s = h->kept[i];
        if (s->slices < slices || s->slices > slices + slices / 4)
            continue;
        kept_remove(h, i);
        return s;
    }
    return NULL;
}

static inline struct slab *run_take(struct heap *h, unsigned slices)
{
    return slices <= HEAP_SPARE_SLICES ? spare_take(h, slices) : kept_take(h, slices);
}

static void kept_give(struct heap *h, unsigned at)
{
    struct slab *s = h->kept[at];
    kept_remove(h, at);
    source_give(macro_of(s)->source, s);
}

void large_trim(struct heap *h)
{
    while (h->n_kept > 0)
        kept_give(h, h->n_kept - 1);
}

/* In the place of older ones. False: it is not of the heap's node. */
static __attribute__((noinline)) bool kept_put(struct heap *h, struct slab *s)
{
    unsigned slices = s->slices;
    if (!heap_of_node(h, s))
        return false;
    for (unsigned i = 0; i < h->n_kept; i++)
        slices += h->kept[i]->slices;
    while (h->n_kept == HEAP_KEPT || slices > HEAP_KEPT_SLICES) {
        slices -= h->kept[0]->slices;
        kept_give(h, 0);
    }
    s->class = SLAB_UNUSED;
    h->kept[h->n_kept++] = s;
    return true;
}

void large_free(struct heap *h, struct slab *s)
{
    unsigned slices = s->slices;
    if (likely(h) && likely(policy_level() < PRESSURE_HIGH)) {
        if (slices <= HEAP_SPARE_SLICES ? spare_put(h, s)
                                        : slices <= HEAP_KEPT_SLICES / 2 && kept_put(h, s))
            return;
    }
    source_give(macro_of(s)->source, s);
}

/* ---- blocks ---- */

/* The run becomes a block. */
static inline void *block_begin(struct heap *h, struct slab *s, size_t bytes, size_t align)
{
    words_detach(s);
    s->large_word = (struct word){0};
    s->block_bytes = 0;
    s->start = align <= LINE ? start_of(s, bytes) : 0;
    s->asked = bytes;
    store_release(&s->class, SLAB_LARGE); /* who walks, or is forked now, finds it whole */
    h->large_allocs++;
    return slab_memory(s) + s->start;
}

static inline unsigned slices_of(size_t bytes)
{
    return (unsigned)((bytes - (bytes > 0)) >> SLICE_SHIFT) + 1;
}

/* Zeroed, or where no run that is kept serves (`kept` is NULL): of the source, or huge. */
static __attribute__((noinline)) void *alloc_otherwise(struct heap *h, struct slab *kept,
                                                       size_t bytes, size_t align, bool zero)
{
    unsigned slices = slices_of(bytes);
    unsigned align_slices = align > SLICE_BYTES ? (unsigned)(align >> SLICE_SHIFT) : 1;
    if (bytes > HEAP_LARGE_MAX || align > HEAP_LARGE_MAX || align_slices + slices > MACRO_SLICES)
        return huge(h, bytes, align, zero);
    struct span span = {.slab = kept, .dirty = ~(slice_bits)0};
    if (!kept && !source_take(heap_source(h), slices, align_slices, &span))
        return NULL;
    char *block = block_begin(h, span.slab, bytes, align);
    if (zero)
        clear_dirty(slab_memory(span.slab), span.dirty, span.slab->start, span.slab->start + bytes);
    return block;
}

void *large_alloc(struct heap *h, size_t bytes, size_t align, bool zero)
{
    struct slab *kept = NULL;
    if (likely(bytes <= HEAP_LARGE_MAX && align <= SLICE_BYTES))
        kept = run_take(h, slices_of(bytes));
    if (likely(kept && !zero))
        return block_begin(h, kept, bytes, align);
    return alloc_otherwise(h, kept, bytes, align, zero);
}

bool large_resize(struct slab *s, size_t bytes)
{
    if (bytes > HEAP_LARGE_MAX)
        return false;
    unsigned slices = (unsigned)((s->start + bytes + SLICE_BYTES - 1) >> SLICE_SHIFT);
    slice_bits dirty;
    if (slices != s->slices)
        return source_resize(macro_of(s)->source, s, slices, bytes, &dirty);
    s->asked = bytes;
    return true;
}

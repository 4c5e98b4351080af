/* core.c: see core.h. */
#include "malloc/core.h"

#include <stdint.h>
#include <string.h>

#include "malloc/grind.h"
#include "malloc/heap_error.h"
#include "malloc/huge.h"
#include "malloc/lots.h"
#include "malloc/node.h"
#include "malloc/nursery.h"
#include "malloc/policy.h"
#include "malloc/source.h"

/* This thread's heap, or one for this call. */
static struct heap *heap_begin(bool *ret_borrowed)
{
    struct heap *h = heap_get();
    *ret_borrowed = !h;
    if (h && heap_fast == &heap_none && !h->on_node)
        heap_fast_set(); /* the nursery may be closed by now */
    return h ? h : heap_borrow();
}

static void heap_end(struct heap *h, bool borrowed)
{
    if (borrowed)
        heap_return(h);
}

enum want { WANT_ANY, WANT_ZERO, WANT_ALIGNED };

static void *take_once(size_t bytes, size_t align, enum want want)
{
    bool borrowed;
    struct heap *h = heap_begin(&borrowed);
    if (unlikely(!h))
        return NULL;
    void *block = want == WANT_ANY    ? heap_alloc(h, bytes)
                  : want == WANT_ZERO ? heap_alloc_zero(h, bytes)
                                      : heap_alloc_aligned(h, bytes, align);
    heap_end(h, borrowed);
    return block;
}

/* The kernel has no more: give it all that we do not need. True if it got anything. */
static bool make_room(void)
{
    struct heap *h = heap_own;
    grind_enter();
    if (h)
        heap_trim(h);
    grind_leave();
    bool any = huge_trim();
    struct source *s;
    for (unsigned i = 0; (s = source_at(i)); i++)
        any |= source_shrink(s);
    return any;
}

/* Apart from what a program without a heap runs (link.ld), as are others below: first blocks come from, and go back to, the nursery. */
static __attribute__((noinline)) void *take_mapped(size_t bytes, size_t align, enum want want)
{
    void *block = take_once(bytes, align, want);
    if (likely(block))
        return block;
    make_room(); /* though the kernel got nothing: the heap itself may have kept what is needed */
    return take_once(bytes, align, want);
}

static inline __attribute__((always_inline)) void *take(size_t bytes, size_t align, enum want want)
{
    if (unlikely(bytes > PTRDIFF_MAX || align > PTRDIFF_MAX))
        return NULL;
    void *block = nursery_alloc(bytes, align);
    if (!block)
        return take_mapped(bytes, align, want);
    return want == WANT_ZERO ? memset(block, 0, bytes) : block;
}

void *core_malloc_slowly(size_t bytes)
{
    return take(bytes, 1, WANT_ANY);
}

void *core_calloc(size_t bytes)
{
    return take(bytes, 1, WANT_ZERO);
}

void *core_memalign(size_t align, size_t bytes)
{
    return take(bytes, align, WANT_ALIGNED);
}

static __attribute__((noinline)) void free_mapped(void *block)
{
    switch (map_kind(block)) {
    case MAP_MACRO: {
        struct slab *s = slab_of(block);
        if (unlikely(!slab_may_have(s, block)))
            heap_error("free", block);
        heap_free_slowly(heap_get(), s, block);
        break;
    }
    case MAP_HUGE:
    case MAP_HUGE_ALONE:
        if (unlikely(load_relaxed(&node_bound)))
            node_unbind(block, huge_usable(block));
        if (!huge_free(block))
            heap_error("free", block);
        source_age(&source_main); /* who has huge blocks alone comes to no other place */
        break;
    default:
        if (block)
            heap_error("free", block);
    }
}

void core_free_slowly(void *block)
{
    if (likely(!nursery_has(block)))
        free_mapped(block);
    else if (!nursery_free(block))
        heap_error("free", block);
}

static __attribute__((noinline)) size_t usable_mapped(const void *block)
{
    switch (map_kind(block)) {
    case MAP_MACRO:
        return slab_usable(slab_of(block));
    case MAP_HUGE:
    case MAP_HUGE_ALONE:
        return huge_usable(block);
    default:
        return 0;
    }
}

size_t core_usable(const void *block)
{
    return unlikely(nursery_has(block)) ? nursery_usable(block) : usable_mapped(block);
}

static void *move(void *block, size_t had, size_t bytes)
{
    void *to = core_malloc(bytes);
    if (unlikely(!to))
        return bytes <= had ? block : NULL; /* it still has room there */
    memcpy(to, block, had < bytes ? had : bytes);
    core_free(block);
    return to;
}

static __attribute__((noinline)) void *realloc_mapped(void *block, size_t bytes)
{
    if (map_kind(block) == MAP_MACRO) {
        struct slab *s = slab_of(block);
        if (unlikely(!slab_may_have(s, block)))
            heap_error("realloc", block);
        if (s->class == SLAB_LARGE) {
            bool large = bytes > SIZE_SMALL_MAX && bytes <= HEAP_LARGE_MAX;
            if (large && large_resize(s, bytes))
                return block;
        } else if (core_fits(s->block_bytes, bytes)) {
            return block;
        }
        return move(block, slab_usable(s), bytes);
    }
    size_t had = usable_mapped(block);
    if (had == 0)
        heap_error("realloc", block);
    if (bytes <= HEAP_LARGE_MAX)
        return move(block, had, bytes);
    void *moved = huge_realloc(block, bytes);
    if (unlikely(!moved) && make_room())
        moved = huge_realloc(block, bytes);
    if (bytes > had)
        policy_grown(true);
    return moved;
}

static void *realloc_nursery(void *block, size_t bytes)
{
    size_t had = nursery_usable(block);
    if (had == 0)
        heap_error("realloc", block);
    if (core_fits(had, bytes))
        return block;
    void *to = core_malloc_slowly(bytes);
    if (unlikely(!to))
        return bytes <= had ? block : NULL;
    memcpy(to, block, had < bytes ? had : bytes);
    nursery_free(block);
    return to;
}

void *core_realloc(void *block, size_t bytes)
{
    if (unlikely(bytes > PTRDIFF_MAX))
        return NULL;
    return unlikely(nursery_has(block)) ? realloc_nursery(block, bytes)
                                        : realloc_mapped(block, bytes);
}

bool core_trim(void)
{
    struct heap *h = heap_own;
    grind_enter();
    if (h)
        heap_trim(h);
    grind_leave();
    bool any = huge_trim();
    for (unsigned i = 0; source_at(i); i++)
        any = source_trim(source_at(i)) || any;
    return lots_trim() || any; /* after slabs have gone, and their words */
}

/* heap.c: see heap.h. */
#include "malloc/heap.h"

#include <string.h>
#include <sys/single_threaded.h>

#include "malloc/node.h"
#include "malloc/policy.h"
#include "malloc/pressure.h"
#include "malloc/slab.h"
#include "malloc/source.h"

struct slab slab_none;

/* ---- bins ---- */

/* `used` is never less than the blocks that are out and `current`: a child that is forked in between subtracts that. */
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

/* The bin's first slab is another one, or none. */
static void current_set(struct heap *h, unsigned class, struct slab *s)
{
    if (s)
        current_mark(s);
    uint32_t bytes = size_of_class(class);
    if (bytes > SIZE_DIRECT_MAX)
        return;
    unsigned from = class == 0 ? 0 : size_of_class(class - 1) / SIZE_STEP + 1;
    for (unsigned i = from; i <= bytes / SIZE_STEP; i++)
        h->direct[i] = s ? s : &slab_none;
}

/* At the end: by the time it is current, more of its blocks may be free. */
static void bin_link(struct heap *h, struct slab *s)
{
    struct bin *b = &h->bin[s->class];
    s->next = NULL;
    s->prev = b->last;
    if (b->last)
        b->last->next = s;
    else
        b->first = s;
    b->last = s;
    b->n++;
    if (b->first == s)
        current_set(h, s->class, s);
}

/* In front of one that has just become current. */
static void bin_link_first(struct heap *h, struct slab *s)
{
    struct bin *b = &h->bin[s->class];
    struct slab *was = b->first;
    if (was && was->current)
        current_unmark(
            was); /* not to nothing: it was not current a moment ago, and in the bin nevertheless */
    s->prev = NULL;
    s->next = was;
    if (was)
        was->prev = s;
    else
        b->last = s;
    b->first = s;
    b->n++;
    current_set(h, s->class, s);
}

static void bin_unlink(struct heap *h, struct slab *s)
{
    struct bin *b = &h->bin[s->class];
    if (s->prev)
        s->prev->next = s->next;
    else
        b->first = s->next;
    if (s->next)
        s->next->prev = s->prev;
    else
        b->last = s->prev;
    b->n--;
    if (s->current) {
        current_unmark(s);
        current_set(h, s->class, b->first);
    }
}

/* ---- slabs ---- */

/* Is it of the node whose memory the heap takes? */
static inline bool of_node(const struct heap *h, const struct slab *s)
{
    return likely(!node_many) || macro_of(s)->source == h->source;
}

static void slab_give(struct heap *h, struct slab *s)
{
    if (h && s->slices == 1 && h->n_spare < HEAP_SPARES && of_node(h, s)) {
        s->owner = NULL;
        s->class = SLAB_UNUSED;
        h->spare[h->n_spare++] = s;
    } else {
        s->owner = NULL;
        source_give(macro_of(s)->source, s);
    }
}

void heap_slab_emptied(struct heap *h, struct slab *s)
{
    bin_unlink(h, s);
    slab_give(h, s);
}

static struct slab *slab_new(struct heap *h, unsigned class)
{
    unsigned slices = size_slices[class];
    struct slab *s;
    if (slices == 1 && h->n_spare > 0) {
        s = h->spare[--h->n_spare];
    } else {
        struct span span;
        if (!source_take(heap_source(h), slices, 1, &span))
            return NULL;
        s = span.slab;
    }
    slab_begin(s, class, h);
    return s;
}

/* Blocks of half a KiB and more: of the next few slabs, let the fullest one be current. The others have time to become empty. */
static void fullest_first(struct heap *h, struct bin *b)
{
    struct slab *best = b->first;
    unsigned looked = 0;
    for (struct slab *s = b->first; s && looked < HEAP_LOOK_AHEAD; s = s->next, looked++)
        if (s->used - s->current > best->used - best->current)
            best = s;
    if (best == b->first)
        return;
    bin_unlink(h, best);
    bin_link_first(h, best);
}

/* The current slab of a class, with a block on its free list. NULL: no memory. */
static struct slab *current_refill(struct heap *h, unsigned class)
{
    struct bin *b = &h->bin[class];
    struct slab *s;
    while ((s = b->first) != NULL) {
        if (s->free || slab_collect(s) || slab_carve(s))
            return s;
        bin_unlink(h, s);
        if (!slab_let_go(s))
            bin_link(h, s); /* some came back this moment */
        if (b->n > 1 && b->first->block_bytes >= HEAP_LOOK_BYTES)
            fullest_first(h, b);
    }
    if (load_relaxed(&h->source->pooled[class]) > 0)
        s = slab_adopt(h->source, class, h);
    if (!s)
        s = slab_new(h, class);
    if (!s)
        return NULL;
    bin_link(h, s);
    if (!s->free)
        slab_carve(s);
    return s;
}

/* A thread's first blocks: each class has pages of its own, and most programs and threads are small. So a class that has no slab
 * yet shares the one of the next power of two, until there are enough blocks for pages of their own. */
static inline unsigned class_shared(struct heap *h, unsigned class, size_t bytes)
{
    if (h->shared >= HEAP_SHARED_MAX || bytes > SIZE_DIRECT_MAX || h->bin[class].first)
        return class;
    h->shared++;
    return bytes <= 32 ? size_class(32)
                       : size_class((size_t)1 << (64 - __builtin_clzll(bytes - 1)));
}

void *heap_alloc_slowly(struct heap *h, size_t bytes)
{
    if (unlikely(bytes > SIZE_SMALL_MAX))
        return large_alloc(h, bytes, 1, false);
    unsigned class = class_shared(h, size_class(bytes), bytes);
    struct slab *s = h->bin[class].first;
    if (!s || !s->free) {
        if (unlikely(++h->slow_calls % HEAP_AGE_CALLS == 0))
            source_age(h->source);
        s = current_refill(h, class);
        if (unlikely(!s))
            return NULL;
    }
    return slab_pop(s);
}

void *heap_alloc_aligned(struct heap *h, size_t bytes, size_t align)
{
    if (align <= SIZE_STEP)
        return heap_alloc(h, bytes);
    if (bytes > SIZE_SMALL_MAX || align > SLICE_BYTES)
        return large_alloc(h, bytes, align, false);
    for (unsigned class = size_class(bytes > align ? bytes : align); class < SIZE_CLASSES; class ++)
        if (size_of_class(class) % align == 0)
            return heap_alloc(h, size_of_class(class));
    return large_alloc(h, bytes, align, false);
}

void *heap_alloc_zero(struct heap *h, size_t bytes)
{
    if (bytes > SIZE_SMALL_MAX)
        return large_alloc(h, bytes, 1, true);
    void *block = heap_alloc(h, bytes);
    return block ? memset(block, 0, bytes) : NULL;
}

/* ---- free ---- */

/* Shall this heap take over a slab that was full? If it may need its blocks, and has not enough of them: what other threads free
 * into a slab waits until its owner needs it, and what one thread has too much of another may need. Else it goes into the pool,
 * where others adopt it, and from where it goes back to the source with its last block, whoever frees that. */
static bool claim_wanted(struct heap *h, const struct slab *s)
{
    if (!h || !of_node(h, s))
        return false;
    const struct bin *b = &h->bin[s->class];
    if (!b->first || __libc_single_threaded)
        return b->first;
    if (unlikely(policy_level() >= PRESSURE_HIGH))
        return b->n < 2;
    return b->n < 2 || b->n * s->slices < HEAP_BIN_SLICES;
}

void heap_free_slowly(struct heap *h, struct slab *s, void *block)
{
    if (s->class == SLAB_LARGE) {
        large_free(h, s);
        return;
    }
    if (h && load_relaxed(&s->owner) == h) {
        heap_push(h, s, block);
        return;
    }
    switch (slab_free(macro_of(s)->source, s, block, claim_wanted(h, s), h)) {
    case SLAB_DONE:
        break;
    case SLAB_CLAIMED:
        bin_link(h, s);
        break;
    case SLAB_EMPTY:
        slab_give(h, s);
        break;
    }
}

/* ---- giving up what is not needed ---- */

/* Of a slab in a bin: to the source if it is empty; else into the pool, if it is to leave the heap. */
static void slab_part(struct heap *h, struct slab *s, bool leave)
{
    slab_collect(s);
    bool empty = s->used == (s->current ? 1u : 0u);
    if (!empty && !leave)
        return;
    bin_unlink(h, s);
    if (empty || slab_leave(macro_of(s)->source, s) == SLAB_EMPTY) {
        s->owner = NULL;
        source_give(macro_of(s)->source, s);
    }
}

static void heap_part(struct heap *h, bool leave)
{
    for (unsigned class = 0; class < SIZE_CLASSES; class ++)
        for (struct slab *s = h->bin[class].first, *next; s; s = next) {
            next = s->next;
            slab_part(h, s, leave);
        }
    for (; h->n_spare > 0; h->n_spare--) {
        struct slab *s = h->spare[h->n_spare - 1];
        source_give(macro_of(s)->source, s);
    }
    large_trim(h);
}

void heap_trim(struct heap *h)
{
    heap_part(h, false);
}

void heap_leave(struct heap *h)
{
    heap_part(h, true);
}

/* bin.c: see bin.h. */
#include "malloc/bin.h"

#include "malloc/source.h"
#include "malloc/thread.h"

/* ---- bins ---- */

/* `used` is never less than the blocks that are out and `current`, which is what others subtract. */
static void current_mark(struct slab *s)
{
    s->used++; /* so that it does not become empty while it is current */
    fence_signal();
    s->current = 1;
}

static void current_unmark(struct slab *s)
{
    s->current = 0;
    fence_signal();
    s->used--;
}

/* For all sizes of a small class. One copy: the compiler makes much of a loop. */
static __attribute__((noinline)) void direct_set(struct heap *h, unsigned class, struct slab *s)
{
    unsigned from = class == 0 ? 0 : size_of_class(class - 1) / SIZE_STEP + 1;
    unsigned to = size_of_class(class) / SIZE_STEP;
    for (unsigned i = from; i <= to; i++)
        h->direct[i] = s;
}

/* Blocks of that class come from this slab first; slab_none: not yet known from which. */
static void way_set(struct heap *h, unsigned class, struct slab *s)
{
    h->way[class] = s;
    if (class < SIZE_DIRECT_CLASSES)
        direct_set(h, class, s);
}

/* The classes that share slabs of this one, as bits. */
static uint64_t sharers(const struct heap *h, unsigned class)
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
static void current_set(struct heap *h, unsigned class, struct slab *s)
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

void bin_link(struct heap *h, struct slab *s)
{
    struct slabs *open = &h->bin[s->class].open;
    slabs_link(open, s);
    if (open->first == s)
        current_set(h, s->class, s);
}

void bin_link_soon(struct heap *h, struct slab *s)
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

void bin_unlink(struct heap *h, struct slab *s)
{
    struct slabs *open = &h->bin[s->class].open;
    slabs_unlink(open, s);
    if (s->current) {
        current_unmark(s);
        current_set(h, s->class, open->first);
    }
}

/* ---- slabs that several classes share ---- */

/* Has the heap so few slabs of a class that others may share them? Or a few more, with room. Of many none would ever be empty again where small
 * blocks that stay have come into their holes. */
static bool bin_has_few(const struct heap *h, unsigned class)
{
    const struct bin *b = &h->bin[class];
    const struct slab *s = b->open.first;
    uint32_t slabs = b->open.n + b->held.n;
    if (slabs <= HEAP_SHARED_SLABS && s && (s->free || s->made < s->limit || s->next))
        return true;
    return slabs == 0 ||
           slabs * size_slices[class] * SLICE_BYTES < HEAP_SHARED * size_of_class(class);
}

static void share_begin(struct heap *h, unsigned class)
{
    struct slab *first = h->bin[size_shared[class]].open.first;
    h->sharing |= UINT64_C(1) << class;
    way_set(h, class, first ? first : &slab_none);
}

/* A class gets slabs of its own, and keeps to them. */
static void share_leave(struct heap *h, unsigned class)
{
    h->sharing &= ~(UINT64_C(1) << class);
    h->grown |= UINT64_C(1) << class;
    way_set(h, class, &slab_none);
}

void bin_share_end(struct heap *h, unsigned class)
{
    for (uint64_t left = sharers(h, class); left; left &= left - 1)
        share_leave(h, (unsigned)__builtin_ctzll(left));
}

unsigned bin_serving(struct heap *h, unsigned class)
{
    unsigned shared = size_shared[class];
    uint64_t bit = UINT64_C(1) << class;
    if (class == shared) {
        if (unlikely(h->sharing) && !bin_has_few(h, class))
            bin_share_end(h, class);
        return class;
    }
    if (likely(h->grown & bit))
        return class;
    /* A word tells a slack of up to 511 bytes at once (words.h). */
    bool told = load_relaxed(&thread_modes) & MODE_ACCOUNT && class >= SIZE_DIRECT_CLASSES;
    if (told || load_relaxed(&h->source->pooled[class]) > 0 || !bin_has_few(h, shared)) {
        share_leave(h, class);
        return class;
    }
    share_begin(h, class);
    return shared;
}

/* heap.c: see heap.h. */
#include "malloc/heap.h"

#include <string.h>
#include <sys/single_threaded.h>

#include "malloc/bin.h"
#include "malloc/heap_error.h"
#include "malloc/node.h"
#include "malloc/policy.h"
#include "malloc/pressure.h"
#include "malloc/slab.h"
#include "malloc/source.h"
#include "malloc/spare.h"
#include "malloc/spread.h"
#include "malloc/thread.h"

struct slab slab_none;

/* make-archive defines it where we stand beside another malloc: there pthread_create() does not come by (entry.c), so nobody tells a
 * thread that waits to let go what it holds. */
extern const char malloc_embedded __attribute__((weak, visibility("hidden")));

/* May slabs be held without a limit? */
static inline bool is_alone(void)
{
    return __libc_single_threaded && !&malloc_embedded;
}

/* ---- slabs ---- */

/* How many runs of emptied slabs are kept of a length: where there are many threads that have little, they would be much of it. */
static inline uint32_t spares_most(const struct heap *h)
{
    return h->alone ? HEAP_SPARES : 1 + h->held_slices / HEAP_SPARE_PART;
}

static void slab_give(struct heap *h, struct slab *s)
{
    s->owner = NULL;
    bool wanted = h && h->spare[(s->slices - 1u) % HEAP_SPARE_SLICES].n < spares_most(h);
    if (!wanted || !spare_put(h, s))
        source_give(macro_of(s)->source, s);
}

/* Beside other threads the first slab of a class is the only one, as a rule, with some blocks in its first page. In slices that have memory all of its
 * pages would be resident for these, in each thread. With several sources, what others have free comes first. */
static struct slab *slab_new(struct heap *h, unsigned class)
{
    unsigned slices = size_slices[class];
    struct slabs *open = &h->bin[class].open;
    bool little = !open->begun && !h->alone && likely(load_relaxed(&sources_n) == 1);
    struct slab *s = little ? NULL : spare_take(h, slices);
    struct span span;
    if (!s) {
        if (!source_take(heap_source(h), slices, little ? SOURCE_LITTLE : 1, &span))
            return NULL;
        s = span.slab;
    }
    open->begun = 1;
    slab_begin(s, class, h);
    return s;
}

/* ---- slabs without a free block ----
 *
 * Whoever frees a block of a slab that its heap has let go needs two atomic instructions to get it back. So a heap holds such slabs,
 * though not many once there are other threads, and none of a class into which these free: they cannot give it to whoever needs
 * blocks, and its heap is not told about them.
 *
 * One that is held is not looked at until an eighth of its blocks are free: where blocks come back in any order, each look would find one.
 * Then it comes soon, while it is still nearly full, so that those that become empty get the time for it. */

static inline void hold(struct heap *h, struct slab *s)
{
    uint32_t wait = s->limit / HEAP_HELD_PART;
    wait = wait < 1 ? 1 : wait > UINT8_MAX ? UINT8_MAX : wait;
    s->held = (uint8_t)wait;
    fence_signal();
    s->used = wait;
    slabs_link(&h->bin[s->class].held, s);
    h->held_slices += s->slices;
}

static inline void unhold(struct heap *h, struct slab *s)
{
    uint32_t out = slab_out(s);
    slabs_unlink(&h->bin[s->class].held, s);
    h->held_slices -= s->slices;
    s->used = out;
    fence_signal();
    s->held = 0;
}

/* Some of its blocks may come back this moment: then others free into slabs of this class. The other ones that are held stay so until
 * stir() is called: there may be any number of them. */
static void let_go(struct heap *h, struct slab *s)
{
    bin_share_end(h, s->class); /* what is let go is not counted any more */
    if (slab_let_go(s))
        return;
    h->bin[s->class].held.stir = HEAP_STIR;
    bin_link(h, s);
}

/* What has free blocks stays. */
static void held_let_go(struct heap *h, struct slab *s)
{
    unhold(h, s);
    if (s->free)
        bin_link(h, s);
    else
        let_go(h, s);
}

/* Others free into slabs of this class: so they may do into those that are held. */
static void stir(struct heap *h, unsigned class)
{
    struct slabs *held = &h->bin[class].held;
    held->stir = HEAP_STIR;
    while (held->first)
        held_let_go(h, held->first);
}

/* Of a slab in a bin: to the source if it is empty; else into the pool, if it is to leave the heap. */
static void slab_part(struct heap *h, struct slab *s, bool leave)
{
    slab_collect(s);
    bool empty = slab_out(s) == 0;
    if (!empty && !leave)
        return;
    bin_unlink(h, s);
    if (empty || slab_leave(macro_of(s)->source, s) == SLAB_EMPTY) {
        s->owner = NULL;
        source_give(macro_of(s)->source, s);
    }
}

void heap_not_alone(struct heap *h)
{
    h->alone = false;
    h->held_most = 0;
    thread_second(h);
    for (unsigned class = 0; class < SIZE_CLASSES; class ++) {
        struct bin *b = &h->bin[class];
        while (b->held.first)
            held_let_go(h, b->held.first);
        /* As many as it may have by itself from now on: claim_wanted(). */
        unsigned slices = 0;
        for (struct slab *s = b->open.first, *next; s; s = next) {
            next = s->next;
            slices += s->slices;
            if (slices > HEAP_BIN_SLICES)
                slab_part(h, s, true);
        }
    }
}

/* In slices, where there are other threads: what they free in slabs that are held is nobody's until their heap needs blocks. So a
 * share of what is in use. */
static uint32_t held_most(void)
{
    if (policy_level() >= PRESSURE_HIGH)
        return 0;
    uint64_t share = 0;
    struct source *s;
    for (unsigned i = 0; (s = source_at(i)); i++)
        share += load_relaxed(&s->n_used) / HEAP_HELD_SHARE;
    return share < HEAP_HELD_MIN   ? HEAP_HELD_MIN
           : share < HEAP_HELD_MAX ? (uint32_t)share
                                   : HEAP_HELD_MAX;
}

/* It has no free block, and is in no list. */
static void slab_exhausted(struct heap *h, struct slab *s)
{
    struct slabs *held = &h->bin[s->class].held;
    if (is_alone()) {
        h->alone = true;
        h->held_most = UINT32_MAX;
        hold(h, s);
        return;
    }
    uint32_t most = h->held_most;
    if (most == 0 ||
        likely(load_relaxed(&sources_n) == 1)) /* else others write there all the time */
        most = h->held_most = held_most();
    if (held->stir > 0 || most == 0 || (h->held_slices >= most && !held->first)) {
        held->stir -= held->stir > 0;
        let_go(h, s);
        return;
    }
    if (h->held_slices >= most)
        held_let_go(h, held->first);
    hold(h, s);
}

/* Of a class whose bin is empty: are there free blocks in slabs that are held, or have others freed some? A few of them are looked at each
 * time. */
static void held_look(struct heap *h, unsigned class)
{
    struct slabs *held = &h->bin[class].held;
    for (unsigned i = 0; i < HEAP_HELD_LOOKS && held->first; i++) {
        struct slab *s = held->first;
        bool others = remote_count(load_relaxed(&s->remote)) > 0;
        if (!others && !s->free) {
            slabs_unlink(held, s);
            slabs_link(held, s);
            continue;
        }
        unhold(h, s);
        bin_link(h, s);
        if (others) {
            slab_collect(s);
            stir(h, class);
        }
        return;
    }
}

void heap_slab_emptied(struct heap *h, struct slab *s)
{
    bool waited = s->held > 1;
    if (s->held)
        unhold(h, s);
    else
        bin_unlink(h, s);
    if (s->used == 0)
        slab_give(h, s);
    else if (waited)
        bin_link_soon(h, s);
    else
        bin_link(h, s); /* with one free block: by the time it comes first there may be more */
}

/* ---- blocks of others' slabs ---- */

/* Shall this heap take over a slab that was full? If it may need its blocks, and has not enough of them: what other threads free
 * into a slab waits until its owner needs it, and what one thread has too much of another may need. Else it goes into the pool,
 * where others adopt it, and from where it goes back to the source with its last block, whoever frees that. */
static bool claim_wanted(struct heap *h, const struct slab *s)
{
    if (!h || !heap_of_node(h, s))
        return false;
    const struct bin *b = &h->bin[s->class];
    bool needed = b->open.n + b->held.n > 0;
    if (!needed || __libc_single_threaded)
        return needed;
    if (unlikely(policy_level() >= PRESSURE_HIGH))
        return b->open.n < 2;
    if (b->open.n < 2)
        return true;
    /* One that this heap let go itself is likely to have more of this thread's blocks. */
    return b->open.n * s->slices < HEAP_BIN_SLICES &&
           (load_relaxed(&s->let_go_by) == h || b->open.n * s->limit < HEAP_BIN_BLOCKS);
}

/* Hand blocks over to their slab, which is not the heap's. */
static void hand_over(struct heap *h, struct slab *s, const struct slab_list *list)
{
    bool at_once = policy_level() >= PRESSURE_HIGH;
    switch (slab_free(macro_of(s)->source, s, list, claim_wanted(h, s), at_once, h)) {
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

static void hand_over_one(struct heap *h, struct slab *s, void *block)
{
    hand_over(h, s, &(struct slab_list){.first = block, .last = block, .n = 1});
}

/* Of a slab that has become the heap's meanwhile: as if they were freed only now. */
static void push_all(struct heap *h, struct slab *s, void *block)
{
    for (void *next; block; block = next) {
        next = *(void **)block;
        heap_push(h, s, block);
    }
}

/* Of `from`, to where they belong. `h` may be NULL. */
static void strays_send(struct heap *h, struct strays *from)
{
    if (!from->first)
        return;
    struct slab_list all = strays_take(from);
    struct slab *s = slab_of(all.first);
    if (h && load_relaxed(&s->owner) == h)
        push_all(h, s, all.first);
    else
        hand_over(h, s, &all);
}

/* ---- blocks ---- */

/* Of other sources, rather than that the heap's own needs more memory: all are looked at. Where that has some, one is, since each slab that moves over
 * brings threads together that were apart. */
static struct slab *adopt_beside(struct heap *h, unsigned class)
{
    struct slab *s = NULL;
    bool grows = load_relaxed(&h->source->n_dirty_free) == 0;
    for (unsigned left = grows ? load_relaxed(&sources_n) - 1 : 1; !s && left > 0; left--) {
        struct source *other = spread_beside(h->source);
        if (other && load_relaxed(&other->pooled[class]) > 0)
            s = slab_adopt(other, class, h);
    }
    return s;
}

/* The current slab of a class, with a block on its free list. NULL: no memory. */
static struct slab *current_refill(struct heap *h, unsigned class)
{
    struct bin *b = &h->bin[class];
    struct slab *s;
    while ((s = b->open.first) != NULL) {
        if (s->free || slab_carve(s))
            return s;
        if (slab_collect(s)) {
            stir(h, class);
            return s;
        }
        bin_unlink(h, s);
        slab_exhausted(h, s);
        if (!b->open.first)
            held_look(h, class);
    }
    if (load_relaxed(&h->source->pooled[class]) > 0)
        s = slab_adopt(h->source, class, h); /* perhaps one that it let go itself */
    if (!s && unlikely(load_relaxed(&sources_n) > 1))
        s = adopt_beside(h, class);
    if (!s)
        s = slab_new(h, class);
    if (!s)
        return NULL;
    bin_link(h, s);
    if (!s->free)
        slab_carve(s);
    return s;
}

static __attribute__((noinline)) void *alloc_refilled(struct heap *h, unsigned class, bool aged)
{
    if (unlikely(aged)) {
        spread_look(h);
        source_age(h->source);
        h->held_most = 0; /* looked for anew */
    }
    if (unlikely(h->alone && !is_alone()))
        heap_not_alone(h);
    struct slab *s = current_refill(h, bin_serving(h, class));
    return likely(s) ? slab_pop(s) : NULL;
}

/* What current_refill() comes to most often: the next slab of the bin takes the place of the current one, which is held. False: not
 * so, and nothing is changed. */
static inline bool current_next(struct heap *h, unsigned class)
{
    struct bin *b = &h->bin[class];
    struct slab *s = b->open.first, *next = s->next;
    if (s->made < s->limit || remote_count(load_relaxed(&s->remote)) > 0 || !next || !next->free)
        return false;
    if (b->held.stir > 0 || h->held_slices >= h->held_most || (h->alone && !__libc_single_threaded))
        return false;
    bin_unlink(h, s);
    hold(h, s);
    return true;
}

void *heap_alloc_slowly(struct heap *h, size_t bytes)
{
    if (unlikely(bytes > SIZE_SMALL_MAX))
        return large_alloc(h, bytes, 1, false);
    unsigned class = size_class(bytes);
    unsigned from = h->sharing >> class & 1 ? size_shared[class] : class;
    struct slab *s = h->bin[from].open.first;
    if (!s || !s->free) {
        bool aged = ++h->slow_calls % HEAP_AGE_CALLS == 0;
        if (likely(s && !aged && current_next(h, from)))
            return slab_pop(h->bin[from].open.first);
        return alloc_refilled(h, class, aged);
    }
    return slab_pop(s);
}

void *heap_alloc_aligned(struct heap *h, size_t bytes, size_t align)
{
    if (align <= SIZE_STEP)
        return heap_alloc(h, bytes);
    if (bytes > SIZE_SMALL_MAX || align > SIZE_SMALL_MAX)
        return large_alloc(h, bytes, align, false);
    for (unsigned class = size_class(bytes > align ? bytes : align); class < SIZE_CLASSES; class ++)
        if ((size_of_class(class) & (align - 1)) == 0)
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

/* Where the heap has slabs of the class itself, it may take this one over, and blocks come one by one from many slabs: at once; so they go
 * under pressure. Else they wait for others of the same slab, which is the only one of its class that waits with them. */
static void free_stray(struct heap *h, struct slab *s, void *block)
{
    struct strays *strays = &h->strays[s->class];
    const struct bin *b = &h->bin[s->class];
    bool at_once = b->open.n + b->held.n > 0 || policy_level() >= PRESSURE_HIGH;
    if (unlikely(strays->first == block))
        heap_error("free", block);
    if (strays->first && (at_once || slab_of(strays->first) != s))
        strays_send(h, strays);
    if (at_once)
        hand_over_one(h, s, block);
    else if (strays_add(strays, block, s->block_bytes))
        strays_send(h, strays);
}

void heap_send_strays(struct heap *h, struct heap *from)
{
    for (unsigned class = 0; class < SIZE_CLASSES; class ++)
        strays_send(h, &from->strays[class]);
}

void heap_free_slowly(struct heap *h, struct slab *s, void *block)
{
    if (s->class == SLAB_LARGE)
        large_free(h, s);
    else if (h && load_relaxed(&s->owner) == h)
        heap_push(h, s, block);
    else if (h)
        free_stray(h, s, block);
    else
        hand_over_one(h, s, block);
}

/* ---- giving up what is not needed ---- */

/* Slabs that are held, if they are to leave or others have freed blocks of them: into the bin, where they are looked at next. */
static void held_part(struct heap *h, unsigned class, bool leave)
{
    for (struct slab *s = h->bin[class].held.first, *next; s; s = next) {
        next = s->next;
        if (!leave && remote_count(load_relaxed(&s->remote)) == 0)
            continue;
        unhold(h, s);
        bin_link(h, s);
    }
}

static void heap_part(struct heap *h, bool leave)
{
    for (unsigned class = 0; class < SIZE_CLASSES; class ++) {
        strays_send(h, &h->strays[class]);
        held_part(h, class, leave);
        for (struct slab *s = h->bin[class].open.first, *next; s; s = next) {
            next = s->next;
            slab_part(h, s, leave);
        }
    }
    for (unsigned i = 0; i < HEAP_SPARE_SLICES; i++)
        for (struct spares *spare = &h->spare[i]; spare->n > 0; spare->n--) {
            struct slab *s = spare->runs[spare->n - 1];
            source_give(macro_of(s)->source, s);
        }
    large_trim(h);
}

/* What is kept is not looked at: it is about to be used. */
void heap_give_empty(struct heap *h)
{
    for (unsigned class = 0; class < SIZE_CLASSES; class ++) {
        struct slab *s = h->bin[class].open.first;
        if (!s || slab_out(s) > 0)
            continue;
        bin_unlink(h, s);
        s->owner = NULL;
        (void)source_put(macro_of(s)->source, s);
    }
    for (unsigned i = 0; i < HEAP_SPARE_SLICES; i++)
        while (h->spare[i].n > 0) {
            struct slab *s = h->spare[i].runs[--h->spare[i].n];
            (void)source_put(macro_of(s)->source, s);
        }
    while (h->n_kept > 0) {
        struct slab *s = h->kept[--h->n_kept];
        (void)source_put(macro_of(s)->source, s);
    }
}

void heap_trim(struct heap *h)
{
    heap_part(h, false);
}

void heap_leave(struct heap *h)
{
    heap_part(h, true);
    h->sharing = h->grown = 0;
    for (unsigned class = 0; class < SIZE_CLASSES; class ++)
        h->bin[class].open.begun = 0;
}

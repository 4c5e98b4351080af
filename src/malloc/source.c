/* source.c: see source.h. */
#include "malloc/source.h"

#include "malloc/exchange.h"
#include "malloc/heap.h"
#include "malloc/huge.h"
#include "malloc/node.h"
#include "malloc/os.h"
#include "malloc/policy.h"
#include "malloc/settings.h"
#include "malloc/spread.h"
#include "malloc/words.h"

/* Full macro-blocks may have huge pages, from so many on. A few slices are left over in most: slabs seldom fit together without a rest. */
enum { THP_MACROS = 32, THP_FREE_MAX = 7 };

/* As long as no more than this part of what is in use is free and has memory, that is spared. */
enum { SPARED_PART = 4 };

static void begin_anew(struct lock *l);

/* All zero until it is needed: what the loader would have to fill in is a page that every program has. */
struct source source_main;

/* Of further nodes, and for more threads of one; the first one that is begun is source_main. */
struct source sources_more[NODE_MAX - 1];
static struct source *sources[NODE_MAX]; /* by node */
unsigned sources_n = 1;                  /* source_main, and those of the array */

/* Before it has its first macro-block: who finds it locked in a child, and not ready, need not begin anew. */
static void make_ready(struct source *s)
{
    s->lock.stale = begin_anew;
    s->keep_limit = SOURCE_KEEP_MIN;
    store_relaxed(&s->keep_share, SOURCE_KEEP_SHARE);
    fence_signal();
}

static void begin(struct source *s, unsigned node)
{
    s->begun = 1;
    s->node = node;
    make_ready(s);
}

void source_begin(unsigned node)
{
    bool first = sources[node] == NULL && source_main.begun == 0;
    struct source *s = first ? &source_main : &sources_more[sources_n - 1];
    begin(s, node);
    sources[node] = s;
    sources_n += !first;
}

/* Who has the lock of source_main finds that there is one, or not: exchange.c. */
struct source *source_add(unsigned node)
{
    if (sources_n > NODE_MAX - 1)
        return NULL;
    struct source *s = &sources_more[sources_n - 1];
    begin(s, node);
    lock_take(&source_main.lock);
    store_release(&sources_n, sources_n + 1);
    lock_drop(&source_main.lock);
    return s;
}

struct source *source_of(unsigned node)
{
    return node < NODE_MAX && sources[node] ? sources[node] : &source_main;
}

struct source *source_at(unsigned i)
{
    return i == 0 ? &source_main : i < load_acquire(&sources_n) ? &sources_more[i - 1] : NULL;
}

unsigned source_number(const struct source *s)
{
    return s == &source_main ? 0 : (unsigned)(s - sources_more) + 1;
}

/* ---- macro-blocks; with the lock ---- */

/* In a child that was forked while somebody held the lock: what the parent had may be half changed, so it is left as it is. Its blocks
 * can be freed, and its slabs used by the heap that has them; but their slices are not given out again. */
static void begin_anew(struct lock *l)
{
    struct source *s = (struct source *)((char *)l - offsetof(struct source, lock));
    *s = (struct source){
        .lock = s->lock,
        .node = s->node,
        .begun = s->begun,
        .generation = s->generation + 1,
        .keep_share = SOURCE_KEEP_SHARE,
        .keep_limit = SOURCE_KEEP_MIN,
    };
}

void source_empty_link(struct source *s, struct macro *m)
{
    m->prev_empty = NULL;
    m->next_empty = s->empty;
    if (s->empty)
        s->empty->prev_empty = m;
    s->empty = m;
    s->n_empty++;
}

void source_empty_unlink(struct source *s, struct macro *m)
{
    if (m->prev_empty)
        m->prev_empty->next_empty = m->next_empty;
    else
        s->empty = m->next_empty;
    if (m->next_empty)
        m->next_empty->prev_empty = m->prev_empty;
    s->n_empty--;
}

void source_macro_join(struct source *s, struct macro *m)
{
    if (s->keep_share == 0)
        make_ready(s);
    m->source = s;
    m->generation = s->generation;
    m->class = SLAB_UNUSED;
    m->next = s->macros;
    if (s->macros)
        s->macros->prev = m;
    s->macros = m;
    s->n_macros++;
    s->total_macros++;
}

/* 2 MiB become a macro-block, of which the first `dirty` bytes were used before; its descriptors are zero. */
static struct macro *macro_begin(struct source *s, struct macro *m, size_t dirty)
{
    if (!map_set(m, MACRO_BYTES, MAP_MACRO)) {
        os_unmap(m, MACRO_BYTES);
        return NULL;
    }
    if (malloc_settings.thp == THP_ALWAYS && os_huge_page(m, MACRO_BYTES, true))
        m->huge_page = 1;
    if (unlikely(node_many))
        node_prefer(m, MACRO_BYTES, s->node);
    source_macro_join(s, m);
    if (dirty > 0)
        bits_store(m->dirty, bits_run(0, (unsigned)((dirty + SLICE_BYTES - 1) >> SLICE_SHIFT)));
    runs_insert(s, m, 1, MACRO_SLICES_USABLE);
    source_empty_link(s, m);
    return m;
}

static struct macro *macro_new(struct source *s)
{
    struct macro *m = os_map_node(MACRO_BYTES, MACRO_BYTES, s->node);
    return m ? macro_begin(s, m, 0) : NULL;
}

/* Of what huge blocks left. Programs without any do not come to where that is. The lock is free meanwhile. */
static struct macro *macro_exchange(struct source *s)
{
    uint64_t used, kept;
    size_t dirty;
    huge_held(&used, &kept);
    if (likely(used + kept == 0))
        return NULL;
    lock_drop(&s->lock);
    struct macro *m = exchange_unit(&dirty);
    lock_take(&s->lock);
    return m ? macro_begin(s, m, dirty) : NULL;
}

void source_macro_leave(struct source *s, struct macro *m)
{
    source_empty_unlink(s, m);
    runs_remove(s, m, 1, MACRO_SLICES_USABLE);
    if (m->prev)
        m->prev->next = m->next;
    else
        s->macros = m->next;
    if (m->next)
        m->next->prev = m->prev;
    s->n_macros--;
    s->total_unmapped++;
    map_set(m, MACRO_BYTES, MAP_NONE);
}

/* Slices that were free are a slab's from now on. */
static inline void slices_count(struct source *s, struct macro *m, unsigned n)
{
    store_relaxed(&s->n_used, s->n_used + n);
    if (s->n_used > s->n_peak)
        s->n_peak = s->n_used;
    /* Full, in a process that has many: the kernel may put it onto one page in its own time. */
    if (unlikely(m->n_free <= THP_FREE_MAX) && malloc_settings.thp == THP_DENSE && !m->huge_page &&
        s->n_macros >= THP_MACROS && !s->no_huge_pages) {
        m->huge_page = os_huge_page(m, MACRO_BYTES, true);
        s->no_huge_pages = !m->huge_page;
    }
}

/* Any of them. Which were dirty, from bit 0 on. */
static slice_bits slices_use(struct source *s, struct macro *m, unsigned first, unsigned n)
{
    slice_bits run = bits_run(first, n), had = bits_of(m->dirty) & run;
    if (m->n_free == MACRO_SLICES_USABLE)
        source_empty_unlink(s, m);
    runs_remove(s, m, first, n);
    if (had != run) {
        bits_store(m->dirty, bits_of(m->dirty) | run);
        source_missed(s, bits_count(run & ~had));
    }
    slices_count(s, m, n);
    return had >> first;
}

/* The other way round. */
static inline void slices_free(struct source *s, struct macro *m, unsigned first, unsigned n)
{
    runs_give(s, m, first, n);
    store_relaxed(&s->n_used, s->n_used - n);
    if (m->n_free == MACRO_SLICES_USABLE)
        source_empty_link(s, m);
}

/* ---- runs ---- */

/* No free run has memory, or none is long enough (not `clean`): a macro-block of what huge blocks left, rather than that this has to go for one
 * without memory; else that one; else a new macro-block. Once the kernel has no more, what is free is looked through. */
static struct macro *find_otherwise(struct source *s, unsigned slices, unsigned align, bool clean,
                                    unsigned *ret_first)
{
    struct macro *m = NULL;
    if (!clean || policy_would_yield(MACRO_BYTES, false))
        m = macro_exchange(s);
    if (!m && runs_find(s, slices, align, false, &m, ret_first))
        return m;
    if (!m)
        m = macro_new(s);
    *ret_first = align > 1 ? align : 1;
    return m || runs_find(s, slices, align, true, &m, ret_first) ? m : NULL;
}

/* Anywhere, with the lock. NULL: the kernel gives no memory. */
static __attribute__((noinline)) struct slab *take_anywhere(struct source *s, unsigned slices,
                                                            unsigned align_slices,
                                                            slice_bits *ret_dirty)
{
    struct macro *m = NULL;
    unsigned first = 0;
    bool found = runs_find(s, slices, align_slices, false, &m, &first);
    if (!found || !(bits_of(m->dirty) & bits_run(first, slices)))
        m = find_otherwise(s, slices, align_slices, found, &first);
    if (unlikely(!m))
        return NULL;
    *ret_dirty = slices_use(s, m, first, slices);
    return macro_slab(m, first);
}

/* Where there is memory, as a rule; NULL: there is none, and then it is looked for anywhere. */
static inline struct slab *take_dirty(struct source *s, unsigned slices)
{
    struct slab *slab = runs_take(s, slices);
    if (unlikely(!slab))
        return NULL;
    struct macro *m = macro_of(slab);
    if (unlikely(m->n_free + slices == MACRO_SLICES_USABLE))
        source_empty_unlink(s, m);
    slices_count(s, m, slices);
    return slab;
}

/* Where there is none, as long as there is little of it elsewhere. */
static struct slab *take_clean(struct source *s, unsigned slices)
{
    if (s->n_dirty_free > s->n_used / SPARED_PART || s->n_dirty_free > SOURCE_KEEP_MIN / 4)
        return NULL;
    struct slab *slab = runs_find_clean(s, slices);
    if (slab)
        (void)slices_use(s, macro_of(slab), slab_slice(slab), slices);
    return slab;
}

/* With the lock: whoever has it can walk from slab to slab. */
static inline void run_taken(struct slab *slab, unsigned slices)
{
    slab->slices = (uint8_t)slices;
    slab->back = 0;
    slab->owner = NULL;
    slab->class = SLAB_UNUSED;
}

/* What other sources have free, with memory, rather than that this one grows. But for a little, which is for their own threads; and not of one
 * that somebody is at. */
static __attribute__((noinline)) struct slab *take_beside(struct source *s, unsigned slices)
{
    struct slab *slab = NULL;
    unsigned tries = load_relaxed(&sources_n) - 1;
    for (; !slab && tries > 0; tries--) {
        struct source *other = spread_beside(s);
        if (!other || load_relaxed(&other->n_dirty_free) < slices + SPREAD_LEFT ||
            !lock_try(&other->lock))
            continue;
        slab = take_dirty(other, slices);
        if (slab)
            run_taken(slab, slices);
        lock_drop(&other->lock);
    }
    return slab;
}

/* The kernel has no more: what any other has free. */
static __attribute__((noinline)) bool take_last(const struct source *s, unsigned slices,
                                                unsigned align_slices, struct span *ret)
{
    struct source *other;
    struct macro *m;
    unsigned first;
    ret->slab = NULL;
    for (unsigned i = 0; !ret->slab && (other = source_at(i)); i++) {
        if (other == s)
            continue;
        lock_take(&other->lock);
        if (runs_find(other, slices, align_slices, true, &m, &first)) {
            ret->dirty = slices_use(other, m, first, slices);
            ret->slab = macro_slab(m, first);
            run_taken(ret->slab, slices);
        }
        lock_drop(&other->lock);
    }
    return ret->slab != NULL;
}

bool source_take(struct source *s, unsigned slices, unsigned align_slices, struct span *ret)
{
    if (unlikely(slices + align_slices > MACRO_SLICES))
        return false;
    bool grown = false;
    struct slab *slab = NULL;
    source_lock(s);
    ret->dirty = ~(slice_bits)0;
    if (unlikely(align_slices == SOURCE_LITTLE)) {
        slab = take_clean(s, slices);
        align_slices = 1;
        grown = slab != NULL;
        ret->dirty = grown ? 0 : ret->dirty;
    }
    if (!slab && align_slices == 1)
        slab = take_dirty(s, slices);
    if (unlikely(!slab && align_slices == 1 && load_relaxed(&sources_n) > 1)) {
        lock_drop(&s->lock);
        ret->slab = take_beside(s, slices);
        if (ret->slab)
            return true;
        source_lock(s);
    }
    if (unlikely(!slab)) {
        slab = take_anywhere(s, slices, align_slices, &ret->dirty);
        if (!slab) {
            lock_drop(&s->lock);
            return take_last(s, slices, align_slices, ret);
        }
        grown = ret->dirty != bits_run(0, slices);
    }
    run_taken(slab, slices);
    lock_drop(&s->lock);
    if (grown)
        policy_grown(false);
    ret->slab = slab;
    return true;
}

bool source_put(struct source *s, struct slab *slab)
{
    struct macro *m = macro_of(slab);
    words_detach(slab);
    slab->class = SLAB_UNUSED;
    bool due = false;
    source_lock(s);
    if (source_has(s, slab)) {
        slices_free(s, m, slab_slice(slab), slab->slices);
        due = source_age_due(s);
    }
    lock_drop(&s->lock);
    return due;
}

void source_give(struct source *s, struct slab *slab)
{
    if (source_put(s, slab))
        source_age(s);
}

bool source_resize(struct source *s, struct slab *slab, unsigned slices, uint64_t asked,
                   slice_bits *ret_dirty)
{
    struct macro *m = macro_of(slab);
    unsigned first = slab_slice(slab), had = slab->slices;
    *ret_dirty = 0;
    if (first + slices > MACRO_SLICES)
        return false;
    lock_take(&s->lock);
    bool done = source_has(s, slab), grown = false;
    if (!done) {
        lock_drop(&s->lock);
        return false;
    }
    if (slices > had) {
        slice_bits more = bits_run(first + had, slices - had);
        done = (bits_of(m->free) & more) == more;
        if (done) {
            slice_bits dirty = slices_use(s, m, first + had, slices - had);
            *ret_dirty = dirty << had;
            grown = dirty != bits_run(0, slices - had);
        }
    } else if (slices < had) {
        slices_free(s, m, first + slices, had - slices);
    }
    if (done) {
        slab->slices = (uint8_t)slices;
        slab->asked = asked;
    }
    bool due = slices < had && source_age_due(s);
    lock_drop(&s->lock);
    if (due)
        source_age(s);
    if (grown)
        policy_grown(false);
    return done;
}

/* ---- pools ---- */

void source_pool_link(struct source *s, struct slab *slab)
{
    unsigned class = slab->class;
    if (!source_has(s, slab))
        return;
    slab->next = NULL;
    slab->prev = s->pool_last[class];
    if (slab->prev)
        slab->prev->next = slab;
    else
        s->pool[class] = slab;
    s->pool_last[class] = slab;
    add_relaxed(&s->pooled[class], 1);
}

void source_pool_unlink(struct source *s, struct slab *slab)
{
    unsigned class = slab->class;
    if (!source_has(s, slab))
        return;
    if (slab->prev)
        slab->prev->next = slab->next;
    else
        s->pool[class] = slab->next;
    if (slab->next)
        slab->next->prev = slab->prev;
    else
        s->pool_last[class] = slab->prev;
    sub_relaxed(&s->pooled[class], 1);
}

/* source.c: see source.h. */
#include "malloc/source.h"

#include <string.h>

#include "base/clock.h"
#include "malloc/heap.h"
#include "malloc/node.h"
#include "malloc/os.h"
#include "malloc/policy.h"
#include "malloc/pressure.h"
#include "malloc/settings.h"
#include "malloc/words.h"

enum {
    KEEP_MIN = (8 << 20) / SLICE_BYTES, /* slices that are kept in any case, without pressure */
    KEEP_SHARE = 3,                     /* eighths of the peak */
    KEEP_SHARE_MAX = 8,
    KEEP_HIGH = (1 << 20) / SLICE_BYTES, /* under high pressure */
    POLICY_CALLS = 64,                   /* between two looks at the clock */
    POLICY_MS = 50,
    EMPTY_KEPT = 2,    /* macro-blocks without a slab that stay mapped, at least */
    PLACES_TRIED = 32, /* in one macro-block */
    DIRTY_TRIES = 16,  /* macro-blocks that are asked for dirty slices first */
    THP_MACROS = 32,   /* from so many on, full ones may have huge pages */
};

static void begin_anew(struct lock *l);

struct source source_main = {
    .lock = {.stale = begin_anew},
    .keep_share = KEEP_SHARE,
    .keep_limit = KEEP_MIN,
};

/* Of further nodes; the first one that is begun is source_main. */
struct source sources_more[NODE_MAX - 1];
static struct source *sources[NODE_MAX]; /* by node */
unsigned sources_n = 1;                  /* source_main, and those of the array */

void source_begin(unsigned node)
{
    bool first = sources[node] == NULL && source_main.begun == 0;
    struct source *s = first ? &source_main : &sources_more[sources_n - 1];
    s->begun = 1;
    s->lock.stale = begin_anew;
    s->node = node;
    s->keep_share = KEEP_SHARE;
    s->keep_limit = KEEP_MIN;
    sources[node] = s;
    sources_n += !first;
}

struct source *source_of(unsigned node)
{
    return node < NODE_MAX && sources[node] ? sources[node] : &source_main;
}

struct source *source_at(unsigned i)
{
    return i == 0 ? &source_main : i < sources_n ? &sources_more[i - 1] : NULL;
}

/* ---- bits of slices ---- */

static inline slice_bits bits_of(const uint64_t *words)
{
    return (slice_bits)words[1] << 64 | words[0];
}

static inline void bits_store(uint64_t *words, slice_bits bits)
{
    words[0] = (uint64_t)bits;
    words[1] = (uint64_t)(bits >> 64);
}

/* Where there is no instruction for it, the compiler's library would be called, at the far end of our code. */
static inline unsigned word_count(uint64_t word)
{
    word -= word >> 1 & UINT64_C(0x5555555555555555);
    word = (word & UINT64_C(0x3333333333333333)) + (word >> 2 & UINT64_C(0x3333333333333333));
    word = (word + (word >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (unsigned)(word * UINT64_C(0x0101010101010101) >> 56);
}

static inline unsigned bits_count(slice_bits bits)
{
    return word_count((uint64_t)bits) + word_count((uint64_t)(bits >> 64));
}

static inline unsigned bits_first(slice_bits bits)
{
    uint64_t low = (uint64_t)bits;
    return low ? (unsigned)__builtin_ctzll(low)
               : 64 + (unsigned)__builtin_ctzll((uint64_t)(bits >> 64));
}

static inline slice_bits bits_run(unsigned first, unsigned n)
{
    slice_bits run = n >= MACRO_SLICES ? ~(slice_bits)0 : ((slice_bits)1 << n) - 1;
    return run << first;
}

/* Where runs of at least n begin, at any place. */
static slice_bits bits_runs(slice_bits bits, unsigned n)
{
    for (unsigned have = 1; have < n && bits;) {
        unsigned more = have < n - have ? have : n - have;
        bits &= bits >> more;
        have += more;
    }
    return bits;
}

static slice_bits bits_aligned(unsigned align)
{
    slice_bits aligned = 1;
    for (unsigned step = align; step < MACRO_SLICES; step *= 2)
        aligned |= aligned << step;
    return aligned;
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
        .keep_share = KEEP_SHARE,
        .keep_limit = KEEP_MIN,
    };
}

static inline bool is_ours(const struct source *s, const struct slab *slab)
{
    return likely(macro_of(slab)->generation == s->generation);
}

static void open_link(struct source *s, struct macro *m)
{
    m->open = 1;
    m->prev_open = NULL;
    m->next_open = s->open;
    if (s->open)
        s->open->prev_open = m;
    s->open = m;
}

static void open_unlink(struct source *s, struct macro *m)
{
    m->open = 0;
    if (m->prev_open)
        m->prev_open->next_open = m->next_open;
    else
        s->open = m->next_open;
    if (m->next_open)
        m->next_open->prev_open = m->prev_open;
}

static struct macro *macro_new(struct source *s)
{
    struct macro *m = os_map(MACRO_BYTES, MACRO_BYTES);
    if (!m)
        return NULL;
    if (!map_set(m, MACRO_BYTES, MAP_MACRO)) {
        os_unmap(m, MACRO_BYTES);
        return NULL;
    }
    if (malloc_settings.thp == THP_ALWAYS && os_huge_page(m, MACRO_BYTES, true))
        m->huge_page = 1;
    if (unlikely(node_many))
        node_prefer(m, MACRO_BYTES, s->node);
    m->source = s;
    m->generation = s->generation;
    m->class = SLAB_UNUSED;
    bits_store(m->free, ~(slice_bits)1);
    m->n_free = m->run_max = MACRO_SLICES_USABLE;
    m->next = s->macros;
    if (s->macros)
        s->macros->prev = m;
    s->macros = m;
    s->n_macros++;
    s->total_macros++;
    open_link(s, m);
    return m;
}

/* Nobody has a slice of it. */
static void macro_unmap(struct source *s, struct macro *m)
{
    open_unlink(s, m);
    if (m->prev)
        m->prev->next = m->next;
    else
        s->macros = m->next;
    if (m->next)
        m->next->prev = m->prev;
    s->n_macros--;
    s->n_dirty_free -= m->n_dirty_free;
    s->total_unmapped++;
    map_set(m, MACRO_BYTES, MAP_NONE);
    os_unmap(m, MACRO_BYTES);
}

/* Slices that were free are a slab's from now on, or the other way round. */
static void slices_use(struct source *s, struct macro *m, slice_bits run)
{
    unsigned n = bits_count(run), dirty = bits_count(run & bits_of(m->dirty));
    bits_store(m->free, bits_of(m->free) & ~run);
    m->n_free -= n;
    m->n_dirty_free -= dirty;
    s->n_dirty_free -= dirty;
    s->n_used += n;
    if (s->n_used > s->n_peak)
        s->n_peak = s->n_used;
    if (s->n_purged > s->n_refaulted)
        s->n_refaulted += n - dirty;
    bits_store(m->dirty, bits_of(m->dirty) | run);
    if (m->n_free == 0) {
        open_unlink(s, m);
        /* Full, in a process that has many: the kernel may put it onto one page in its own time. */
        if (malloc_settings.thp == THP_DENSE && !m->huge_page && s->n_macros >= THP_MACROS)
            m->huge_page = os_huge_page(m, MACRO_BYTES, true);
    }
}

static void slices_free(struct source *s, struct macro *m, slice_bits run)
{
    unsigned n = bits_count(run);
    bits_store(m->free, bits_of(m->free) | run);
    m->n_free += n;
    m->n_dirty_free += n;
    m->run_max = MACRO_SLICES_USABLE; /* not known */
    s->n_dirty_free += n;
    s->n_used -= n;
    if (!m->open)
        open_link(s, m);
}

/* ---- giving memory back ---- */

/* Of one macro-block: its free slices with memory, which nobody can take meanwhile: the kernel is asked without the lock. It
 * stays in the list of the open ones, wherever it is there. */
static void macro_purge(struct source *s, struct macro *m)
{
    slice_bits free = bits_of(m->free);
    slice_bits wanted = m->huge_page ? free : free & bits_of(m->dirty), purged = 0;
    unsigned n = bits_count(wanted), dirty = bits_count(wanted & bits_of(m->dirty));
    bits_store(m->free, free & ~wanted);
    m->n_free -= n;
    m->n_dirty_free -= dirty;
    s->n_dirty_free -= dirty;
    bits_store(m->purging, wanted);
    bool huge_page = m->huge_page;
    m->huge_page = 0;
    lock_drop(&s->lock);
    if (huge_page)
        os_huge_page(m, MACRO_BYTES, false); /* or the kernel would fill it up again */
    for (slice_bits rest = wanted; rest;) {
        unsigned first = bits_first(rest);
        slice_bits above = ~(rest >> first);
        unsigned length = above ? bits_first(above) : MACRO_SLICES - first;
        slice_bits run = bits_run(first, length);
        if (os_purge((char *)m + ((size_t)first << SLICE_SHIFT), (size_t)length << SLICE_SHIFT))
            purged |= run;
        rest &= ~run;
    }
    lock_take(&s->lock);
    bits_store(m->purging, 0);
    unsigned left = bits_count(wanted & bits_of(m->dirty) & ~purged);
    bits_store(m->free, bits_of(m->free) | wanted);
    bits_store(m->dirty, bits_of(m->dirty) & ~purged);
    m->n_free += n;
    m->n_dirty_free += left;
    m->run_max = MACRO_SLICES_USABLE;
    s->n_dirty_free += left;
    s->n_purged += dirty - left;
    s->total_purged += dirty - left;
    if (!m->open)
        open_link(s, m);
}

/* Slices that a thread of the parent was purging are free again, purged or not. */
static void macro_fork_child(struct source *s, struct macro *m)
{
    slice_bits run = bits_of(m->purging);
    unsigned dirty = bits_count(run & bits_of(m->dirty));
    if (!run)
        return;
    bits_store(m->purging, 0);
    bits_store(m->free, bits_of(m->free) | run);
    m->n_free += bits_count(run);
    m->n_dirty_free += dirty;
    m->run_max = MACRO_SLICES_USABLE;
    s->n_dirty_free += dirty;
    if (!m->open)
        open_link(s, m);
}

static void purge_forget(struct source *s)
{
    for (struct macro *m = s->purging ? s->macros : NULL; m; m = m->next)
        macro_fork_child(s, m);
    s->purging = 0;
}

/* With the lock: is somebody at it? One of the process that we were forked from is not. */
static bool is_purging(struct source *s)
{
    if (likely(s->purging == 0))
        return false;
    if (s->purging == lock_process())
        return true;
    purge_forget(s);
    return false;
}

void source_fork_child(struct source *s)
{
    lock_fork_drop(&s->lock, true);
    purge_forget(s);
}

/* Until no more than that is left. With the lock, which it gives meanwhile. */
static void purge(struct source *s, uint64_t keep)
{
    if (is_purging(s))
        return;
    s->purging = lock_process();
    s->total_purges++;
    unsigned empty = 0;
    struct macro *m = s->open;
    while (m && m->next_open)
        m = m->next_open; /* the one that was opened longest ago */
    while (m) {
        if (s->n_dirty_free > keep && m->n_dirty_free > 0)
            macro_purge(s, m);
        struct macro *before = m->prev_open; /* read now: others had the lock meanwhile */
        bool unused = m->n_free == MACRO_SLICES_USABLE;
        empty += unused;
        if (unused && empty > EMPTY_KEPT + s->n_macros / 8)
            macro_unmap(s, m);
        m = before;
    }
    s->purging = 0;
}

/* What may be kept now. With the lock. */
static void keep_limit_set(struct source *s)
{
    uint64_t now = clock_monotonic_coarse_ns() / NS_PER_MS;
    unsigned level = policy_level();
    if (now - s->policy_ms >= POLICY_MS) {
        uint64_t steps = (now - s->policy_ms) / POLICY_MS;
        for (uint64_t i = 0; i < steps && i < 128; i++)
            s->n_peak -= (s->n_peak - s->n_used) / 16;
        s->policy_ms = now;
        /* What had to be fetched again at once should have been kept. */
        if (s->n_purged > 0 && s->n_refaulted > s->n_purged / 4)
            s->keep_share = s->keep_share * 2 < KEEP_SHARE_MAX ? s->keep_share * 2 : KEEP_SHARE_MAX;
        else if (s->keep_share > KEEP_SHARE)
            s->keep_share--;
        s->total_refaulted += s->n_refaulted;
        s->n_purged = s->n_refaulted = 0;
    }
    uint64_t by_peak = s->n_peak * s->keep_share / 8;
    /* The least that is kept comes on top of a small share, and counts less and less in a larger one. */
    uint64_t with_least = KEEP_MIN + by_peak - by_peak / 16;
    s->keep_limit = by_peak > with_least ? by_peak : with_least;
    uint64_t keep_bytes = load_relaxed(&malloc_settings.keep_bytes);
    if (keep_bytes != SETTING_AUTO)
        s->keep_limit = keep_bytes / SLICE_BYTES;
    if (level == PRESSURE_SOME && s->keep_limit > KEEP_MIN)
        s->keep_limit = KEEP_MIN + (s->keep_limit - KEEP_MIN) / 4;
    else if (level == PRESSURE_HIGH && s->keep_limit > KEEP_HIGH)
        s->keep_limit = KEEP_HIGH;
    else if (level == PRESSURE_CRITICAL)
        s->keep_limit = 0;
}

/* After slices came back: is it time to look at the policy? Not for who finds somebody at it. With the lock. */
static bool settle_due(struct source *s)
{
    return (++s->calls >= POLICY_CALLS || s->n_dirty_free > s->keep_limit) && !is_purging(s);
}

/* Files may be read. */
void source_age(struct source *s)
{
    policy_tick(load_relaxed(&s->n_dirty_free) > KEEP_MIN);
    lock_take(&s->lock);
    s->calls = 0;
    keep_limit_set(s);
    if (s->n_dirty_free > s->keep_limit)
        purge(s, s->keep_limit - s->keep_limit / 8);
    lock_drop(&s->lock);
}

bool source_trim(struct source *s)
{
    lock_take(&s->lock);
    bool any = s->n_dirty_free > 0;
    purge(s, 0);
    lock_drop(&s->lock);
    return any;
}

void source_yield(struct source *s, uint64_t bytes)
{
    uint64_t slices = bytes / SLICE_BYTES;
    lock_take(&s->lock);
    if (slices > 0)
        purge(s, s->n_dirty_free > slices ? s->n_dirty_free - slices : 0);
    lock_drop(&s->lock);
}

bool source_shrink(struct source *s)
{
    bool any = false;
    lock_take(&s->lock);
    for (struct macro *m = s->open, *next; m; m = next) {
        next = m->next_open;
        if (m->n_free == MACRO_SLICES_USABLE) {
            macro_unmap(s, m);
            any = true;
        }
    }
    lock_drop(&s->lock);
    return any;
}

/* ---- runs ---- */

/* Of several places for a run, the one with most memory already there. */
static unsigned run_dirtiest(const struct macro *m, slice_bits places, unsigned n)
{
    slice_bits dirty = bits_of(m->free) & bits_of(m->dirty);
    unsigned most = 0, best = bits_first(places);
    for (unsigned tried = 0; dirty && places && tried < PLACES_TRIED; tried++) {
        unsigned first = bits_first(places), has = bits_count(dirty & bits_run(first, n));
        if (has > most) {
            most = has;
            best = first;
        }
        places &= places - 1;
    }
    return best;
}

/* A run in one of the open macro-blocks, preferably of slices that have memory. */
static struct macro *run_find(struct source *s, unsigned n, unsigned align, unsigned *ret_first)
{
    slice_bits aligned = align > 1 ? bits_aligned(align) : ~(slice_bits)0;
    struct macro *any = NULL;
    slice_bits any_runs = 0;
    unsigned tries = 0;
    for (struct macro *m = s->open; m; m = m->next_open) {
        if (m->run_max < n)
            continue;
        slice_bits free = bits_of(m->free), runs = bits_runs(free, n);
        if (!runs) {
            m->run_max = n - 1;
            continue;
        }
        runs &= aligned;
        if (!runs)
            continue;
        slice_bits dirty = m->n_dirty_free >= n ? bits_runs(free & bits_of(m->dirty), n) & runs : 0;
        if (dirty) {
            *ret_first = bits_first(dirty);
            return m;
        }
        if (!any) {
            any = m;
            any_runs = runs;
        }
        if (s->n_dirty_free < n || ++tries == DIRTY_TRIES)
            break;
    }
    if (any)
        *ret_first = run_dirtiest(any, any_runs, n);
    return any;
}

bool source_take(struct source *s, unsigned slices, unsigned align_slices, struct span *ret)
{
    unsigned first = 0;
    if (unlikely(slices + align_slices > MACRO_SLICES))
        return false;
    lock_take(&s->lock);
    struct macro *m = run_find(s, slices, align_slices, &first);
    if (!m && (m = macro_new(s)) != NULL)
        first = align_slices > 1 ? align_slices : 1;
    if (!m) {
        lock_drop(&s->lock);
        return false;
    }
    slice_bits run = bits_run(first, slices);
    bool grown = run & ~bits_of(m->dirty);
    ret->dirty = (bits_of(m->dirty) & run) >> first;
    slices_use(s, m, run);
    /* With the lock: whoever has it can walk from slab to slab. */
    struct slab *slab = macro_slab(m, first);
    slab->slices = (uint8_t)slices;
    slab->back = 0;
    slab->owner = NULL;
    slab->class = SLAB_UNUSED;
    lock_drop(&s->lock);
    if (grown)
        policy_grown(false);
    ret->slab = slab;
    return true;
}

void source_give(struct source *s, struct slab *slab)
{
    struct macro *m = macro_of(slab);
    slice_bits run = bits_run(slab_slice(slab), slab->slices);
    words_detach(slab);
    slab->class = SLAB_UNUSED;
    bool due = false;
    lock_take(&s->lock);
    if (is_ours(s, slab)) {
        slices_free(s, m, run);
        due = settle_due(s);
    }
    lock_drop(&s->lock);
    if (due)
        source_age(s);
}

bool source_resize(struct source *s, struct slab *slab, unsigned slices, slice_bits *ret_dirty)
{
    struct macro *m = macro_of(slab);
    unsigned first = slab_slice(slab), had = slab->slices;
    *ret_dirty = 0;
    if (first + slices > MACRO_SLICES)
        return false;
    lock_take(&s->lock);
    bool done = is_ours(s, slab);
    if (!done) {
        lock_drop(&s->lock);
        return false;
    }
    if (slices > had) {
        slice_bits more = bits_run(first + had, slices - had);
        done = (bits_of(m->free) & more) == more;
        if (done) {
            *ret_dirty = (bits_of(m->dirty) & more) >> first;
            slices_use(s, m, more);
        }
    } else if (slices < had) {
        slices_free(s, m, bits_run(first + slices, had - slices));
    }
    if (done)
        slab->slices = (uint8_t)slices;
    bool due = slices < had && settle_due(s);
    lock_drop(&s->lock);
    if (due)
        source_age(s);
    return done;
}

/* ---- pools ---- */

void source_pool_link(struct source *s, struct slab *slab)
{
    unsigned class = slab->class;
    if (!is_ours(s, slab))
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
    if (!is_ours(s, slab))
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

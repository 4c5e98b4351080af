/*
 * source_keep.c: what a source keeps of its free memory, and what it gives back to the kernel.
 *
 * The kernel is asked without the lock. Meanwhile the slices in question are nobody's: not free, and marked in `purging` of their
 * macro-block, so that it stays. One thread at a time is at it; in a child of fork() nobody is, and what is marked is free again.
 */
#include "base/clock.h"
#include "malloc/heap.h"
#include "malloc/os.h"
#include "malloc/policy.h"
#include "malloc/pressure.h"
#include "malloc/settings.h"
#include "malloc/source.h"
#include "malloc/spread.h"

enum {
    KEEP_SHARE_MAX = 8,                  /* eighths of the peak */
    KEEP_HIGH = (1 << 20) / SLICE_BYTES, /* under high pressure */
    POLICY_CALLS = 64,                   /* between two looks at the clock */
    POLICY_MS = 50,
    LESS_STEPS =
        8, /* of so many ms: what went is remembered for that long, and then less is kept */
    MISSED_PART = 8,   /* of the peak: if more went and is missed, more is kept at once */
    EMPTY_KEPT = 2,    /* macro-blocks without a slab that stay mapped, at least */
    BATCH = 16,        /* runs for which the kernel is asked between two looks at the lists */
    CUT_MIN = 16,      /* slices: no less is cut off a run that is longer than what has to go */
    REFUSED_MS = 1000, /* the kernel is left alone once it refused */
};

/* ---- runs go ---- */

struct going {
    struct macro *macro;
    slice_bits slices;
    bool huge_page; /* was asked for there */
};

/* Free slices become nobody's. */
static void take_out(struct source *s, struct macro *m, slice_bits slices)
{
    for (slice_bits rest = slices; rest;) {
        unsigned first = bits_first(rest), n = run_end(rest, first) - first;
        runs_remove(s, m, first, n);
        rest &= ~bits_run(first, n);
    }
    bits_store(m->purging, bits_of(m->purging) | slices);
}

/* And free again. */
static void put_back(struct source *s, struct macro *m, slice_bits slices)
{
    bits_store(m->purging, bits_of(m->purging) & ~slices);
    for (slice_bits rest = slices; rest;) {
        unsigned first = bits_first(rest), n = run_end(rest, first) - first;
        runs_insert(s, m, first, n);
        rest &= ~bits_run(first, n);
    }
    if (m->n_free == MACRO_SLICES_USABLE)
        source_empty_link(s, m);
}

/* The run that has been free for longest, or its end. With huge pages, all that is free in its macro-block: what has no memory of its own
 * has some as a part of those. */
static bool choose(struct source *s, uint64_t excess, struct going *g)
{
    unsigned slices;
    struct slab *oldest = runs_oldest(s, &slices);
    if (!oldest)
        return false;
    struct macro *m = macro_of(oldest);
    uint64_t cut = excess > CUT_MIN ? excess : CUT_MIN;
    unsigned n = slices < cut ? slices : (unsigned)cut;
    *g = (struct going){.macro = m,
                        .slices = bits_run(slab_slice(oldest) + slices - n, n),
                        .huge_page = m->huge_page};
    if (m->huge_page) {
        m->huge_page = 0;
        g->slices = bits_of(m->free);
    }
    if (m->n_free == MACRO_SLICES_USABLE)
        source_empty_unlink(s, m);
    take_out(s, m, g->slices);
    return true;
}

/* Those that the kernel took. */
static slice_bits give_back(const struct going *g)
{
    slice_bits done = 0;
    if (g->huge_page)
        os_huge_page(g->macro, MACRO_BYTES, false); /* or the kernel would fill it up again */
    for (slice_bits rest = g->slices; rest;) {
        unsigned first = bits_first(rest), length = run_end(rest, first) - first;
        slice_bits run = bits_run(first, length);
        if (os_purge((char *)g->macro + ((size_t)first << SLICE_SHIFT),
                     (size_t)length << SLICE_SHIFT))
            done |= run;
        rest &= ~run;
    }
    return done;
}

static uint64_t now_ms(void)
{
    return clock_monotonic_coarse_ns() / NS_PER_MS;
}

/* Memory that is locked (mlockall) stays, and a sandbox may not allow the call: whoever frees would ask again and again. */
static bool is_refused(const struct source *s)
{
    return unlikely(s->refused_ms != 0) && now_ms() - s->refused_ms < REFUSED_MS;
}

/* Some of them, until no more than `keep` is left. False: the kernel does not take them. */
static bool purge_some(struct source *s, uint64_t keep)
{
    struct going going[BATCH];
    slice_bits done[BATCH];
    unsigned n = 0;
    bool all = true, any = false;
    while (n < BATCH && s->n_dirty_free > keep && choose(s, s->n_dirty_free - keep, &going[n]))
        n++;
    lock_drop(&s->lock);
    for (unsigned i = 0; i < n; i++)
        done[i] = give_back(&going[i]);
    lock_take(&s->lock);
    for (unsigned i = 0; i < n; i++) {
        struct macro *m = going[i].macro;
        unsigned gone = bits_count(done[i] & bits_of(m->dirty));
        bits_store(m->dirty, bits_of(m->dirty) & ~done[i]);
        put_back(s, m, going[i].slices);
        s->n_purged += gone;
        s->total_purged += gone;
        all &= done[i] == going[i].slices;
        any |= done[i] != 0;
    }
    if (n > 0)
        s->refused_ms = any ? 0 : now_ms();
    return all && n > 0;
}

/* Macro-blocks without a slab, but for that many; as long as so many free slices have memory. */
static bool empty_unmap(struct source *s, uint64_t stay, uint64_t dirty)
{
    bool any = false;
    while (s->n_empty > stay && s->n_dirty_free >= dirty) {
        struct macro *m = s->empty;
        while (m->next_empty)
            m = m->next_empty;
        s->n_purged += m->n_dirty_free;
        s->total_purged += m->n_dirty_free;
        source_macro_leave(s, m);
        lock_drop(&s->lock);
        os_unmap(m, MACRO_BYTES);
        lock_take(&s->lock);
        any = true;
    }
    return any;
}

/* Slices that a thread of the parent was purging are free again, purged or not. */
static void purge_forget(struct source *s)
{
    for (struct macro *m = s->purging ? s->macros : NULL; m; m = m->next)
        if (bits_of(m->purging))
            put_back(s, m, bits_of(m->purging));
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

/* Until no more than that is left. First, empty macro-blocks that are too many are unmapped, as long as `dirty` free slices have memory. With
 * the lock, which it gives meanwhile. */
static void purge(struct source *s, uint64_t keep, uint64_t dirty)
{
    if (is_purging(s))
        return;
    s->purging = lock_process();
    s->total_purges++;
    uint64_t stay = EMPTY_KEPT + s->n_macros / 8;
    if (s->keep_share > SOURCE_KEEP_SHARE && stay < keep / MACRO_SLICES)
        stay = keep / MACRO_SLICES; /* it was missed */
    empty_unmap(s, stay, dirty);
    while (s->n_dirty_free > keep && purge_some(s, keep))
        ;
    s->purging = 0;
}

/* ---- how much is kept ---- */

static void keep_count_anew(struct source *s)
{
    s->total_refaulted += s->n_refaulted;
    s->n_purged = s->n_refaulted = 0;
}

/* What had to be fetched again should have been kept: then all is, for the time being. */
static void keep_all(struct source *s)
{
    store_relaxed(&s->keep_share, KEEP_SHARE_MAX);
    keep_count_anew(s);
    s->steps = 0;
}

/* What may be kept now. With the lock. True: some time has gone by. */
static bool keep_limit_set(struct source *s)
{
    uint64_t now = now_ms();
    unsigned level = policy_level();
    bool missed = s->n_purged > 0 && s->n_refaulted > s->n_purged / 4;
    bool later = now - s->policy_ms >= POLICY_MS;
    if (later) {
        uint64_t steps = (now - s->policy_ms) / POLICY_MS;
        for (uint64_t i = 0; i < steps && i < 128; i++)
            s->n_peak -= (s->n_peak - s->n_used) / 16;
        s->policy_ms = now;
        spread_forget(s, steps);
        s->steps += steps < LESS_STEPS ? (uint32_t)steps : LESS_STEPS;
        if (missed) {
            keep_all(s);
        } else if (s->steps >= LESS_STEPS) {
            store_relaxed(&s->keep_share, s->keep_share - (s->keep_share > SOURCE_KEEP_SHARE));
            keep_count_anew(s);
            s->steps = 0;
        }
    } else if (missed && s->n_purged > s->n_peak / MISSED_PART) {
        keep_all(s); /* so much of it that this is no time to wait */
    }
    uint64_t least = SOURCE_KEEP_MIN / spread_width(s);
    uint64_t by_peak = s->n_peak * s->keep_share / 8;
    /* The least that is kept comes on top of a small share, and counts less and less in a larger one. */
    uint64_t with_least = least + by_peak - by_peak / 16;
    s->keep_limit = by_peak > with_least ? by_peak : with_least;
    uint64_t keep_bytes = load_relaxed(&malloc_settings.keep_bytes);
    if (keep_bytes != SETTING_AUTO)
        s->keep_limit = keep_bytes / SLICE_BYTES;
    if (level == PRESSURE_SOME && s->keep_limit > least)
        s->keep_limit = least + (s->keep_limit - least) / 4;
    else if (level == PRESSURE_HIGH && s->keep_limit > KEEP_HIGH)
        s->keep_limit = KEEP_HIGH;
    else if (level == PRESSURE_CRITICAL)
        s->keep_limit = 0;
    return later;
}

bool source_age_due(struct source *s)
{
    return (++s->calls >= POLICY_CALLS || s->n_dirty_free > s->keep_limit) && !is_purging(s);
}

static bool age(struct source *s)
{
    lock_take(&s->lock);
    s->calls = 0;
    bool later = keep_limit_set(s);
    if (s->n_dirty_free > s->keep_limit && !is_refused(s))
        purge(s, s->keep_limit - s->keep_limit / 8, 0);
    if (is_refused(s))
        s->keep_limit = UINT32_MAX; /* until it is looked at again */
    lock_drop(&s->lock);
    return later;
}

/* Files may be read. The threads of another source may all be idle, or gone. */
void source_age(struct source *s)
{
    policy_tick(load_relaxed(&s->n_dirty_free) > SOURCE_KEEP_MIN);
    struct source *other = age(s) ? spread_beside(s) : NULL;
    if (unlikely(other))
        age(other);
}

bool source_trim(struct source *s)
{
    lock_take(&s->lock);
    bool any = s->n_dirty_free > 0;
    purge(s, 0, 0);
    keep_count_anew(s); /* that was asked for: nobody learns from it what to keep */
    lock_drop(&s->lock);
    return any;
}

uint64_t source_yield(struct source *s, uint64_t bytes)
{
    uint64_t slices = bytes / SLICE_BYTES;
    lock_take(&s->lock);
    uint64_t before = s->n_dirty_free;
    uint64_t keep = before > slices ? before - slices : 0;
    if (slices > 0 && !is_refused(s))
        purge(s, keep, keep + 1);
    uint64_t given = before > s->n_dirty_free ? before - s->n_dirty_free : 0;
    lock_drop(&s->lock);
    return given * SLICE_BYTES;
}

bool source_shrink(struct source *s)
{
    lock_take(&s->lock);
    bool any = empty_unmap(s, 0, 0);
    lock_drop(&s->lock);
    return any;
}

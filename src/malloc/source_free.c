/* source_free.c: see source_free.h. */
#include "malloc/source_free.h"

#include "malloc/heap.h"
#include "malloc/source.h"

enum { TRIES = 16 }; /* runs of a list that are looked at, where not each one fits */

unsigned runs_bin(unsigned slices)
{
    if (slices <= RUNS_EXACT)
        return slices - 1;
    unsigned power = 31 - (unsigned)__builtin_clz(slices - 1); /* of 17 to 32 it is 4 */
    return RUNS_EXACT + (power - 4) * 4 + ((slices - 1) >> (power - 2)) - 4;
}

/* ---- lists ---- */

/* A descriptor has the links of a dirty run that begins there, and those of a run of the two other kinds. */
static inline struct run_link *link_of(struct slab *at, enum runs_kind kind)
{
    return &at->run[kind == RUNS_DIRTY ? 0 : 1];
}

static void list_add(struct source *s, struct slab *at, enum runs_kind kind, unsigned slices)
{
    struct runs *runs = &s->runs[kind];
    unsigned bin = runs_bin(slices);
    struct slab *after = runs->list[bin].first;
    *link_of(at, kind) = (struct run_link){.next = after,
                                           .since = s->run_clock++,
                                           .slices = (uint8_t)slices,
                                           .listed = (uint8_t)(1 + kind)};
    if (after)
        link_of(after, kind)->prev = at;
    else
        runs->list[bin].last = at;
    runs->list[bin].first = at;
    runs->some |= UINT32_C(1) << bin;
}

static void list_remove(struct source *s, struct slab *at, enum runs_kind kind)
{
    struct run_link *l = link_of(at, kind);
    struct runs *runs = &s->runs[kind];
    unsigned bin = runs_bin(l->slices);
    if (l->prev)
        link_of(l->prev, kind)->next = l->next;
    else
        runs->list[bin].first = l->next;
    if (l->next)
        link_of(l->next, kind)->prev = l->prev;
    else
        runs->list[bin].last = l->prev;
    if (!runs->list[bin].first)
        runs->some &= ~(UINT32_C(1) << bin);
    l->listed = 0;
}

/* ---- runs as long as they can be ---- */

static void whole_add(struct source *s, struct macro *m, unsigned begin, unsigned end)
{
    if (begin == end)
        return;
    slice_bits run = bits_run(begin, end - begin), dirty = run & bits_of(m->dirty);
    if (dirty != run) /* else it is listed already */
        list_add(s, macro_slab(m, begin), dirty ? RUNS_PARTLY : RUNS_CLEAN, end - begin);
}

static void whole_remove(struct source *s, struct macro *m, unsigned begin)
{
    struct slab *at = macro_slab(m, begin);
    if (at->run[1].listed)
        list_remove(s, at, (enum runs_kind)(at->run[1].listed - 1));
}

/* ---- slices come and go ---- */

static void count(struct source *s, struct macro *m, slice_bits run, bool more)
{
    unsigned n = bits_count(run), dirty = bits_count(run & bits_of(m->dirty));
    m->n_free = more ? m->n_free + n : m->n_free - n;
    m->n_dirty_free = more ? m->n_dirty_free + dirty : m->n_dirty_free - dirty;
    store_relaxed(&s->n_dirty_free, more ? s->n_dirty_free + dirty : s->n_dirty_free - dirty);
}

void runs_insert(struct source *s, struct macro *m, slice_bits run)
{
    slice_bits before = bits_of(m->free), free = before | run;
    slice_bits dirty_before = before & bits_of(m->dirty), dirty = free & bits_of(m->dirty);
    unsigned first = bits_first(run), end = bits_last(run) + 1;
    unsigned begin = run_begin(free, first);
    if (begin < first)
        whole_remove(s, m, begin);
    if (bits_has(before, end))
        whole_remove(s, m, end);
    for (slice_bits rest = run & dirty; rest;) {
        unsigned at = bits_first(rest), from = run_begin(dirty, at), to = run_end(dirty, at);
        if (from < first)
            list_remove(s, macro_slab(m, from), RUNS_DIRTY);
        if (bits_has(dirty_before, end) && to > end)
            list_remove(s, macro_slab(m, end), RUNS_DIRTY);
        list_add(s, macro_slab(m, from), RUNS_DIRTY, to - from);
        rest &= ~bits_run(from, to - from);
    }
    bits_store(m->free, free);
    whole_add(s, m, begin, run_end(free, first));
    count(s, m, run, true);
}

void runs_remove(struct source *s, struct macro *m, slice_bits run)
{
    slice_bits free = bits_of(m->free), dirty = free & bits_of(m->dirty);
    unsigned first = bits_first(run), end = bits_last(run) + 1;
    unsigned begin = run_begin(free, first), after = run_end(free, first);
    whole_remove(s, m, begin);
    for (slice_bits rest = run & dirty; rest;) {
        unsigned at = bits_first(rest), from = run_begin(dirty, at), to = run_end(dirty, at);
        list_remove(s, macro_slab(m, from), RUNS_DIRTY);
        if (from < first)
            list_add(s, macro_slab(m, from), RUNS_DIRTY, first - from);
        if (to > end)
            list_add(s, macro_slab(m, end), RUNS_DIRTY, to - end);
        rest &= ~bits_run(from, to - from);
    }
    bits_store(m->free, free & ~run);
    whole_add(s, m, begin, first);
    whole_add(s, m, end, after);
    count(s, m, run, false);
}

/* ---- looking for one ---- */

/* The shortest run that has n slices from a multiple of `align`. */
static struct slab *find(const struct source *s, enum runs_kind kind, unsigned n, unsigned align,
                         unsigned tries)
{
    const struct runs *runs = &s->runs[kind];
    unsigned bin = runs_bin(n);
    for (uint32_t some = runs->some >> bin << bin; some; some &= some - 1) {
        unsigned left = tries;
        for (struct slab *at = runs->list[__builtin_ctz(some)].first; at && left > 0;
             at = link_of(at, kind)->next, left--) {
            unsigned first = slab_slice(at), from = (first + align - 1) & ~(align - 1);
            if (from - first + n <= link_of(at, kind)->slices)
                return at;
        }
    }
    return NULL;
}

/* At the beginning of a run or at its end: where more has memory, or else where it does not leave free slices on both sides. */
static unsigned place(const struct macro *m, unsigned begin, unsigned slices, unsigned n,
                      unsigned align)
{
    slice_bits free = bits_of(m->free), dirty = bits_of(m->dirty);
    unsigned low = (begin + align - 1) & ~(align - 1);
    unsigned high = (begin + slices - n) & ~(align - 1);
    unsigned has_low = bits_count(dirty & bits_run(low, n)),
             has_high = bits_count(dirty & bits_run(high, n));
    if (has_low != has_high)
        return has_low > has_high ? low : high;
    return bits_has(free, begin - 1) && !bits_has(free, begin + slices) ? high : low;
}

bool runs_find(struct source *s, unsigned n, unsigned align, bool thorough, struct macro **ret,
               unsigned *ret_first)
{
    for (enum runs_kind kind = RUNS_DIRTY; kind < RUNS_KINDS; kind++) {
        struct slab *at = find(s, kind, n, align, thorough ? UINT32_MAX : TRIES);
        if (!at)
            continue;
        *ret = macro_of(at);
        unsigned begin = slab_slice(at), slices = link_of(at, kind)->slices;
        *ret_first = slices == n ? begin : place(*ret, begin, slices, n, align);
        return true;
    }
    return false;
}

struct slab *runs_oldest(const struct source *s, unsigned *ret_slices)
{
    struct slab *oldest = NULL;
    for (uint32_t some = s->runs[RUNS_DIRTY].some; some; some &= some - 1) {
        struct slab *last = s->runs[RUNS_DIRTY].list[__builtin_ctz(some)].last;
        if (!oldest || (int32_t)(last->run[0].since - oldest->run[0].since) < 0)
            oldest = last;
    }
    if (oldest)
        *ret_slices = oldest->run[0].slices;
    return oldest;
}

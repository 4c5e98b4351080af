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

static inline void list_add(struct source *s, struct slab *at, enum runs_kind kind, unsigned slices)
{
    struct runs *runs = &s->runs[kind];
    unsigned bin = runs_bin(slices);
    struct slab *after = runs->list[bin].first;
    *link_of(at, kind) = (struct run_link){.next = after,
                                           .since = s->run_clock++,
                                           .slices = (uint8_t)slices,
                                           .listed = (uint8_t)(1 + kind),
                                           .bin = (uint8_t)bin};
    if (after)
        link_of(after, kind)->prev = at;
    else
        runs->list[bin].last = at;
    runs->list[bin].first = at;
    runs->some |= UINT32_C(1) << bin;
}

static inline void list_remove(struct source *s, struct slab *at, enum runs_kind kind)
{
    struct run_link *l = link_of(at, kind);
    struct runs *runs = &s->runs[kind];
    unsigned bin = l->bin;
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

/* A run of RUNS_PARTLY begins later, and ends where it did. Its place in the list stays, if that is the same: of these nobody asks for the oldest. */
static inline void list_move(struct source *s, struct slab *at, struct slab *to, unsigned slices)
{
    struct run_link *l = link_of(at, RUNS_PARTLY);
    if (runs_bin(slices) != l->bin) {
        list_remove(s, at, RUNS_PARTLY);
        list_add(s, to, RUNS_PARTLY, slices);
        return;
    }
    struct runs *runs = &s->runs[RUNS_PARTLY];
    struct run_link *new = link_of(to, RUNS_PARTLY);
    *new = *l;
    new->slices = (uint8_t)slices;
    if (l->prev)
        link_of(l->prev, RUNS_PARTLY)->next = to;
    else
        runs->list[l->bin].first = to;
    if (l->next)
        link_of(l->next, RUNS_PARTLY)->prev = to;
    else
        runs->list[l->bin].last = to;
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

/* How many of n slices in a row have memory: all, as a rule. */
static unsigned dirty_count(const struct macro *m, slice_bits run, unsigned n)
{
    slice_bits clean = run & ~bits_of(m->dirty);
    return clean ? n - bits_count(clean) : n;
}

/* Dirty slices from..to, of those from `first` to `end` that come, become one run with their neighbours. */
static void dirty_insert(struct source *s, struct macro *m, slice_bits dirty, unsigned first,
                         unsigned end, unsigned from, unsigned to)
{
    if (from == first && words_both_have(m->free, m->dirty, first - 1)) {
        from = run_begin(dirty, first - 1);
        list_remove(s, macro_slab(m, from), RUNS_DIRTY);
    }
    if (to == end && words_both_have(m->free, m->dirty, end)) {
        to = run_end(dirty, end);
        list_remove(s, macro_slab(m, end), RUNS_DIRTY);
    }
    list_add(s, macro_slab(m, from), RUNS_DIRTY, to - from);
}

void runs_insert(struct source *s, struct macro *m, unsigned first, unsigned n)
{
    slice_bits run = bits_run(first, n), before = bits_of(m->free), free = before | run;
    slice_bits dirty = before & bits_of(m->dirty);
    unsigned end = first + n, begin = first, after = end, n_dirty = dirty_count(m, run, n);
    if (n_dirty == n) {
        dirty_insert(s, m, dirty, first, end, first, end);
    } else {
        for (slice_bits rest = run & bits_of(m->dirty); rest;) {
            unsigned from = bits_first(rest), to = run_end(rest, from);
            dirty_insert(s, m, dirty, first, end, from, to);
            rest &= ~bits_run(from, to - from);
        }
    }
    if (words_have(m->free, first - 1)) {
        begin = run_begin(before, first - 1);
        whole_remove(s, m, begin);
    }
    if (words_have(m->free, end)) {
        after = run_end(before, end);
        whole_remove(s, m, end);
    }
    bits_store(m->free, free);
    whole_add(s, m, begin, after);
    m->n_free += n;
    m->n_dirty_free += n_dirty;
    store_relaxed(&s->n_dirty_free, s->n_dirty_free + n_dirty);
}

void runs_remove(struct source *s, struct macro *m, unsigned first, unsigned n)
{
    slice_bits run = bits_run(first, n), before = bits_of(m->free);
    slice_bits dirty = before & bits_of(m->dirty);
    unsigned end = first + n, n_dirty = dirty_count(m, run, n);
    unsigned begin = words_have(m->free, first - 1) ? run_begin(before, first - 1) : first;
    unsigned after = words_have(m->free, end) ? run_end(before, end) : end;
    whole_remove(s, m, begin);
    for (slice_bits rest = run & dirty; rest;) {
        unsigned at = bits_first(rest), from = at, to = run_end(dirty, at);
        if (at == first && words_both_have(m->free, m->dirty, first - 1))
            from = run_begin(dirty, first - 1);
        list_remove(s, macro_slab(m, from), RUNS_DIRTY);
        if (from < first)
            list_add(s, macro_slab(m, from), RUNS_DIRTY, first - from);
        if (to > end)
            list_add(s, macro_slab(m, end), RUNS_DIRTY, to - end);
        rest &= ~bits_run(at, to - at);
    }
    bits_store(m->free, before & ~run);
    whole_add(s, m, begin, first);
    whole_add(s, m, end, after);
    m->n_free -= n;
    m->n_dirty_free -= n_dirty;
    store_relaxed(&s->n_dirty_free, s->n_dirty_free - n_dirty);
}

/* ---- looking for one ---- */

/* The shortest run that has n slices from a multiple of `align`. */
static inline struct slab *find(const struct source *s, enum runs_kind kind, unsigned n,
                                unsigned align, unsigned tries)
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
    slice_bits dirty = bits_of(m->dirty);
    unsigned low = (begin + align - 1) & ~(align - 1);
    unsigned high = (begin + slices - n) & ~(align - 1);
    bool all = !(bits_run(begin, slices) & ~dirty);
    unsigned has_low = all ? n : bits_count(dirty & bits_run(low, n));
    unsigned has_high = all ? n : bits_count(dirty & bits_run(high, n));
    if (has_low != has_high)
        return has_low > has_high ? low : high;
    return words_have(m->free, begin - 1) && !words_have(m->free, begin + slices) ? high : low;
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

/* One copy of it is enough. */
static __attribute__((noinline)) bool is_clean(const struct slab *at, unsigned n)
{
    return !(bits_of(macro_of(at)->dirty) & bits_run(slab_slice(at), n));
}

struct slab *runs_find_clean(const struct source *s, unsigned n)
{
    for (enum runs_kind kind = RUNS_CLEAN; kind > RUNS_DIRTY; kind--) {
        uint32_t some = s->runs[kind].some >> (n - 1) << (n - 1);
        if (!some)
            continue;
        struct slab *low = s->runs[kind].list[__builtin_ctz(some)].first;
        struct slab *high = low + low->run[1].slices - n;
        if (is_clean(low, n))
            return low;
        if (is_clean(high, n))
            return high;
    }
    return NULL;
}

/* ---- the usual ways ----
 *
 * The links of a run tell how long it is, and whether all of it has memory: there is little need to look for its ends, which takes most of the time
 * above. */

static inline void count_free(struct source *s, struct macro *m, unsigned n, bool come)
{
    unsigned change = come ? n : -n;
    m->n_free += change;
    m->n_dirty_free += change;
    store_relaxed(&s->n_dirty_free, come ? s->n_dirty_free + n : s->n_dirty_free - n);
}

void runs_give(struct source *s, struct macro *m, unsigned first, unsigned n)
{
    unsigned begin = first, after = first + n; /* of all that is free there, */
    unsigned from = first, to = after;         /* and of what is dirty */
    if (words_have(m->free, first - 1)) {
        slice_bits free = bits_of(m->free);
        begin = from = run_begin(free, first - 1);
        if (unlikely(macro_slab(m, begin)->run[1].listed)) {
            whole_remove(s, m, begin);
            bool dirty = words_have(m->dirty, first - 1);
            from = dirty ? run_begin(free & bits_of(m->dirty), first - 1) : first;
        }
        if (likely(from < first))
            list_remove(s, macro_slab(m, from), RUNS_DIRTY);
    }
    if (words_have(m->free, after)) {
        struct slab *next = macro_slab(m, after);
        if (likely(next->run[0].listed)) {
            to += next->run[0].slices;
            list_remove(s, next, RUNS_DIRTY);
        }
        unsigned whole = unlikely(next->run[1].listed) ? next->run[1].slices : to - after;
        whole_remove(s, m, after);
        after += whole;
    }
    list_add(s, macro_slab(m, from), RUNS_DIRTY, to - from);
    if (unlikely(after - begin > to - from))
        list_add(s, macro_slab(m, begin), RUNS_PARTLY, after - begin);
    bits_store(m->free, bits_of(m->free) | bits_run(first, n));
    count_free(s, m, n, true);
}

struct slab *runs_take(struct source *s, unsigned n)
{
    struct slab *at = find(s, RUNS_DIRTY, n, 1, TRIES);
    if (unlikely(!at))
        return NULL;
    struct macro *m = macro_of(at);
    unsigned first = slab_slice(at), dirty = at->run[0].slices, begin = first;
    bool before = words_have(m->free, first - 1);
    if (unlikely(before))
        begin = run_begin(bits_of(m->free), first - 1);
    /* As in place(). */
    bool high = unlikely(before) && !words_have(m->free, first + dirty);
    unsigned place = high ? first + dirty - n : first;
    const struct run_link *whole = &macro_slab(m, begin)->run[1];
    list_remove(s, at, RUNS_DIRTY);
    if (dirty > n)
        list_add(s, high ? at : at + n, RUNS_DIRTY, dirty - n);
    if (whole->listed && !before && dirty > n) {
        list_move(s, at, at + n, whole->slices - n);
    } else if (whole->listed) {
        unsigned after = begin + whole->slices;
        list_remove(s, macro_slab(m, begin), RUNS_PARTLY);
        whole_add(s, m, begin, place);
        whole_add(s, m, place + n, after);
    }
    bits_store(m->free, bits_of(m->free) & ~bits_run(place, n));
    count_free(s, m, n, false);
    return macro_slab(m, place);
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

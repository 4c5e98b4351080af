/* Questions to a history. See history.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "trace/history_internal.h"

enum { LOOK_EXTRA = 256, LOOK_TIMES = 4 }; /* blocks that a question for k looks at */

/* ---- one block ---- */

static int repeat_compare(const void *a, const void *b)
{
    const struct trace_repeat *x = a, *y = b;
    return x->copies < y->copies ? 1 : x->copies > y->copies ? -1 : 0;
}

static uint64_t ring_kept(const struct trace_activity *a)
{
    return a->in_ring < a->ring_cap ? a->in_ring : a->ring_cap;
}

void history_block_copy(const struct trace_history *h, uint32_t slot, struct trace_block *b)
{
    const struct trace_slot *s = pool_slot(&h->pool, slot);
    const struct trace_activity *a = s->activity;
    *b = (struct trace_block){
        .id = pool_id(&h->pool, slot),
        .address = s->address,
        .size = s->size,
        .context = s->context,
        .call = s->call,
        .start_ns = s->start_ns,
        .end_ns = s->end_ns,
        .site = s->site,
        .device = s->device,
        .tid = s->tid,
        .flags = s->flags,
        .function = s->function,
        .space = s->space,
        .state = s->state,
        .end = s->end,
        .class = s->class,
        .active = s->active,
        .found = s->found,
    };
    b->moments = b->moments_kept = 1 + (uint64_t)!s->active;
    if (!a)
        return;
    memcpy(b->flow, a->flow, sizeof(b->flow));
    b->read = a->read;
    b->written = a->written;
    b->pageable = a->pageable;
    b->sets = a->sets;
    b->prefetches = a->prefetches;
    b->first_copy_ns = a->first_ns;
    b->last_copy_ns = a->last_ns;
    b->repeated = a->repeated;
    b->repeated_bytes = a->repeated_bytes;
    b->moments += a->moments;
    b->moments_kept += ring_kept(a);
    if (a->system) {
        memcpy(b->system, a->system->all, sizeof(b->system));
        memcpy(b->system_early, a->system->early, sizeof(b->system_early));
    }
    struct trace_repeat repeats[REPEATS_SLOTS];
    memcpy(repeats, a->repeats, sizeof(repeats));
    qsort(repeats, REPEATS_SLOTS, sizeof(repeats[0]), repeat_compare);
    for (unsigned i = 0; i < TRACE_REPEATS && repeats[i].copies > 1; i++)
        b->repeats[i] = repeats[i];
}

uint64_t trace_block_value(const struct trace_block *b, enum trace_by by)
{
    const struct trace_flow *f = b->flow;
    return by == TRACE_BY_COUNT ? f[TRACE_DIRECTION_UNKNOWN].copies + f[TRACE_TO_DEVICE].copies +
                                      f[TRACE_FROM_DEVICE].copies
                                : f[TRACE_DIRECTION_UNKNOWN].bytes + f[TRACE_TO_DEVICE].bytes +
                                      f[TRACE_FROM_DEVICE].bytes;
}

const char *trace_block_state(const struct trace_block *b)
{
    if (b->active && b->class == TRACE_CLASS_IMPLICIT)
        return "seen";
    if (b->active && b->class == TRACE_CLASS_GRAPH)
        return "recorded";
    if (b->active)
        return b->found ? "found" : "live";
    switch (b->end) {
    case TRACE_END_EXIT:
        return "exit";
    case TRACE_END_RESET:
        return "reset";
    case TRACE_END_LOST:
        return "unknown";
    default:
        return "freed";
    }
}

static struct trace_moment first_moment(const struct trace_slot *s)
{
    return (struct trace_moment){
        .time_ns = s->start_ns,
        .size = s->size,
        .call = s->call,
        .site = s->site,
        .tid = s->tid,
        .kind = s->found ? TRACE_FOUND : TRACE_ALLOC,
        .flags = (uint8_t)s->flags,
    };
}

static struct trace_moment last_moment(const struct trace_slot *s)
{
    static const uint8_t kinds[] = {
        [TRACE_END_NONE] = TRACE_NONE,   [TRACE_END_FREE] = TRACE_FREE,
        [TRACE_END_RESET] = TRACE_RESET, [TRACE_END_EXIT] = TRACE_EXIT,
        [TRACE_END_LOST] = TRACE_GAP,
    };
    return (struct trace_moment){.time_ns = s->end_ns, .size = s->size, .kind = kinds[s->end]};
}

size_t history_moments_copy(const struct trace_history *h, uint32_t slot,
                            struct trace_moment *moments, size_t n)
{
    const struct trace_slot *s = pool_slot(&h->pool, slot);
    const struct trace_activity *a = s->activity;
    uint64_t kept = a ? ring_kept(a) : 0, all = 1 + kept + !s->active;
    uint64_t skip = all > n ? all - n : 0;
    size_t stored = 0;
    for (uint64_t i = skip; i < all; i++)
        moments[stored++] = i == 0      ? first_moment(s)
                            : i <= kept ? a->ring[(a->in_ring - kept + i - 1) & (a->ring_cap - 1)]
                                        : last_moment(s);
    return stored;
}

/* The slot of an id, or 0. */
static uint32_t slot_of(const struct trace_history *h, uint64_t id)
{
    uint32_t slot = (uint32_t)id;
    if (slot == 0 || slot >= h->pool.n_slots || !pool_slot(&h->pool, slot)->used ||
        pool_id(&h->pool, slot) != id)
        return 0;
    return slot;
}

int trace_history_find(struct trace_history *h, uint64_t address, struct trace_block *ret_block)
{
    history_enter(h);
    uint32_t slot = history_block_find(h, address);
    if (slot)
        history_block_copy(h, slot, ret_block);
    history_leave(h);
    return slot ? 0 : -ENOENT;
}

size_t trace_history_at(struct trace_history *h, uint64_t address, struct trace_block *blocks,
                        size_t n)
{
    size_t count = 0;
    uint32_t next[LAYERS];
    history_enter(h);
    for (unsigned i = 0; i < LAYERS; i++)
        next[i] = trace_hash_find(&h->hash[i], &h->pool, address);
    for (;;) {
        unsigned latest = LAYERS;
        for (unsigned i = 0; i < LAYERS; i++)
            if (next[i] && (latest == LAYERS || pool_slot(&h->pool, next[i])->start_ns >
                                                    pool_slot(&h->pool, next[latest])->start_ns))
                latest = i;
        if (latest == LAYERS)
            break;
        if (count < n)
            history_block_copy(h, next[latest], &blocks[count]);
        count++;
        next[latest] = pool_slot(&h->pool, next[latest])->older;
    }
    history_leave(h);
    return count;
}

int trace_history_block(struct trace_history *h, uint64_t id, struct trace_block *ret_block)
{
    history_enter(h);
    uint32_t slot = slot_of(h, id);
    if (slot)
        history_block_copy(h, slot, ret_block);
    history_leave(h);
    return slot ? 0 : -ENOENT;
}

ptrdiff_t trace_history_moments(struct trace_history *h, uint64_t id, struct trace_moment *moments,
                                size_t n)
{
    history_enter(h);
    uint32_t slot = slot_of(h, id);
    ptrdiff_t stored = slot ? (ptrdiff_t)history_moments_copy(h, slot, moments, n) : -ENOENT;
    history_leave(h);
    return stored;
}

/* ---- many blocks ---- */

static bool passes(const struct trace_slot *s, const struct trace_filter *f)
{
    if (!f)
        return true;
    return !(f->active && !s->active) && !(f->ended && s->active) &&
           !(f->space && s->space != f->space) && !(f->by_device && s->device != f->device) &&
           !(f->by_site && s->site != f->site) && !(f->classes && !(f->classes >> s->class & 1));
}

size_t trace_history_blocks(struct trace_history *h, const struct trace_filter *filter,
                            uint64_t *cursor, struct trace_block *blocks, size_t n)
{
    size_t stored = 0;
    history_enter(h);
    uint64_t slot = *cursor ? *cursor : 1;
    for (; slot < h->pool.n_slots && stored < n; slot++) {
        const struct trace_slot *s = pool_slot(&h->pool, (uint32_t)slot);
        if (s->used && passes(s, filter))
            history_block_copy(h, (uint32_t)slot, &blocks[stored++]);
    }
    *cursor = slot;
    history_leave(h);
    return stored;
}

struct candidate {
    uint64_t value;
    uint32_t slot;
};

static int hottest_first(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->value < y->value ? 1 : x->value > y->value ? -1 : x->slot > y->slot ? 1 : -1;
}

static int coldest_first(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->value > y->value ? 1 : x->value < y->value ? -1 : x->slot > y->slot ? 1 : -1;
}

/* Collect from one list; false: enough has been looked at. */
static bool collect(const struct trace_history *h, enum trace_by by, const struct trace_filter *f,
                    uint32_t slot, struct candidate *c, size_t *n, size_t max)
{
    for (; slot; slot = pool_slot(&h->pool, slot)->order_link[by].next) {
        const struct trace_slot *s = pool_slot(&h->pool, slot);
        uint64_t value = history_block_value(s, by);
        if (!passes(s, f) || (f && (value < f->min || (f->max && value > f->max))))
            continue;
        if (*n == max)
            return false;
        c[(*n)++] = (struct candidate){value, slot};
    }
    return true;
}

static size_t select_blocks(const struct trace_history *h, enum trace_by by,
                            const struct trace_filter *f, bool hot, struct candidate *c, size_t k,
                            size_t max)
{
    int lowest = f ? (int)order_step(f->min) : 0,
        highest = f && f->max ? (int)order_step(f->max) : ORDER_STEPS - 1;
    int step = hot ? highest : lowest;
    size_t n = 0;
    for (;;) {
        int a = f && f->ended ? -1 : trace_order_list(&h->active[by], step, hot);
        int b = f && f->active ? -1 : trace_order_list(&h->ended[by], step, hot);
        int at = a < 0 ? b : b < 0 ? a : (hot ? a > b : a < b) ? a : b;
        if (at < lowest || at > highest)
            break;
        bool more = (a != at || collect(h, by, f, h->active[by].heads[at], c, &n, max)) &&
                    (b != at || collect(h, by, f, h->ended[by].heads[at], c, &n, max));
        if (!more || n >= k)
            break;
        step = hot ? at - 1 : at + 1;
    }
    qsort(c, n, sizeof(*c), hot ? hottest_first : coldest_first);
    return n < k ? n : k;
}

static ptrdiff_t ranked(struct trace_history *h, enum trace_by by, const struct trace_filter *f,
                        bool hot, struct trace_block *blocks, size_t k)
{
    if (by != TRACE_BY_COUNT && by != TRACE_BY_BYTES)
        return -EINVAL;
    history_enter(h);
    if (k > h->pool.in_use)
        k = h->pool.in_use;
    size_t max = LOOK_TIMES * k + LOOK_EXTRA;
    struct candidate *c = malloc(max * sizeof(*c));
    if (c) {
        k = select_blocks(h, by, f, hot, c, k, max);
        for (size_t i = 0; i < k; i++)
            history_block_copy(h, c[i].slot, &blocks[i]);
    }
    history_leave(h);
    free(c);
    return c ? (ptrdiff_t)k : -ENOMEM;
}

ptrdiff_t trace_history_hot(struct trace_history *h, enum trace_by by,
                            const struct trace_filter *filter, struct trace_block *blocks, size_t k)
{
    return ranked(h, by, filter, true, blocks, k);
}

ptrdiff_t trace_history_cold(struct trace_history *h, enum trace_by by,
                             const struct trace_filter *filter, struct trace_block *blocks,
                             size_t k)
{
    return ranked(h, by, filter, false, blocks, k);
}

/* ---- sums ---- */

size_t trace_history_holders(struct trace_history *h, uint64_t *cursor,
                             struct trace_holder *holders, size_t n)
{
    size_t stored = 0;
    history_enter(h);
    uint64_t i = *cursor ? *cursor : 1;
    for (; i < h->holders.holders.n && stored < n; i++)
        holders[stored++] = holders_get(&h->holders, (uint32_t)i)->sums;
    *cursor = i;
    history_leave(h);
    return stored;
}

uint64_t trace_history_graph_peak(struct trace_history *h, int32_t device)
{
    struct trace_holder holders[16];
    uint64_t cursor = 0, bytes = 0;
    size_t n;
    while ((n = trace_history_holders(h, &cursor, holders, 16)) > 0)
        for (size_t i = 0; i < n; i++) {
            bool here = device < 0 || holders[i].device < 0 || holders[i].device == device;
            if (holders[i].class == TRACE_CLASS_GRAPH && here)
                sum_add(&bytes, holders[i].peak_bytes);
        }
    return bytes;
}

size_t trace_history_copiers(struct trace_history *h, uint64_t *cursor,
                             struct trace_copier *copiers, size_t n)
{
    size_t stored = 0;
    history_enter(h);
    uint64_t i = *cursor ? *cursor : 1;
    for (; i < h->holders.copiers.n && stored < n; i++)
        copiers[stored++] = *copiers_get(&h->holders, (uint32_t)i);
    *cursor = i;
    history_leave(h);
    return stored;
}

static uint64_t memory_bytes(const struct trace_history *h)
{
    uint64_t bytes = sizeof(*h) + h->pool.n_chunks * POOL_CHUNK * sizeof(struct trace_slot) +
                     h->n_activities * sizeof(struct trace_activity) +
                     h->moments * sizeof(struct trace_moment) +
                     (uint64_t)h->holders.holders.cap * sizeof(struct holder) +
                     (uint64_t)h->holders.copiers.cap * sizeof(struct trace_copier) +
                     (h->timeline.n_lines + 1) * sizeof(struct timeline_line);
    for (unsigned i = 0; i < LAYERS; i++)
        bytes += h->hash[i].n_heads * sizeof(uint32_t);
    for (unsigned i = 0; i < LAYERS_OF_RANGES; i++)
        bytes +=
            h->ranges[i].n_leaves * sizeof(struct trace_ranges_leaf) + h->ranges[i].cap_leaves * 16;
    return bytes;
}

void history_totals_fill(const struct trace_history *h, struct trace_totals *t)
{
    *t = h->totals;
    if (h->frozen)
        return;
    t->last_ns = h->now_ns;
    t->kept_blocks = h->pool.in_use;
    t->active_blocks = h->n_active;
    t->implicit_blocks = h->n_implicit;
    t->holders = h->holders.holders.n - 1;
    t->sites = trace_sites_count(h->sites);
    t->unkept_holders = h->holders.unkept;
}

struct trace_totals trace_history_totals(struct trace_history *h)
{
    struct trace_totals t;
    history_enter(h);
    history_totals_fill(h, &t);
    t.memory_bytes = memory_bytes(h);
    history_leave(h);
    return t;
}

size_t trace_history_gaps(struct trace_history *h, struct trace_gap *gaps, size_t n)
{
    size_t stored = 0;
    history_enter(h);
    uint64_t kept = h->totals.gaps < TRACE_GAPS_MAX ? h->totals.gaps : TRACE_GAPS_MAX;
    for (uint64_t i = h->totals.gaps - (kept < n ? kept : n); i < h->totals.gaps; i++)
        gaps[stored++] = h->gaps[i % TRACE_GAPS_MAX];
    history_leave(h);
    return stored;
}

/* ---- timeline ---- */

static int largest_line_first(const void *a, const void *b)
{
    const struct trace_timeline_line *x = a, *y = b;
    uint64_t px = 0, py = 0;
    for (size_t i = 0; i < TRACE_TIMELINE_SLOTS; i++) {
        px = x->peak[i] > px ? x->peak[i] : px;
        py = y->peak[i] > py ? y->peak[i] : py;
    }
    /* The rest comes last, however large it is. */
    return x->other != y->other ? x->other - y->other : px < py ? 1 : px > py ? -1 : 0;
}

int trace_history_timeline(struct trace_history *h, struct trace_timeline *ret_timeline)
{
    struct trace_timeline out = {0};
    struct trace_timeline_line *lines = calloc(1 + TRACE_TIMELINE_HOLDERS, sizeof(*lines));
    if (!lines)
        return -ENOMEM;
    history_enter(h);
    struct timeline *t = &h->timeline;
    timeline_fill(t);
    out.start_ns = t->start_ns;
    out.step_ns = t->step_ns;
    out.n_slots = t->start_ns ? t->slot + 1 : 0;
    size_t bytes = out.n_slots * sizeof(uint64_t);
    memcpy(out.device_peak, t->device->peak, bytes);
    for (uint32_t i = 0; i < t->n_lines; i++) {
        const struct timeline_line *from = t->lines[i];
        if (i == 0 && from->peak_ever == 0)
            continue;
        struct trace_timeline_line *to = &lines[out.n_lines++];
        const struct trace_holder *sums = &holders_get(&h->holders, from->holder)->sums;
        *to = (struct trace_timeline_line){
            .site = sums->site,
            .device = sums->device,
            .space = sums->space,
            .other = i == 0,
        };
        memcpy(to->last, from->last, bytes);
        memcpy(to->peak, from->peak, bytes);
    }
    history_leave(h);
    qsort(lines, out.n_lines, sizeof(*lines), largest_line_first);
    out.lines = lines;
    *ret_timeline = out;
    return 0;
}

void trace_timeline_release(struct trace_timeline *timeline)
{
    free(timeline->lines);
    timeline->lines = NULL;
    timeline->n_lines = 0;
}

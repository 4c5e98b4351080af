/* A history out of a dump. See dump_build.h. */
#include "trace/dump_build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "trace/dump.h"

int dump_builder_init(struct dump_builder *b)
{
    struct trace_limits limits = {.blocks = TRACE_DUMP_BLOCKS_MAX,
                                  .ended = TRACE_DUMP_BLOCKS_MAX,
                                  .implicit = TRACE_DUMP_BLOCKS_MAX};
    struct trace_identity identity = {0};
    *b = (struct dump_builder){0};
    int r = trace_history_new(&identity, &limits, &b->history);
    if (r == 0)
        b->history->frozen = true;
    return r;
}

void dump_builder_release(struct dump_builder *b)
{
    trace_history_free(b->history);
    free(b->slots);
    *b = (struct dump_builder){0};
}

int dump_builder_holder(struct dump_builder *b, const struct trace_holder *holder)
{
    struct trace_holders *h = &b->history->holders;
    uint32_t before = h->holders.n;
    if (before > h->holders.max)
        return -E2BIG;
    uint32_t number = holders_number(h, holder->site, holder->device, holder->space, holder->class);
    if (number == 0)
        return -ENOMEM;
    if (number != before) /* twice */
        return -EBADMSG;
    holders_get(h, number)->sums = *holder;
    return 0;
}

int dump_builder_copier(struct dump_builder *b, const struct trace_copier *copier)
{
    struct trace_holders *h = &b->history->holders;
    uint32_t before = h->copiers.n;
    if (before > h->copiers.max)
        return -E2BIG;
    uint32_t number = copiers_number(h, copier->site);
    if (number == 0)
        return -ENOMEM;
    if (number != before)
        return -EBADMSG;
    *copiers_get(h, number) = *copier;
    return 0;
}

int dump_builder_failure(struct dump_builder *b, const struct trace_failure *failure)
{
    struct trace_history *h = b->history;
    struct trace_failure **place = &h->failures[failure->number % TRACE_FAILURES_MAX];
    /* Numbers rise by one, so that the last ones are all there. */
    if (failure->number == 0 || *place || (h->n_failures && failure->number != h->n_failures + 1))
        return -EBADMSG;
    *place = malloc(sizeof(**place));
    if (!*place)
        return -ENOMEM;
    **place = *failure;
    h->n_failures = failure->number;
    return 0;
}

/* `totals.gaps` says how many there were; the last ones come in order. */
int dump_builder_gap(struct dump_builder *b, const struct trace_gap *gap)
{
    struct trace_history *h = b->history;
    if (h->n_gaps >= TRACE_GAPS_MAX || h->n_gaps >= h->totals.gaps)
        return -EBADMSG;
    h->gaps[h->n_gaps++] = *gap;
    return 0;
}

/* ---- blocks ---- */

static bool block_valid(const struct trace_block *b)
{
    uint64_t end;
    if (b->address == 0 || b->class >= TRACE_CLASSES || b->end > TRACE_END_LOST ||
        b->state < TRACE_STATE_ALLOCATED || b->state > TRACE_STATE_UNKNOWN)
        return false;
    if (!(b->flags & TRACE_FLAG_HANDLE) && __builtin_add_overflow(b->address, b->size, &end))
        return false;
    bool implicit = b->class == TRACE_CLASS_IMPLICIT;
    return b->active ? b->end == TRACE_END_NONE &&
                           b->state == (implicit ? TRACE_STATE_UNKNOWN : TRACE_STATE_ALLOCATED)
                     : b->end != TRACE_END_NONE && b->state != TRACE_STATE_ALLOCATED;
}

static uint32_t ring_room(size_t n)
{
    uint32_t cap = 4;
    while (cap < n)
        cap *= 2;
    return cap;
}

static int activity_fill(struct trace_history *h, uint32_t slot, const struct trace_block *b,
                         uint64_t all, const struct trace_moment *moments, size_t n)
{
    struct trace_activity *a = history_activity(h, slot);
    if (!a)
        return -ENOMEM;
    memcpy(a->flow, b->flow, sizeof(a->flow));
    a->read = b->read;
    a->written = b->written;
    a->pageable = b->pageable;
    a->sets = b->sets;
    a->prefetches = b->prefetches;
    a->first_ns = b->first_copy_ns;
    a->last_ns = b->last_copy_ns;
    a->repeated = b->repeated;
    a->repeated_bytes = b->repeated_bytes;
    memcpy(a->repeats, b->repeats, sizeof(b->repeats));
    a->moments = all;
    a->in_ring = n;
    bool system = false;
    for (unsigned i = 0; i < TRACE_SYSTEM_KINDS; i++)
        system |= b->system[i] || b->system_early[i];
    if (system) {
        a->system = calloc(1, sizeof(*a->system));
        if (!a->system)
            return -ENOMEM;
        memcpy(a->system->all, b->system, sizeof(b->system));
        memcpy(a->system->early, b->system_early, sizeof(b->system_early));
    }
    if (n > 0) {
        a->ring = calloc(ring_room(n), sizeof(*a->ring));
        if (!a->ring)
            return -ENOMEM;
        a->ring_cap = ring_room(n);
        h->moments += a->ring_cap;
        memcpy(a->ring, moments, n * sizeof(*moments));
    }
    return 0;
}

int dump_builder_block(struct dump_builder *b, const struct trace_block *block, uint32_t holder,
                       bool has_activity, uint64_t all, const struct trace_moment *moments,
                       size_t n_moments)
{
    struct trace_history *h = b->history;
    if (!block_valid(block) || holder >= h->holders.holders.n || n_moments > DUMP_MOMENTS_MAX ||
        all < n_moments)
        return -EBADMSG;
    if (b->n_slots >= TRACE_DUMP_BLOCKS_MAX)
        return -E2BIG;
    if (b->n_slots == b->cap_slots) {
        size_t cap = b->cap_slots ? 2 * b->cap_slots : 256;
        uint32_t *slots = realloc(b->slots, cap * sizeof(*slots));
        if (!slots)
            return -ENOMEM;
        b->slots = slots;
        b->cap_slots = cap;
    }
    uint32_t slot = trace_pool_take(&h->pool);
    if (!slot)
        return -ENOMEM;
    struct trace_slot *s = pool_slot(&h->pool, slot);
    b->slots[b->n_slots++] = slot;
    s->address = block->address;
    s->size = block->size;
    s->start_ns = block->start_ns;
    s->end_ns = block->end_ns;
    s->context = block->context;
    s->call = block->call;
    s->site = block->site;
    s->flags = block->flags;
    s->device = block->device;
    s->tid = block->tid;
    s->holder = holder;
    s->function = block->function;
    s->space = block->space;
    s->state = block->state;
    s->end = block->end;
    s->class = block->class;
    s->layer = block->class == TRACE_CLASS_IMPLICIT ? LAYER_IMPLICIT : history_layer(block->flags);
    s->active = block->active;
    s->found = block->found;
    return has_activity ? activity_fill(h, slot, block, all, moments, n_moments) : 0;
}

/* ---- timeline ---- */

int dump_builder_timeline(struct dump_builder *b, uint64_t start_ns, uint64_t step_ns,
                          uint64_t n_slots)
{
    struct timeline *t = &b->history->timeline;
    if (n_slots > TRACE_TIMELINE_SLOTS || step_ns == 0 || (n_slots == 0) != (start_ns == 0))
        return -EBADMSG;
    t->start_ns = start_ns;
    t->step_ns = step_ns;
    t->slot = n_slots ? (uint32_t)n_slots - 1 : 0;
    return 0;
}

int dump_builder_line(struct dump_builder *b, uint32_t holder, const uint64_t *last,
                      const uint64_t *peak)
{
    struct timeline *t = &b->history->timeline;
    struct timeline_line *line = holder == UINT32_MAX ? t->device : t->lines[0];
    if (holder != UINT32_MAX && holder != 0) {
        if (holder >= b->history->holders.holders.n || t->n_lines > TRACE_TIMELINE_HOLDERS)
            return -EBADMSG;
        for (uint32_t i = 1; i < t->n_lines; i++)
            if (t->lines[i]->holder == holder)
                return -EBADMSG;
        line = timeline_line_add(t, holder);
        if (!line)
            return -ENOMEM;
        holders_get(&b->history->holders, holder)->line = (uint8_t)(t->n_lines - 1);
    }
    size_t n = t->start_ns ? t->slot + 1u : 0;
    memcpy(line->last, last, n * sizeof(*last));
    memcpy(line->peak, peak, n * sizeof(*peak));
    line->filled = t->slot;
    line->value = line->last[t->slot];
    for (size_t i = 0; i < n; i++)
        line->peak_ever = line->peak[i] > line->peak_ever ? line->peak[i] : line->peak_ever;
    return 0;
}

/* ---- the whole ---- */

static int oldest_first(const void *a, const void *b, void *history)
{
    const struct trace_pool *pool = &((const struct trace_history *)history)->pool;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const struct trace_slot *s = pool_slot(pool, x), *t = pool_slot(pool, y);
    if (s->start_ns != t->start_ns)
        return s->start_ns < t->start_ns ? -1 : 1;
    return s->active != t->active ? (s->active ? 1 : -1) : x < y ? -1 : 1;
}

static int ranges_check(const struct trace_history *h)
{
    for (unsigned layer = 0; layer < LAYERS_OF_RANGES; layer++) {
        const struct trace_ranges *r = &h->ranges[layer];
        uint64_t next = 0;
        for (size_t i = 0; i < r->n_leaves; i++)
            for (uint32_t k = 0; k < r->leaves[i]->n; k++) {
                const struct trace_slot *s = pool_slot(&h->pool, r->leaves[i]->slots[k]);
                if (s->address < next)
                    return -EBADMSG;
                next = s->address + (s->size ? s->size : 1);
            }
    }
    return 0;
}

static int block_link(struct trace_history *h, uint32_t slot)
{
    struct trace_slot *s = pool_slot(&h->pool, slot);
    uint32_t before = trace_hash_find(&h->hash[s->layer], &h->pool, s->address);
    if (before && pool_slot(&h->pool, before)->active)
        return -EBADMSG;
    if (trace_hash_add(&h->hash[s->layer], &h->pool, slot) < 0)
        return -ENOMEM;
    if (!s->active) {
        for (unsigned i = 0; i < ORDERS; i++)
            trace_order_add(&h->ended[i], &h->pool, i, slot, history_block_value(s, i));
        history_age_add(h, &h->ended_ages, slot);
        h->n_ended++;
        return 0;
    }
    s->active = false;
    if (!history_block_activate(h, slot))
        return -ENOMEM;
    if (s->layer == LAYER_IMPLICIT)
        history_age_add(h, &h->implicit_ages, slot);
    return 0;
}

int dump_builder_finish(struct dump_builder *b, struct trace_history **ret_history)
{
    struct trace_history *h = b->history;
    if (b->n_slots)
        qsort_r(b->slots, b->n_slots, sizeof(*b->slots), oldest_first, h);
    for (size_t i = 0; i < b->n_slots; i++) {
        int r = block_link(h, b->slots[i]);
        if (r < 0)
            return r;
    }
    int r = ranges_check(h);
    if (r < 0)
        return r;
    /* Gaps and failures that were too many are no longer there; the rings begin where the kept ones do. */
    struct trace_gap gaps[TRACE_GAPS_MAX];
    uint64_t first = h->totals.gaps - h->n_gaps;
    if (h->n_gaps < TRACE_GAPS_MAX && first > 0)
        return -EBADMSG;
    memcpy(gaps, h->gaps, sizeof(gaps));
    for (uint64_t i = 0; i < h->n_gaps; i++)
        h->gaps[(first + i) % TRACE_GAPS_MAX] = gaps[i];
    uint64_t kept = h->n_failures < TRACE_FAILURES_MAX ? h->n_failures : TRACE_FAILURES_MAX;
    for (uint64_t i = 0; i < kept; i++)
        if (!h->failures[(h->n_failures - i) % TRACE_FAILURES_MAX])
            return -EBADMSG;
    h->now_ns = h->totals.last_ns;
    b->history = NULL;
    *ret_history = h;
    return 0;
}

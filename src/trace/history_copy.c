/* What happens to blocks while they live: copies, sets, prefetches, and what the system does. See history.h. */
#include <stdlib.h>
#include <string.h>

#include "trace/history_internal.h"

enum {
    RING_MIN = 4,
    FOLD_FOR_MOMENTS = 64, /* ended blocks that may go to make room for moments, at once */
};
#define IMPLICIT_MAX_BYTES (UINT64_C(1) << 47) /* no host range is larger than the address space */

static void flow_add(struct trace_flow *flow, uint64_t bytes)
{
    flow->copies++;
    flow->bytes += bytes;
}

struct trace_activity *history_activity(struct trace_history *h, uint32_t slot)
{
    struct trace_slot *s = pool_slot(&h->pool, slot);
    if (!s->activity) {
        s->activity = calloc(1, sizeof(*s->activity));
        h->n_activities += s->activity != NULL;
    }
    return s->activity;
}

/* ---- moments ---- */

/* Room for more moments. A ring grows only while it has not wrapped: then its moments are in order. */
static void ring_grow(struct trace_history *h, struct trace_activity *a)
{
    uint32_t cap = a->ring_cap ? 2 * a->ring_cap : RING_MIN;
    if (cap > h->limits.moments)
        cap = h->limits.moments;
    if (cap == a->ring_cap || a->in_ring > a->ring_cap)
        return;
    for (unsigned i = 0;
         i < FOLD_FOR_MOMENTS && h->moments + cap - a->ring_cap > h->limits.moments_all; i++) {
        if (!h->ended_ages.prev)
            return;
        history_block_fold(h, h->ended_ages.prev);
    }
    if (h->moments + cap - a->ring_cap > h->limits.moments_all)
        return;
    struct trace_moment *ring = realloc(a->ring, cap * sizeof(*ring));
    if (!ring)
        return;
    h->moments += cap - a->ring_cap;
    a->ring = ring;
    a->ring_cap = cap;
}

static void moment_add(struct trace_history *h, struct trace_activity *a,
                       const struct trace_event *e, uint64_t offset, uint64_t peer)
{
    a->moments++;
    if (a->in_ring == a->ring_cap)
        ring_grow(h, a);
    if (a->ring_cap == 0) {
        h->totals.unkept_moments++;
        return;
    }
    a->ring[a->in_ring++ & (a->ring_cap - 1)] = (struct trace_moment){
        .time_ns = h->now_ns,
        .offset = offset,
        .size = e->size,
        .peer = peer,
        .call = e->call,
        .site = e->site,
        .tid = e->tid,
        .result = e->result,
        .kind = (uint8_t)e->kind,
        .direction = e->direction,
        .detail = e->detail,
        .flags = (uint8_t)e->flags,
    };
}

/* ---- repeated copies ---- */

/* Was this range copied in this direction before? The ranges with most copies are remembered; of those with the fewest, a
 * random one goes, so that a program that copies more ranges in turn than there is room for is still noticed. */
static bool repeat_note(struct trace_history *h, struct trace_activity *a, uint64_t offset,
                        uint64_t size, uint8_t direction)
{
    uint32_t least = 0;
    for (uint32_t k = 0; k < REPEATS_SLOTS; k++) {
        uint32_t i = (a->repeat_last + k) % REPEATS_SLOTS;
        struct trace_repeat *r = &a->repeats[i];
        if (r->copies > 0 && r->offset == offset && r->size == size && r->direction == direction) {
            r->copies++;
            a->repeat_last = i;
            a->repeated++;
            a->repeated_bytes += size;
            return true;
        }
        if (k == 0 || r->copies < a->repeats[least].copies ||
            (r->copies > 0 && r->copies == a->repeats[least].copies && (h->random >> k & 1)))
            least = i;
    }
    h->random = h->random * 1664525u + 1013904223u;
    h->random ^= h->random >> 16;
    if (a->repeats[least].copies <= 1 || (h->random & 31) == 0)
        a->repeats[least] = (struct trace_repeat){offset, size, 1, direction};
    a->repeat_last = least;
    return false;
}

/* ---- ranges known from copies only ---- */

/* Add all that `from` knows to `to`; moments and ranges of `from` are given up. */
static void activity_merge(struct trace_history *h, struct trace_activity *to,
                           const struct trace_activity *from)
{
    for (unsigned i = 0; i < TRACE_DIRECTIONS; i++) {
        to->flow[i].copies += from->flow[i].copies;
        to->flow[i].bytes += from->flow[i].bytes;
    }
    const struct trace_flow *more[] = {&from->read, &from->written, &from->pageable, &from->sets,
                                       &from->prefetches};
    struct trace_flow *sums[] = {&to->read, &to->written, &to->pageable, &to->sets,
                                 &to->prefetches};
    for (unsigned i = 0; i < sizeof(sums) / sizeof(sums[0]); i++) {
        sums[i]->copies += more[i]->copies;
        sums[i]->bytes += more[i]->bytes;
    }
    if (from->first_ns && (!to->first_ns || from->first_ns < to->first_ns))
        to->first_ns = from->first_ns;
    if (from->last_ns > to->last_ns)
        to->last_ns = from->last_ns;
    to->repeated += from->repeated;
    to->repeated_bytes += from->repeated_bytes;
    to->moments += from->moments;
    h->totals.unkept_moments += from->in_ring < from->ring_cap ? from->in_ring : from->ring_cap;
    if (from->system && !to->system)
        to->system = calloc(1, sizeof(*to->system));
    for (unsigned i = 0; from->system && to->system && i < TRACE_SYSTEM_KINDS; i++) {
        to->system->all[i] += from->system->all[i];
        to->system->early[i] += from->system->early[i];
    }
}

static uint32_t implicit_overlapping(struct trace_history *h, uint64_t address, uint64_t end)
{
    uint32_t slot;
    if (!trace_ranges_floor(&h->ranges[LAYER_IMPLICIT], end - 1, &slot))
        return 0;
    const struct trace_slot *s = pool_slot(&h->pool, slot);
    return s->address + s->size > address ? slot : 0;
}

/* Make room: the range that was copied longest ago goes, roughly: one that was copied since the hand passed last stays. */
static void implicit_evict(struct trace_history *h)
{
    for (;;) {
        uint32_t slot = h->implicit_ages.prev;
        struct trace_slot *s = pool_slot(&h->pool, slot);
        if (!s->recent) {
            history_block_drop(h, slot, TRACE_END_FREE);
            h->totals.folded_implicit++;
            return;
        }
        s->recent = false;
        history_age_remove(h, &h->implicit_ages, slot);
        history_age_add(h, &h->implicit_ages, slot);
    }
}

/* The range known from copies that has all of [address, +size): ranges that overlap with it become one. 0: not kept. */
static uint32_t implicit_take(struct trace_history *h, const struct trace_event *e,
                              uint64_t address)
{
    uint64_t start = address, end = address + e->size;
    struct trace_activity merged = {0};
    struct trace_event begin = {
        .address = address,
        .call = e->call,
        .pid = e->pid,
        .tid = e->tid,
        .site = e->site,
        .function = e->function,
        .device = -1,
    };
    uint64_t merged_ranges = 0;
    if (e->size == 0 || e->size > IMPLICIT_MAX_BYTES)
        return 0;
    for (uint32_t slot; (slot = implicit_overlapping(h, start, end)) != 0; merged_ranges++) {
        const struct trace_slot *s = pool_slot(&h->pool, slot);
        if (s->address <= start && s->address + s->size >= end)
            return slot; /* can only be the first */
        start = s->address < start ? s->address : start;
        end = s->address + s->size > end ? s->address + s->size : end;
        /* The line that copied first names it. */
        begin.site = s->site;
        begin.call = s->call;
        begin.tid = s->tid;
        begin.function = s->function;
        if (s->activity)
            activity_merge(h, &merged, s->activity);
        history_block_drop(h, slot, TRACE_END_LOST);
    }
    while (h->n_implicit >= h->limits.implicit)
        implicit_evict(h);
    begin.address = start;
    begin.size = end - start;
    uint32_t slot = history_block_begin(h, &begin, LAYER_IMPLICIT, false);
    if (slot && merged_ranges) {
        h->totals.merged_implicit += merged_ranges;
        struct trace_activity *a = history_activity(h, slot);
        if (a) {
            *a = merged;
            merged.system = NULL;
            for (unsigned i = 0; i < ORDERS; i++)
                trace_order_move(&h->active[i], &h->pool, i, slot,
                                 history_block_value(pool_slot(&h->pool, slot), i));
        }
    }
    free(merged.system);
    return slot;
}

/* ---- copies ---- */

/* Of a copy whose direction the call did not tell: by what is known of both sides. Managed memory may be anywhere. */
static uint8_t direction_of(const struct trace_history *h, const struct trace_event *e,
                            uint32_t from, uint32_t to)
{
    if (e->direction != TRACE_DIRECTION_UNKNOWN || !from || !to)
        return e->direction;
    uint8_t source = pool_slot(&h->pool, from)->space, target = pool_slot(&h->pool, to)->space;
    if (source == MEMOIR_SPACE_MANAGED || target == MEMOIR_SPACE_MANAGED)
        return TRACE_DIRECTION_UNKNOWN;
    return space_of_device(source) ? (space_of_device(target) ? TRACE_ON_DEVICE : TRACE_FROM_DEVICE)
                                   : (space_of_device(target) ? TRACE_TO_DEVICE : TRACE_ON_HOST);
}

/* One side of a copy; 1: the range was copied before, 0: not, -1: not known. */
static int copy_side(struct trace_history *h, uint32_t slot, const struct trace_event *e,
                     bool target)
{
    struct trace_activity *a = history_activity(h, slot);
    if (!a) {
        h->totals.unkept_moments++;
        return -1;
    }
    struct trace_slot *s = pool_slot(&h->pool, slot);
    uint64_t offset = (target ? e->address : e->source) - s->address;
    struct trace_holder *sums = &holders_get(&h->holders, s->holder)->sums;
    s->recent = a->first_ns != 0; /* the copy that made it does not count */
    flow_add(&a->flow[e->direction], e->size);
    flow_add(&sums->flow[e->direction], e->size);
    flow_add(target ? &a->written : &a->read, e->size);
    if (e->flags & TRACE_FLAG_PAGEABLE) {
        flow_add(&a->pageable, e->size);
        flow_add(&sums->pageable, e->size);
    }
    if (a->first_ns == 0)
        a->first_ns = h->now_ns ? h->now_ns : 1;
    a->last_ns = h->now_ns;
    bool repeated = repeat_note(h, a, offset, e->size, e->direction);
    if (repeated) {
        sums->repeated++;
        sums->repeated_bytes += e->size;
    }
    moment_add(h, a, e, offset, target ? e->source : e->address);
    for (unsigned i = 0; i < ORDERS; i++)
        trace_order_move(&h->active[i], &h->pool, i, slot, history_block_value(s, i));
    return repeated;
}

static struct trace_copier *copier_of(struct trace_history *h, const struct trace_event *e)
{
    struct trace_copier *c = copiers_get(&h->holders, copiers_number(&h->holders, e->site));
    if (c->first_ns == 0)
        c->first_ns = h->now_ns ? h->now_ns : 1;
    c->last_ns = h->now_ns;
    return c;
}

static bool failed(struct trace_history *h, const struct trace_event *e)
{
    if (e->result == 0)
        return false;
    h->totals.failed_copies++;
    return true;
}

/* Does a side of a copy need a range that is known from copies only, or a larger one than it has? */
static bool implicit_wanted(const struct trace_history *h, uint32_t slot, uint64_t address,
                            uint64_t size)
{
    const struct trace_slot *s = slot ? pool_slot(&h->pool, slot) : NULL;
    return address && (!s || (s->layer == LAYER_IMPLICIT && s->address + s->size - address < size));
}

void history_copy(struct trace_history *h, const struct trace_event *event)
{
    if (failed(h, event))
        return;
    struct trace_event e = *event;
    uint32_t to = e.address ? history_block_find(h, e.address) : 0;
    uint32_t from = e.source ? history_block_find(h, e.source) : 0;
    e.direction = direction_of(h, &e, from, to);
    bool host_source = e.direction == TRACE_TO_DEVICE || e.direction == TRACE_ON_HOST;
    bool host_target = e.direction == TRACE_FROM_DEVICE || e.direction == TRACE_ON_HOST;
    bool take_source = host_source && implicit_wanted(h, from, e.source, e.size);
    bool take_target = host_target && implicit_wanted(h, to, e.address, e.size);
    if (take_source)
        from = implicit_take(h, &e, e.source);
    if (take_target)
        to = implicit_take(h, &e, e.address);
    if (take_source && to)
        to = history_block_find(
            h, e.address); /* it may have become a part of the other, or made room for it */
    if (take_target && from)
        from = history_block_find(h, e.source);
    h->totals.unknown_sides += !from + (uint64_t)!to;
    int repeated_to = to ? copy_side(h, to, &e, true) : -1;
    int repeated_from = from && from != to ? copy_side(h, from, &e, false) : -1;
    bool repeated = repeated_to != 0 && repeated_from != 0 && repeated_to + repeated_from > -2;
    struct trace_copier *c = copier_of(h, &e);
    flow_add(&c->flow[e.direction], e.size);
    flow_add(&h->totals.flow[e.direction], e.size);
    if (e.flags & TRACE_FLAG_PAGEABLE) {
        flow_add(&c->pageable, e.size);
        flow_add(&h->totals.pageable, e.size);
    }
    if (e.flags & TRACE_FLAG_ASYNC)
        flow_add(&c->async, e.size);
    if (repeated) {
        c->repeated++;
        c->repeated_bytes += e.size;
        h->totals.repeated++;
        h->totals.repeated_bytes += e.size;
    }
}

void history_touch(struct trace_history *h, const struct trace_event *e)
{
    if (failed(h, e))
        return;
    bool set = e->kind == TRACE_SET;
    struct trace_copier *c = copier_of(h, e);
    flow_add(set ? &c->sets : &c->prefetches, e->size);
    uint32_t slot = e->address ? history_block_find(h, e->address) : 0;
    struct trace_activity *a = slot ? history_activity(h, slot) : NULL;
    if (!a) {
        h->totals.unknown_sides += !slot;
        h->totals.unkept_moments += slot != 0;
        return;
    }
    flow_add(set ? &a->sets : &a->prefetches, e->size);
    moment_add(h, a, e, e->address - pool_slot(&h->pool, slot)->address, 0);
}

void history_system(struct trace_history *h, const struct trace_event *e)
{
    sum_add(&h->totals.system[e->detail], e->size);
    uint32_t slot = e->address ? history_block_find(h, e->address) : 0;
    struct trace_activity *a = slot ? history_activity(h, slot) : NULL;
    if (!a)
        return;
    if (!a->system)
        a->system = calloc(1, sizeof(*a->system));
    if (a->system) {
        sum_add(&a->system->all[e->detail], e->size);
        if (a->first_ns == 0)
            sum_add(&a->system->early[e->detail], e->size);
    }
    moment_add(h, a, e, e->address - pool_slot(&h->pool, slot)->address, 0);
}

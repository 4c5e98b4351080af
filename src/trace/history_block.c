/* Blocks begin, end, come back, and are folded. See history.h. */
#include <assert.h>
#include <stdlib.h>

#include "base/hash.h"
#include "trace/history_internal.h"

enum trace_layer history_layer(uint32_t flags)
{
    return flags & TRACE_FLAG_HANDLE   ? LAYER_HANDLE
           : flags & TRACE_FLAG_SYSTEM ? LAYER_SYSTEM
                                       : LAYER_DRIVER;
}

static enum trace_class class_of(uint32_t flags)
{
    return flags & TRACE_FLAG_SHARED       ? TRACE_CLASS_SHARED
           : flags & TRACE_FLAG_REGISTERED ? TRACE_CLASS_REGISTERED
           : flags & TRACE_FLAG_VIRTUAL    ? TRACE_CLASS_VIRTUAL
           : flags & TRACE_FLAG_SYSTEM     ? TRACE_CLASS_SYSTEM
           : flags & TRACE_FLAG_GRAPH      ? TRACE_CLASS_GRAPH
                                           : TRACE_CLASS_OWN;
}

uint64_t history_block_value(const struct trace_slot *s, enum trace_by by)
{
    const struct trace_activity *a = s->activity;
    if (!a)
        return 0;
    const struct trace_flow *f = a->flow;
    return by == TRACE_BY_COUNT ? f[TRACE_DIRECTION_UNKNOWN].copies + f[TRACE_TO_DEVICE].copies +
                                      f[TRACE_FROM_DEVICE].copies
                                : f[TRACE_DIRECTION_UNKNOWN].bytes + f[TRACE_TO_DEVICE].bytes +
                                      f[TRACE_FROM_DEVICE].bytes;
}

/* ---- sums ---- */

/* The holder's live sums change by so much. */
static void holder_change(struct trace_history *h, uint32_t number, int64_t blocks, int64_t bytes)
{
    struct holder *holder = holders_get(&h->holders, number);
    struct trace_holder *sums = &holder->sums;
    uint64_t before = sums->live_bytes;
    sums->live_blocks += (uint64_t)blocks;
    sums->live_bytes += (uint64_t)bytes;
    if (sums->live_bytes > sums->peak_bytes)
        sums->peak_bytes = sums->live_bytes;
    if (sums->class != TRACE_CLASS_OWN || number == 0)
        return;
    struct trace_totals *t = &h->totals;
    t->live_blocks += (uint64_t)blocks;
    t->live_bytes += (uint64_t)bytes;
    if (t->live_bytes > t->peak_bytes)
        t->peak_bytes = t->live_bytes;
    if (space_of_device(sums->space)) {
        t->device_bytes += (uint64_t)bytes;
        if (t->device_bytes > t->device_peak_bytes)
            t->device_peak_bytes = t->device_bytes;
        timeline_device(&h->timeline, t->device_bytes);
    }
    uint32_t loser = timeline_update(&h->timeline, number, &holder->line, before, sums->live_bytes);
    if (loser)
        holders_get(&h->holders, loser)->line = 0;
}

static void sums_allocated(struct trace_history *h, uint32_t number, uint64_t bytes, bool found)
{
    struct trace_holder *sums = &holders_get(&h->holders, number)->sums;
    sums->allocated_blocks++;
    sums->allocated_bytes += bytes;
    if (found) {
        sums->found_blocks++;
        sums->found_bytes += bytes;
    }
    if (sums->class == TRACE_CLASS_OWN) {
        h->totals.allocated_blocks++;
        h->totals.allocated_bytes += bytes;
    }
}

static bool never_copied(const struct trace_slot *s)
{
    return !s->activity || s->activity->first_ns == 0;
}

/* Count an end, or take it back with sign -1. */
static void sums_ended(struct trace_history *h, const struct trace_slot *s, enum trace_end end,
                       int64_t sign)
{
    struct trace_holder *sums = &holders_get(&h->holders, s->holder)->sums;
    uint64_t blocks = (uint64_t)sign, bytes = s->size * (uint64_t)sign;
    if (never_copied(s))
        sums->never_copied_blocks += blocks;
    if (end == TRACE_END_LOST) {
        sums->lost_blocks += blocks;
        sums->lost_bytes += bytes;
        return;
    }
    sums->freed_blocks += blocks;
    sums->freed_bytes += bytes;
    if (end == TRACE_END_EXIT) {
        sums->exit_blocks += blocks;
        sums->exit_bytes += bytes;
    }
    if (sums->class == TRACE_CLASS_OWN) {
        h->totals.freed_blocks += blocks;
        h->totals.freed_bytes += bytes;
    }
}

/* ---- lists ---- */

void history_age_add(struct trace_history *h, struct trace_link *list, uint32_t slot)
{
    struct trace_slot *s = pool_slot(&h->pool, slot);
    s->age_link = (struct trace_link){.prev = list->next};
    if (list->next)
        pool_slot(&h->pool, list->next)->age_link.next = slot;
    else
        list->prev = slot;
    list->next = slot;
}

void history_age_remove(struct trace_history *h, struct trace_link *list, uint32_t slot)
{
    struct trace_link link = pool_slot(&h->pool, slot)->age_link;
    if (link.prev)
        pool_slot(&h->pool, link.prev)->age_link.next = link.next;
    else
        list->prev = link.next;
    if (link.next)
        pool_slot(&h->pool, link.next)->age_link.prev = link.prev;
    else
        list->next = link.prev;
}

static struct context *context_place(struct context *contexts, uint32_t cap, uint64_t handle)
{
    uint32_t at = (uint32_t)hash_mix(handle ^ HASH_K1) & (cap - 1);
    while (contexts[at].used && contexts[at].handle != handle)
        at = (at + 1) & (cap - 1);
    return &contexts[at];
}

/* Contexts without blocks are dropped when the table grows, so that it is bounded by the blocks. */
static bool contexts_grow(struct trace_history *h)
{
    uint32_t live = 0, cap = CONTEXTS_MIN;
    for (uint32_t i = 0; i < h->cap_contexts; i++)
        live += h->contexts[i].first != 0;
    while (cap < 4 * (live + 1))
        cap *= 2;
    struct context *grown = calloc(cap, sizeof(*grown));
    if (!grown)
        return false;
    for (uint32_t i = 0; i < h->cap_contexts; i++)
        if (h->contexts[i].first)
            *context_place(grown, cap, h->contexts[i].handle) = h->contexts[i];
    free(h->contexts);
    h->contexts = grown;
    h->cap_contexts = cap;
    h->n_contexts = live;
    return true;
}

/* Without memory for the list, a search finds the block when its context is reset. */
static void context_add(struct trace_history *h, uint32_t slot)
{
    struct trace_slot *s = pool_slot(&h->pool, slot);
    s->context_link = (struct trace_link){0};
    if (2 * (h->n_contexts + 1) > h->cap_contexts && !contexts_grow(h) &&
        h->n_contexts + 1 >= h->cap_contexts) {
        s->unlisted = true;
        h->n_unlisted++;
        return;
    }
    struct context *c = context_place(h->contexts, h->cap_contexts, s->context);
    if (!c->used) {
        *c = (struct context){.handle = s->context, .used = 1};
        h->n_contexts++;
    }
    s->context_link.next = c->first;
    if (c->first)
        pool_slot(&h->pool, c->first)->context_link.prev = slot;
    c->first = slot;
}

static void context_remove(struct trace_history *h, uint32_t slot)
{
    struct trace_slot *s = pool_slot(&h->pool, slot);
    struct trace_link link = s->context_link;
    if (s->unlisted) {
        s->unlisted = false;
        h->n_unlisted--;
        return;
    }
    if (link.next)
        pool_slot(&h->pool, link.next)->context_link.prev = link.prev;
    if (link.prev)
        pool_slot(&h->pool, link.prev)->context_link.next = link.next;
    else
        context_place(h->contexts, h->cap_contexts, s->context)->first = link.next;
}

/* ---- begin and end ---- */

static bool contains(const struct trace_slot *s, uint64_t address)
{
    return address - s->address < (s->size ? s->size : 1);
}

static uint64_t last_byte(uint64_t address, uint64_t size)
{
    return address + (size ? size - 1 : 0);
}

/* An active block of the layer that has a byte of the range, or 0. */
static uint32_t overlapping(struct trace_history *h, enum trace_layer layer, uint64_t address,
                            uint64_t size)
{
    uint32_t slot = 0;
    if (layer == LAYER_HANDLE) {
        slot = trace_hash_find(&h->hash[layer], &h->pool, address);
        return slot && pool_slot(&h->pool, slot)->active ? slot : 0;
    }
    if (!trace_ranges_floor(&h->ranges[layer], last_byte(address, size), &slot))
        return 0;
    const struct trace_slot *s = pool_slot(&h->pool, slot);
    return last_byte(s->address, s->size) >= address ? slot : 0;
}

bool history_block_activate(struct trace_history *h, uint32_t slot)
{
    struct trace_slot *s = pool_slot(&h->pool, slot);
    if (s->layer != LAYER_HANDLE && trace_ranges_insert(&h->ranges[s->layer], s->address, slot) < 0)
        return false;
    context_add(h, slot);
    for (unsigned i = 0; i < ORDERS; i++)
        trace_order_add(&h->active[i], &h->pool, i, slot, history_block_value(s, i));
    s->active = true;
    s->end = TRACE_END_NONE;
    s->end_ns = 0;
    s->state = s->layer == LAYER_IMPLICIT ? TRACE_STATE_UNKNOWN : TRACE_STATE_ALLOCATED;
    if (s->layer == LAYER_IMPLICIT)
        h->n_implicit++;
    else
        h->n_active++;
    if (s->layer < LAYER_IMPLICIT)
        h->epoch++;
    return true;
}

static void block_deactivate(struct trace_history *h, uint32_t slot)
{
    struct trace_slot *s = pool_slot(&h->pool, slot);
    if (s->layer != LAYER_HANDLE)
        trace_ranges_remove(&h->ranges[s->layer], s->address);
    context_remove(h, slot);
    for (unsigned i = 0; i < ORDERS; i++)
        trace_order_remove(&h->active[i], &h->pool, i, slot);
    if (s->layer == LAYER_IMPLICIT) {
        history_age_remove(h, &h->implicit_ages, slot);
        h->n_implicit--;
    } else {
        h->n_active--;
    }
    s->active = false;
}

uint32_t history_block_begin(struct trace_history *h, const struct trace_event *e,
                             enum trace_layer layer, bool found)
{
    enum trace_class class = layer == LAYER_IMPLICIT ? TRACE_CLASS_IMPLICIT : class_of(e->flags);
    uint32_t holder = holders_number(&h->holders, e->site, e->device, e->space, class);
    sums_allocated(h, holder, e->size, found);
    bool room = layer == LAYER_IMPLICIT || h->n_active < h->limits.blocks;
    uint32_t slot = room ? trace_pool_take(&h->pool) : 0;
    struct trace_slot *s = slot ? pool_slot(&h->pool, slot) : NULL;
    if (s) {
        uint32_t generation = s->generation;
        *s = (struct trace_slot){
            .address = e->address,
            .size = e->size,
            .start_ns = h->now_ns,
            .context = e->context,
            .call = e->call,
            .site = e->site,
            .flags = e->flags,
            .device = e->device,
            .tid = e->tid,
            .holder = holder,
            .generation = generation,
            .function = e->function,
            .space = e->space,
            .class = class,
            .layer = layer,
            .used = true,
            .found = found,
        };
        if (trace_hash_add(&h->hash[layer], &h->pool, slot) == 0) {
            if (history_block_activate(h, slot)) {
                if (layer == LAYER_IMPLICIT)
                    history_age_add(h, &h->implicit_ages, slot);
                holder_change(h, holder, 1, (int64_t)e->size);
                return slot;
            }
            trace_hash_remove(&h->hash[layer], &h->pool, slot);
        }
        trace_pool_give(&h->pool, slot);
    }
    /* Its free will find nothing: what is not kept cannot be live. */
    struct trace_holder *sums = &holders_get(&h->holders, holder)->sums;
    sums->lost_blocks++;
    sums->lost_bytes += e->size;
    h->totals.unkept_blocks++;
    return 0;
}

/* It is no longer live. What becomes of it is the caller's business. */
static void block_finish(struct trace_history *h, uint32_t slot, enum trace_end end)
{
    struct trace_slot *s = pool_slot(&h->pool, slot);
    block_deactivate(h, slot);
    s->end = (uint8_t)end;
    s->end_ns = h->now_ns;
    s->state = end == TRACE_END_LOST || s->layer == LAYER_IMPLICIT ? TRACE_STATE_UNKNOWN
                                                                   : TRACE_STATE_FREED;
    sums_ended(h, s, end, 1);
    holder_change(h, s->holder, -1, -(int64_t)s->size);
}

static void block_release(struct trace_history *h, uint32_t slot)
{
    struct trace_slot *s = pool_slot(&h->pool, slot);
    trace_hash_remove(&h->hash[s->layer], &h->pool, slot);
    holders_get(&h->holders, s->holder)->sums.folded_blocks++;
    if (s->activity) {
        h->moments -= s->activity->ring_cap;
        h->n_activities--;
        free(s->activity->ring);
        free(s->activity->system);
        free(s->activity);
        s->activity = NULL;
    }
    trace_pool_give(&h->pool, slot);
}

void history_block_end(struct trace_history *h, uint32_t slot, enum trace_end end)
{
    block_finish(h, slot, end);
    if (end == TRACE_END_LOST)
        h->totals.superseded++;
    for (unsigned i = 0; i < ORDERS; i++)
        trace_order_add(&h->ended[i], &h->pool, i, slot,
                        history_block_value(pool_slot(&h->pool, slot), i));
    history_age_add(h, &h->ended_ages, slot);
    if (++h->n_ended > h->limits.ended)
        history_block_fold(h, h->ended_ages.prev);
}

void history_block_fold(struct trace_history *h, uint32_t slot)
{
    assert(!pool_slot(&h->pool, slot)->active);
    for (unsigned i = 0; i < ORDERS; i++)
        trace_order_remove(&h->ended[i], &h->pool, i, slot);
    history_age_remove(h, &h->ended_ages, slot);
    h->n_ended--;
    if (pool_slot(&h->pool, slot)->layer == LAYER_IMPLICIT)
        h->totals.folded_implicit++;
    else
        h->totals.folded_blocks++;
    block_release(h, slot);
}

void history_block_drop(struct trace_history *h, uint32_t slot, enum trace_end end)
{
    block_finish(h, slot, end);
    block_release(h, slot);
}

/* ---- finding ---- */

static uint32_t find_in(struct trace_history *h, enum trace_layer layer, uint64_t address)
{
    uint32_t slot = trace_hash_find(&h->hash[layer], &h->pool, address);
    if (slot && pool_slot(&h->pool, slot)->active)
        return slot;
    if (trace_ranges_floor(&h->ranges[layer], address, &slot) &&
        contains(pool_slot(&h->pool, slot), address))
        return slot;
    return 0;
}

uint32_t history_block_find(struct trace_history *h, uint64_t address)
{
    struct near *near = history_near(h, address);
    if (near->slot) {
        const struct trace_slot *s = pool_slot(&h->pool, near->slot);
        if (s->used && s->active && s->layer < LAYER_HANDLE && contains(s, address) &&
            (s->layer == LAYER_DRIVER || (near->epoch == h->epoch && near->address == address)))
            return near->slot;
    }
    for (unsigned layer = 0; layer < LAYERS_OF_RANGES; layer++) {
        uint32_t slot = find_in(h, layer, address);
        if (slot) {
            *near = (struct near){address, slot, h->epoch};
            return slot;
        }
    }
    uint32_t slot = trace_hash_find(&h->hash[LAYER_HANDLE], &h->pool, address);
    return slot && pool_slot(&h->pool, slot)->active ? slot : 0;
}

/* ---- events ---- */

void history_alloc(struct trace_history *h, const struct trace_event *e)
{
    enum trace_layer layer = history_layer(e->flags);
    bool found = e->kind == TRACE_FOUND;
    if (e->address == 0) {
        h->totals.invalid++;
        return;
    }
    for (uint32_t slot; (slot = overlapping(h, layer, e->address, e->size)) != 0;) {
        struct trace_slot *s = pool_slot(&h->pool, slot);
        if (found && s->address == e->address && s->size == e->size) {
            s->stale = false;
            return; /* known */
        }
        history_block_end(h, slot, TRACE_END_LOST);
    }
    history_block_begin(h, e, layer, found);
}

/* Unmap a part of the address space: mappings in it end, those that reach out of it keep the rest. */
static bool unmap(struct trace_history *h, const struct trace_event *e)
{
    bool any = false;
    for (uint32_t slot; (slot = overlapping(h, LAYER_SYSTEM, e->address, e->size)) != 0;
         any = true) {
        struct trace_slot s = *pool_slot(&h->pool, slot);
        uint64_t end = s.address + s.size, cut_end = e->address + e->size;
        struct trace_event rest = {
            .address = cut_end,
            .context = s.context,
            .call = s.call,
            .tid = s.tid,
            .site = s.site,
            .function = s.function,
            .device = s.device,
            .flags = s.flags,
            .space = s.space,
        };
        history_block_end(h, slot, TRACE_END_FREE);
        if (end > cut_end) {
            rest.size = end - cut_end;
            history_block_begin(h, &rest, LAYER_SYSTEM, s.found);
        }
        if (s.address < e->address) {
            rest.address = s.address;
            rest.size = e->address - s.address;
            history_block_begin(h, &rest, LAYER_SYSTEM, s.found);
        }
    }
    return any;
}

/* The latest block of the address; `flags` may leave out that the address is a handle. */
static uint32_t latest(struct trace_history *h, const struct trace_event *e)
{
    enum trace_layer layer = history_layer(e->flags);
    uint32_t slot = trace_hash_find(&h->hash[layer], &h->pool, e->address);
    if (!slot && layer == LAYER_DRIVER)
        slot = trace_hash_find(&h->hash[LAYER_HANDLE], &h->pool, e->address);
    return slot;
}

void history_free_event(struct trace_history *h, const struct trace_event *e)
{
    if (history_layer(e->flags) == LAYER_SYSTEM && e->size > 0) {
        h->totals.unknown_frees += !unmap(h, e);
        return;
    }
    uint32_t slot = latest(h, e);
    if (slot && pool_slot(&h->pool, slot)->active)
        history_block_end(h, slot, TRACE_END_FREE);
    else
        h->totals.unknown_frees++;
}

void history_restore(struct trace_history *h, const struct trace_event *e)
{
    uint32_t slot = latest(h, e);
    struct trace_slot *s = slot ? pool_slot(&h->pool, slot) : NULL;
    if (s && s->active)
        return; /* its free was not seen */
    if (!s || s->end != TRACE_END_FREE || h->n_active >= h->limits.blocks ||
        overlapping(h, s->layer, s->address, s->size)) {
        h->totals.unknown_restores++;
        if (!s && e->address && e->size &&
            !overlapping(h, history_layer(e->flags), e->address, e->size))
            history_block_begin(h, e, history_layer(e->flags), true);
        return;
    }
    struct trace_slot before = *s;
    for (unsigned i = 0; i < ORDERS; i++)
        trace_order_remove(&h->ended[i], &h->pool, i, slot);
    if (!history_block_activate(h, slot)) {
        for (unsigned i = 0; i < ORDERS; i++)
            trace_order_add(&h->ended[i], &h->pool, i, slot, history_block_value(s, i));
        h->totals.unknown_restores++;
        return;
    }
    history_age_remove(h, &h->ended_ages, slot);
    h->n_ended--;
    sums_ended(h, &before, TRACE_END_FREE, -1);
    holder_change(h, s->holder, 1, (int64_t)s->size);
}

/* End all active blocks that are of this context, of this device, or of any. */
static void end_scan(struct trace_history *h, const struct trace_event *e, bool all,
                     enum trace_end end)
{
    for (uint32_t slot = 1; slot < h->pool.n_slots; slot++) {
        const struct trace_slot *s = pool_slot(&h->pool, slot);
        if (!s->used || !s->active)
            continue;
        if (all || (s->unlisted && s->context == e->context) ||
            (e->context == 0 && s->layer != LAYER_IMPLICIT && s->layer != LAYER_SYSTEM &&
             s->device == e->device))
            history_block_end(h, slot, end);
    }
}

void history_reset(struct trace_history *h, const struct trace_event *e)
{
    if (e->context == 0) {
        if (e->device >= 0)
            end_scan(h, e, false, TRACE_END_RESET);
        else
            h->totals.invalid++;
        return;
    }
    if (h->n_unlisted > 0)
        end_scan(h, e, false, TRACE_END_RESET);
    if (h->cap_contexts == 0)
        return;
    struct context *c = context_place(h->contexts, h->cap_contexts, e->context);
    while (c->used && c->first)
        history_block_end(h, c->first, TRACE_END_RESET);
}

void history_exit(struct trace_history *h, const struct trace_event *e)
{
    h->totals.exit_ns = h->now_ns;
    h->totals.exit_result = e->result;
    end_scan(h, e, true, TRACE_END_EXIT);
}

/* ---- after an interruption ---- */

void trace_history_sweep_begin(struct trace_history *h)
{
    history_enter(h);
    for (uint32_t slot = 1; slot < h->pool.n_slots; slot++) {
        struct trace_slot *s = pool_slot(&h->pool, slot);
        s->stale = s->used && s->active && s->layer != LAYER_IMPLICIT;
    }
    history_leave(h);
}

void trace_history_sweep_end(struct trace_history *h)
{
    history_enter(h);
    for (uint32_t slot = 1; slot < h->pool.n_slots; slot++) {
        struct trace_slot *s = pool_slot(&h->pool, slot);
        if (s->used && s->active && s->stale)
            history_block_end(h, slot, TRACE_END_LOST);
    }
    history_leave(h);
}

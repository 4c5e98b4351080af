/* The history as a whole: its lock, the queue before it, and which event is whose. See history.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "trace/history_internal.h"

enum {
    BLOCKS = 4 << 20,
    ENDED = 1 << 16,
    IMPLICIT = 1 << 14,
    MOMENTS = 32,
    MOMENTS_LIMIT = 4096,
    MOMENTS_ALL = 1 << 20,
    HOLDERS = 1 << 16,
};

static void limits_default(struct trace_limits *l)
{
    l->blocks = l->blocks ? l->blocks : BLOCKS;
    l->ended = l->ended ? l->ended : ENDED;
    l->implicit = l->implicit ? l->implicit : IMPLICIT;
    l->moments = l->moments ? l->moments : MOMENTS;
    if (l->moments > MOMENTS_LIMIT)
        l->moments = MOMENTS_LIMIT;
    while (l->moments & (l->moments - 1)) /* down to a power of two */
        l->moments &= l->moments - 1;
    l->moments_all = l->moments_all ? l->moments_all : MOMENTS_ALL;
    l->holders = l->holders ? l->holders : HOLDERS;
}

int trace_history_new(const struct trace_identity *identity, const struct trace_limits *limits,
                      struct trace_history **ret_history)
{
    struct trace_history *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    pthread_mutex_init(&h->lock, NULL);
    h->identity = *identity;
    if (limits)
        h->limits = *limits;
    limits_default(&h->limits);
    uint64_t max = (uint64_t)h->limits.blocks + h->limits.ended + h->limits.implicit + 1;
    h->pool.max = max > UINT32_MAX ? UINT32_MAX : (uint32_t)max;
    h->random = 1;
    int r = holders_init(&h->holders, h->limits.holders);
    if (r == 0)
        r = trace_sites_new(&h->sites);
    if (r == 0)
        r = timeline_init(&h->timeline);
    h->queue.head = h->queue.tail = calloc(1, sizeof(*h->queue.head));
    if (r < 0 || !h->queue.head) {
        trace_history_free(h);
        return -ENOMEM;
    }
    *ret_history = h;
    return 0;
}

void trace_history_free(struct trace_history *h)
{
    if (!h)
        return;
    for (struct queue_chunk *c = h->queue.head, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    trace_pool_release(&h->pool);
    for (unsigned i = 0; i < LAYERS; i++)
        free(h->hash[i].heads);
    for (unsigned i = 0; i < LAYERS_OF_RANGES; i++)
        trace_ranges_release(&h->ranges[i]);
    for (unsigned i = 0; i < TRACE_FAILURES_MAX; i++)
        free(h->failures[i]);
    free(h->contexts);
    holders_release(&h->holders);
    timeline_release(&h->timeline);
    trace_sites_free(h->sites);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

/* ---- events ---- */

static void gap(struct trace_history *h, const struct trace_event *e)
{
    h->gaps[h->totals.gaps++ % TRACE_GAPS_MAX] = (struct trace_gap){h->now_ns, e->size};
    sum_add(&h->totals.gap_events, e->size);
}

static void apply(struct trace_history *h, const struct trace_event *e)
{
    uint64_t end;
    bool ranged = e->kind != TRACE_GAP && e->kind != TRACE_SYSTEM && e->kind != TRACE_FAILED &&
                  !(e->flags & TRACE_FLAG_HANDLE);
    if (e->kind == TRACE_NONE || e->kind > TRACE_FOUND || e->direction >= TRACE_DIRECTIONS ||
        (e->kind == TRACE_SYSTEM && e->detail >= TRACE_SYSTEM_KINDS) ||
        (ranged && (__builtin_add_overflow(e->address, e->size, &end) ||
                    __builtin_add_overflow(e->source, e->size, &end)))) {
        h->totals.invalid++;
        return;
    }
    if (e->time_ns < h->now_ns)
        h->totals.late++;
    else
        h->now_ns = e->time_ns;
    if (h->totals.events++ == 0)
        h->totals.first_ns = h->now_ns;
    timeline_advance(&h->timeline, h->now_ns);
    switch ((enum trace_kind)e->kind) {
    case TRACE_COPY:
        history_copy(h, e);
        break;
    case TRACE_ALLOC:
    case TRACE_FOUND:
        history_alloc(h, e);
        break;
    case TRACE_FREE:
        history_free_event(h, e);
        break;
    case TRACE_RESTORE:
        history_restore(h, e);
        break;
    case TRACE_FAILED:
        history_failed(h, e);
        break;
    case TRACE_SET:
    case TRACE_PREFETCH:
        history_touch(h, e);
        break;
    case TRACE_SYSTEM:
        history_system(h, e);
        break;
    case TRACE_RESET:
        history_reset(h, e);
        break;
    case TRACE_EXIT:
        history_exit(h, e);
        break;
    case TRACE_GAP:
        gap(h, e);
        break;
    case TRACE_NONE:
        break;
    }
}

/* ---- what will be needed ---- */

/* With more blocks than the caches hold, an event waits for memory a dozen times. In a batch these waits overlap: what later events
 * will touch is fetched in three steps, each of which needs what the one before fetched. */
enum {
    AHEAD_INDEX = 12,
    AHEAD_BLOCK = 8,
    AHEAD_REST = 4,
    PREFETCH_MIN = 16,
    FETCH_BLOCKS_MIN = 2048
};

/* The block that probably has the address, or 0. */
static uint32_t guess(struct trace_history *h, uint64_t address)
{
    const struct near *near = history_near(h, address);
    const uint32_t *head = trace_hash_head(&h->hash[LAYER_DRIVER], address);
    return near->slot && near->address == address ? near->slot : head ? *head : 0;
}

static void fetch_index(struct trace_history *h, uint64_t address)
{
    __builtin_prefetch(history_near(h, address));
    __builtin_prefetch(trace_hash_head(&h->hash[LAYER_DRIVER], address));
}

static void fetch_block(struct trace_history *h, uint64_t address)
{
    uint32_t slot = guess(h, address);
    const char *s = slot ? (const char *)pool_slot(&h->pool, slot) : NULL;
    for (size_t i = 0; s && i < sizeof(struct trace_slot); i += 64)
        __builtin_prefetch(s + i, 1);
}

static void fetch_rest(struct trace_history *h, uint64_t address)
{
    uint32_t slot = guess(h, address);
    const struct trace_slot *s = slot ? pool_slot(&h->pool, slot) : NULL;
    if (!s || !s->used)
        return;
    for (size_t i = 0; s->activity && i < sizeof(*s->activity); i += 64)
        __builtin_prefetch((const char *)s->activity + i, 1);
    for (unsigned i = 0; i < ORDERS; i++) {
        __builtin_prefetch(&pool_slot(&h->pool, s->order_link[i].prev)->order_link[i], 1);
        __builtin_prefetch(&pool_slot(&h->pool, s->order_link[i].next)->order_link[i], 1);
    }
}

static void fetch_ahead(struct trace_history *h, const struct trace_event *events, size_t i,
                        size_t n)
{
    void (*const steps[])(struct trace_history *, uint64_t) = {fetch_index, fetch_block,
                                                               fetch_rest};
    static const uint8_t ahead[] = {AHEAD_INDEX, AHEAD_BLOCK, AHEAD_REST};
    for (unsigned k = 0; k < 3; k++) {
        if (i + ahead[k] >= n)
            continue;
        steps[k](h, events[i + ahead[k]].address);
        if (events[i + ahead[k]].source)
            steps[k](h, events[i + ahead[k]].source);
    }
}

/* ---- the queue ---- */

/* Apply up to `n` queued events. Caller has the lock. */
static void queue_apply(struct trace_history *h, uint64_t n)
{
    struct queue *q = &h->queue;
    uint64_t done = 0;
    while (done < n) {
        struct queue_chunk *c = q->head;
        uint32_t filled = load_acquire(&c->filled);
        for (; q->taken < filled && done < n; done++)
            apply(h, &c->events[q->taken++]);
        if (q->taken < QUEUE_CHUNK)
            break;
        struct queue_chunk *next = load_acquire(&c->next);
        if (!next) /* the feeder still points at it */
            break;
        q->head = next;
        q->taken = 0;
        free(c);
    }
    store_release(&q->applied, q->applied + done);
}

static uint64_t queue_pending(const struct queue *q)
{
    return load_acquire(&q->pushed) - load_acquire(&q->applied);
}

/* Feeder's thread, without the lock. False: full, or no memory. */
static bool queue_push(struct queue *q, const struct trace_event *e)
{
    struct queue_chunk *c = q->tail;
    if (queue_pending(q) >= TRACE_QUEUE_MAX)
        return false;
    if (c->filled == QUEUE_CHUNK) {
        struct queue_chunk *next = calloc(1, sizeof(*next));
        if (!next)
            return false;
        store_release(&c->next, next);
        q->tail = c = next;
    }
    c->events[c->filled] = *e;
    store_release(&c->filled, c->filled + 1);
    store_release(&q->pushed, q->pushed + 1);
    return true;
}

void history_enter(struct trace_history *h)
{
    pthread_mutex_lock(&h->lock);
    queue_apply(h, queue_pending(&h->queue));
}

void history_leave(struct trace_history *h)
{
    /* No more than came meanwhile: a reader must not become the one that applies events for ever. */
    queue_apply(h, queue_pending(&h->queue));
    pthread_mutex_unlock(&h->lock);
}

void trace_history_events(struct trace_history *h, const struct trace_event *events, size_t n)
{
    size_t i = 0;
    if (h->frozen)
        return;
    while (i < n && pthread_mutex_trylock(&h->lock) != 0) {
        if (queue_push(&h->queue, &events[i])) {
            i++;
            continue;
        }
        pthread_mutex_lock(&h->lock);
        h->totals.waits++;
        break;
    }
    if (i == n)
        return;
    queue_apply(h, queue_pending(&h->queue));
    bool fetch = n >= PREFETCH_MIN && h->pool.in_use >= FETCH_BLOCKS_MIN;
    for (; i < n; i++) {
        if (fetch)
            fetch_ahead(h, events, i, n);
        apply(h, &events[i]);
    }
    pthread_mutex_unlock(&h->lock);
}

void trace_history_event(struct trace_history *h, const struct trace_event *event)
{
    trace_history_events(h, event, 1);
}

/* ---- what it is about ---- */

struct trace_identity trace_history_identity(struct trace_history *h)
{
    history_enter(h);
    struct trace_identity identity = h->identity;
    history_leave(h);
    return identity;
}

void trace_history_rename(struct trace_history *h, const char *name)
{
    history_enter(h);
    strncpy(h->identity.name, name, TRACE_NAME_MAX - 1);
    h->identity.name[TRACE_NAME_MAX - 1] = '\0';
    history_leave(h);
}

bool trace_history_frozen(const struct trace_history *h)
{
    return h->frozen;
}

struct trace_sites *trace_history_sites(struct trace_history *h)
{
    return h->sites;
}

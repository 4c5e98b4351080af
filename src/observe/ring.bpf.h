/* ring.bpf.h: the rings that carry events and stacks to the observer, and the shares of them
 * that a process has. Included by probe.bpf.c alone. */
#pragma once

enum { RING_NO_WAKEUP = 1, RING_FORCE_WAKEUP = 2, RING_AVAILABLE = 0 };

/* `all` bytes wait in the ring, `told` were read of this process's. A process gets as much of a
 * ring as is free beyond its share, and its quota at most: few or many that fill theirs leave
 * room for others. */
static __always_inline bool share_admits(struct wire_share *s, uint64_t all, uint64_t told,
                                         uint64_t bytes, uint64_t quota)
{
    uint64_t produced = s->produced;
    int64_t waits = (int64_t)(produced - told - s->amended);
    if (waits < 0)
        s->amended = produced - told;
    else if (waits > (int64_t)all)
        /* More than there is: an observer was killed before it could tell what it had read. */
        s->amended += (uint64_t)waits - all;
    s->consumed = told + s->amended;
    return s->produced - s->consumed + bytes <= quota;
}

/* What the observer has read is looked up only when the last figure is not good enough. */
static __noinline bool ring_has_room(const struct at *at, uint64_t bytes)
{
    struct wire_share *s = &at->process->events;
    uint64_t all = bpf_ringbuf_query(&ring, RING_AVAILABLE), size = at->settings->ring_bytes;
    uint64_t quota = at->settings->ring_quota, left = size > all ? size - all : 0;
    if (left < quota)
        quota = left;
    if (s->produced - s->consumed + bytes <= quota)
        return true;
    const struct wire_consumed *done = bpf_map_lookup_elem(&consumed, &at->pid);
    return share_admits(s, all, done ? done->events : 0, bytes, quota);
}

static __noinline bool stacks_have_room(const struct at *at, uint64_t bytes)
{
    struct wire_share *s = &at->process->stacks;
    uint64_t all = bpf_ringbuf_query(&stacks, RING_AVAILABLE);
    uint64_t left = WIRE_STACK_RING_BYTES > all ? WIRE_STACK_RING_BYTES - all : 0;
    uint64_t quota = left < WIRE_STACK_QUOTA ? left : WIRE_STACK_QUOTA;
    if (s->produced - s->consumed + bytes <= quota)
        return true;
    const struct wire_consumed *done = bpf_map_lookup_elem(&consumed, &at->pid);
    return share_admits(s, all, done ? done->stacks : 0, bytes, quota);
}

/* For an event. A process that has room gets a credit, so that not every event has to look.
 * Threads that take from it at the same time may both get the same part: the ring itself has the
 * last word. */
static __always_inline bool ring_admits(const struct at *at, uint64_t bytes)
{
    struct wire_process *p = at->process;
    uint64_t credit = p->credit;
    if (credit >= bytes) {
        p->credit = credit - bytes;
        return true;
    }
    if (ring_has_room(at, WIRE_RING_CREDIT)) {
        p->credit = WIRE_RING_CREDIT - bytes;
        return true;
    }
    return ring_has_room(at, bytes);
}

static struct wire_event *event_new(const struct at *at, uint16_t kind, uint16_t function)
{
    struct wire_event *e = 0;
    if (ring_admits(at, sizeof(*e)))
        e = bpf_ringbuf_reserve(&ring, sizeof(*e), 0);
    if (!e) {
        __sync_fetch_and_add(&at->process->lost_events, 1);
        return 0;
    }
    __builtin_memset(e, 0, sizeof(*e));
    e->record = WIRE_RECORD_EVENT;
    e->pid = at->pid;
    e->tid = at->tid;
    e->generation = at->generation;
    e->time_ns = bpf_ktime_get_ns();
    e->kind = kind;
    e->function = function;
    e->device = -1;
    return e;
}

/* Count bytes that are put into the ring. Returns how its reader is woken. */
static __always_inline uint64_t produced_add(const struct at *at, uint64_t bytes)
{
    uint64_t before = __sync_fetch_and_add(&at->process->events.produced, bytes);
    if (at->settings->wake)
        return 0; /* the kernel wakes a reader that has read all */
    if (before >> 12 == (before + bytes) >> 12)
        return RING_NO_WAKEUP; /* looking costs a cache miss: the reader writes there */
    return bpf_ringbuf_query(&ring, RING_AVAILABLE) > at->settings->wake_bytes ? RING_FORCE_WAKEUP
                                                                               : RING_NO_WAKEUP;
}

static void event_send(const struct at *at, struct wire_event *e)
{
    uint64_t flags = produced_add(at, sizeof(*e));
    bpf_ringbuf_submit(e, e->has_stack ? RING_FORCE_WAKEUP : flags);
}

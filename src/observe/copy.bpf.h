/* copy.bpf.h: copies. Included by probe.bpf.c alone. */
#pragma once

/* ---- copies that need no look at their return ---- */

/* A return costs the program as much as an entry. It tells whether the call failed, which a copy
 * does for two reasons: its range on the device is invalid, or the device, context or stream is.
 * So a small copy is counted at its entry if this thread has copied that range without an error
 * before and no memory went and no call failed since. Every WIRE_UNCHECKED_MAX-th of them is
 * checked all the same: if that one failed, those before it are doubtful, and are told so. */

static __always_inline bool range_proved(const struct thread *t, uint64_t start, uint64_t size)
{
    for (int i = 0; i < WIRE_PROVED_RANGES; i++)
        if (start >= t->proved[i].start && start < t->proved[i].end &&
            size <= t->proved[i].end - start)
            return true;
    return false;
}

static __always_inline bool copy_proved(const struct at *at, const struct call *call)
{
    struct thread *t = at->thread;
    uint8_t direction = call->direction;
    if (call->size == 0 || call->size > WIRE_UNCHECKED_BYTES ||
        t->proved_epoch != at->process->epoch || t->unchecked + 1 >= WIRE_UNCHECKED_MAX)
        return false;
    bool to = direction == TRACE_TO_DEVICE || direction == TRACE_ON_DEVICE;
    bool from = direction == TRACE_FROM_DEVICE || direction == TRACE_ON_DEVICE;
    if (!to && !from)
        return false; /* the call does not say which side is on the device */
    if ((to && !range_proved(t, call->address, call->size)) ||
        (from && !range_proved(t, call->source, call->size)))
        return false;
    t->unchecked++;
    return true;
}

/* Ranges that touch become one. */
static __noinline void range_prove(struct thread *t, uint64_t start, uint64_t size)
{
    uint64_t end = start + size;
    if (!start || end < start)
        return;
    for (uint32_t i = 0; i < WIRE_PROVED_RANGES; i++) {
        struct proved *p = &t->proved[i];
        if (!p->end || start > p->end || end < p->start)
            continue;
        if (start < p->start)
            p->start = start;
        if (end > p->end)
            p->end = end;
        return;
    }
    struct proved *p = &t->proved[t->proved_next++ & (WIRE_PROVED_RANGES - 1)];
    p->start = start;
    p->end = end;
}

/* A copy returned. */
static __noinline void copy_checked(const struct at *at, const struct call *call, int32_t result)
{
    struct thread *t = at->thread;
    uint32_t epoch = at->process->epoch;
    if (result != 0)
        __sync_fetch_and_add(&at->process->doubtful, t->unchecked);
    __sync_fetch_and_add(&at->process->unchecked, t->unchecked);
    t->unchecked = 0;
    if (result != 0 || call->epoch != epoch || call->size > WIRE_UNCHECKED_BYTES)
        return;
    if (t->proved_epoch != epoch) {
        for (int i = 0; i < WIRE_PROVED_RANGES; i++)
            t->proved[i].start = t->proved[i].end = 0;
        t->proved_epoch = epoch;
    }
    if (call->direction == TRACE_TO_DEVICE || call->direction == TRACE_ON_DEVICE)
        range_prove(t, call->address, call->size);
    if (call->direction == TRACE_FROM_DEVICE || call->direction == TRACE_ON_DEVICE)
        range_prove(t, call->source, call->size);
}

/* Memory goes, or a call failed: what was proved before is not any more. */
static void proofs_end(const struct at *at)
{
    __sync_fetch_and_add(&at->process->epoch, 1);
}

/* ---- what copies tell ---- */

static __always_inline void copy_count(const struct at *at, const struct call *call, uint64_t size)
{
    uint8_t direction = call->direction < 5 ? call->direction : 0;
    if (call->recorder) {
        __sync_fetch_and_add(&at->process->graph_flow.copies, 1);
        __sync_fetch_and_add(&at->process->graph_flow.bytes, size);
        return;
    }
    __sync_fetch_and_add(&at->process->flow[direction].copies, 1);
    __sync_fetch_and_add(&at->process->flow[direction].bytes, size);
}

static __always_inline void copy_fill(const struct at *at, const struct call *call,
                                      uint64_t address, uint64_t source, uint64_t size,
                                      struct wire_copy *e)
{
    e->record = WIRE_RECORD_COPY;
    e->pid = at->pid;
    e->tid = at->tid;
    e->generation = at->generation;
    e->address = address;
    e->source = source;
    e->size = size;
    e->call = call->number;
    e->context = context_of(at);
    e->site = call->site;
    e->function = call->function;
    e->direction = call->direction < 5 ? call->direction : 0;
    e->async = call->async;
    e->has_stack = call->has_stack;
}

/* A copy that is counted already. */
static __noinline void copy_record(const struct at *at, const struct call *call, uint64_t address,
                                   uint64_t source, uint64_t size)
{
    struct wire_copy *e = 0;
    if (ring_admits(at, sizeof(*e)))
        e = bpf_ringbuf_reserve(&ring, sizeof(*e), 0);
    if (!e) {
        __sync_fetch_and_add(&at->process->lost_events, 1);
        return;
    }
    e->time_ns = bpf_ktime_get_ns();
    copy_fill(at, call, address, source, size, e);
    uint64_t flags = produced_add(at, sizeof(*e));
    /* The sooner a stack is known, the fewer are copied. */
    bpf_ringbuf_submit(e, call->has_stack ? RING_FORCE_WAKEUP : flags);
}

static __always_inline void copy_tell(const struct at *at, const struct call *call,
                                      uint64_t address, uint64_t source, uint64_t size)
{
    copy_count(at, call, size);
    if (!call->recorder)
        copy_record(at, call, address, source, size);
}

/* A copy whose return is left out, if its stack is the thread's last one; it is counted already.
 * Its record lies in memory that this processor has not touched lately, which takes 100 ns to
 * arrive: the stack is read and compared meanwhile, and whatever would wait for the memory
 * (atomic additions) comes before. */
static __always_inline bool copy_record_early(const struct at *at, struct call *call, uint64_t sp)
{
    struct wire_copy *e = 0;
    if (!ring_admits(at, sizeof(*e)))
        return false;
    uint64_t flags = produced_add(at, sizeof(*e));
    e = bpf_ringbuf_reserve(&ring, sizeof(*e), 0);
    if (!e) {
        __sync_fetch_and_add(&at->process->events.produced, -(int64_t)sizeof(*e));
        return false;
    }
    e->time_ns = bpf_ktime_get_ns();
    if (!stack_is_recent(at, sp)) {
        bpf_ringbuf_discard(e, RING_NO_WAKEUP);
        __sync_fetch_and_add(&at->process->events.produced, -(int64_t)sizeof(*e));
        return false;
    }
    call->site = at->thread->recent.known.site;
    copy_fill(at, call, call->address, call->source, call->size, e);
    bpf_ringbuf_submit(e, flags);
    return true;
}

/* Types of memory in CUDA_MEMCPY2D and 3D. */
enum { MEMORY_HOST = 1, MEMORY_DEVICE = 2, MEMORY_ARRAY = 3, MEMORY_UNIFIED = 4 };

static uint8_t direction_of(uint32_t from, uint32_t to)
{
    bool from_device = from == MEMORY_DEVICE || from == MEMORY_ARRAY;
    bool to_device = to == MEMORY_DEVICE || to == MEMORY_ARRAY;
    if (from == MEMORY_UNIFIED || to == MEMORY_UNIFIED || !from || !to)
        return TRACE_DIRECTION_UNKNOWN;
    if (from_device)
        return to_device ? TRACE_ON_DEVICE : TRACE_FROM_DEVICE;
    return to_device ? TRACE_TO_DEVICE : TRACE_ON_HOST;
}

/* One side of a copy with several dimensions. Its fields lie side by side: type, host, device. */
struct side {
    uint64_t type, host, device;
};

static uint64_t side_address(const struct side *side)
{
    uint32_t type = (uint32_t)side->type;
    if (type == MEMORY_HOST)
        return side->host;
    return type == MEMORY_DEVICE || type == MEMORY_UNIFIED ? side->device : 0;
}

static __noinline void copy_shaped(const struct at *at, struct call *call, bool three)
{
    uint64_t at_from = call->address + (three ? 32 : 16),
             at_to = call->address + (three ? 120 : 72);
    uint64_t at_shape = call->address + (three ? 176 : 112);
    struct side from = {0}, to = {0};
    uint64_t shape[3] = {0, 0, 1};
    long r = bpf_probe_read_user(&from, sizeof(from), (void *)at_from);
    r |= bpf_probe_read_user(&to, sizeof(to), (void *)at_to);
    r |= bpf_probe_read_user(shape, three ? 24 : 16, (void *)at_shape);
    if (r < 0) {
        __sync_fetch_and_add(&at->process->unreadable, 1);
        call->size = 0;
        return;
    }
    call->direction = direction_of((uint32_t)from.type, (uint32_t)to.type);
    call->address = side_address(&to);
    call->source = side_address(&from);
    call->size = shape[0] * shape[1] * shape[2];
}

struct batch {
    const struct at *at;
    const struct call *call;
    uint64_t n;
};

static long batch_next(uint32_t i, struct batch *b)
{
    uint64_t to = 0, from = 0, size = 0;
    if (i >= b->n)
        return 1;
    long r = bpf_probe_read_user(&to, 8, (void *)(b->call->address + i * 8ull));
    r |= bpf_probe_read_user(&from, 8, (void *)(b->call->source + i * 8ull));
    r |= bpf_probe_read_user(&size, 8, (void *)(b->call->size + i * 8ull));
    if (r < 0) {
        __sync_fetch_and_add(&b->at->process->unreadable, 1);
        return 1;
    }
    if (i < WIRE_BATCH_MAX)
        copy_tell(b->at, b->call, to, from, size);
    else
        copy_count(b->at, b->call, size);
    return 0;
}

static __noinline void batch_done(const struct at *at, const struct call *call)
{
    struct batch b = {at, call, call->extra};
    if (b.n > WIRE_BATCH_MAX && !call->recorder)
        __sync_fetch_and_add(&at->process->lost_events, b.n - WIRE_BATCH_MAX);
    bpf_loop(WIRE_BATCH_COUNTED_MAX, batch_next, &b, 0);
}

/* CUDA_MEMCPY3D_BATCH_OP: two operands (a type, then an address or an array), source first, then
 * width, height and depth. */
struct operand {
    uint32_t type, pad;
    uint64_t address;
    uint64_t rest[3];
};

struct batch_op {
    struct operand from, to;
    uint64_t width, height, depth;
    uint32_t order, flags;
};

enum { OPERAND_POINTER = 1 };

static long batch_3d_next(uint32_t i, struct batch *b)
{
    struct batch_op op = {0};
    if (i >= b->n)
        return 1;
    if (bpf_probe_read_user(&op, sizeof(op), (void *)(b->call->address + i * sizeof(op))) < 0) {
        __sync_fetch_and_add(&b->at->process->unreadable, 1);
        return 1;
    }
    uint64_t size = op.width * op.height * op.depth;
    if (i < WIRE_BATCH_MAX)
        copy_tell(b->at, b->call, op.to.type == OPERAND_POINTER ? op.to.address : 0,
                  op.from.type == OPERAND_POINTER ? op.from.address : 0, size);
    else
        copy_count(b->at, b->call, size);
    return 0;
}

static __noinline void batch_3d_done(const struct at *at, const struct call *call)
{
    struct batch b = {at, call, call->extra};
    if (b.n > WIRE_BATCH_MAX && !call->recorder)
        __sync_fetch_and_add(&at->process->lost_events, b.n - WIRE_BATCH_MAX);
    bpf_loop(WIRE_BATCH_COUNTED_MAX, batch_3d_next, &b, 0);
}

static __noinline void range_tell(const struct at *at, const struct call *call,
                                  const struct wire_function *f, uint16_t kind)
{
    if (call->recorder)
        return;
    struct wire_event *e = event_new(at, kind, call->function);
    if (!e)
        return;
    e->address = call->address;
    e->size = call->size;
    e->call = call->number;
    e->context = context_of(at);
    e->space = f->space;
    event_send(at, e);
}

struct prefetches {
    const struct at *at;
    struct call *call;
    const struct wire_function *function;
    uint64_t starts, sizes, n;
};

static long prefetch_next(uint32_t i, struct prefetches *p)
{
    if (i >= p->n)
        return 1;
    long r = bpf_probe_read_user(&p->call->address, 8, (void *)(p->starts + i * 8ull));
    r |= bpf_probe_read_user(&p->call->size, 8, (void *)(p->sizes + i * 8ull));
    if (r < 0) {
        __sync_fetch_and_add(&p->at->process->unreadable, 1);
        return 1;
    }
    range_tell(p->at, p->call, p->function, TRACE_PREFETCH);
    return 0;
}

static __noinline void prefetch_batch(const struct at *at, struct call *call,
                                      const struct wire_function *f)
{
    struct prefetches p = {at, call, f, call->address, call->size, call->extra};
    if (p.n > WIRE_BATCH_MAX)
        __sync_fetch_and_add(&at->process->lost_events, p.n - WIRE_BATCH_MAX);
    bpf_loop(WIRE_BATCH_MAX, prefetch_next, &p, 0);
}

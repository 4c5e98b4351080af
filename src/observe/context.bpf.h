/* context.bpf.h: contexts of the driver. Each has counters of its own, so that its end is one
 * step. Included by probe.bpf.c alone. */
#pragma once

static uint64_t context_of(const struct at *at)
{
    uint32_t n = at->thread->n_contexts;
    uint64_t context = 0;
    if (n > 0 && n <= WIRE_CONTEXT_STACK)
        context = at->thread->contexts[(n - 1) & (WIRE_CONTEXT_STACK - 1)];
    return context ? context : at->process->default_context;
}

static void context_push(struct thread *t, uint64_t context)
{
    uint32_t n = t->n_contexts++;
    if (n < WIRE_CONTEXT_STACK)
        t->contexts[n & (WIRE_CONTEXT_STACK - 1)] = context;
}

static void context_pop(struct thread *t)
{
    if (t->n_contexts > 0)
        t->n_contexts--;
}

/* In the place of the current one. None is as good as a pop. */
static void context_set(struct thread *t, uint64_t context)
{
    context_pop(t);
    if (context)
        context_push(t, context);
}

static struct wire_context *context_find(const struct at *at, uint64_t context)
{
    struct wire_context_key key = {
        .pid = at->pid, .generation = at->generation, .context = context};
    return bpf_map_lookup_elem(&contexts, &key);
}

/* Its value is too large for the stack. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, struct wire_context);
} empty_context SEC(".maps");

static struct wire_context *context_make(const struct at *at, uint64_t context, int32_t device)
{
    struct wire_context *c = context_find(at, context);
    uint32_t zero = 0;
    if (!c) {
        const struct wire_context *empty = bpf_map_lookup_elem(&empty_context, &zero);
        struct wire_context_key key = {
            .pid = at->pid, .generation = at->generation, .context = context};
        if (!empty || (context && at->process->n_contexts >= WIRE_CONTEXTS_QUOTA))
            return 0;
        if (bpf_map_update_elem(&contexts, &key, empty, BPF_NOEXIST_) == 0) {
            __sync_fetch_and_add(&at->process->n_contexts, 1);
            c = context_find(at, context);
            if (c)
                c->device = -1;
        } else {
            c = context_find(at, context);
        }
    }
    if (c && device >= 0)
        c->device = device;
    return c;
}

/* ---- beginning and end ---- */

static __noinline void reset_tell(const struct at *at, const struct call *call, uint64_t context)
{
    struct wire_event *e = event_new(at, TRACE_RESET, call->function);
    if (!e)
        return;
    e->context = context;
    e->call = call->number;
    event_send(at, e);
}

/* All memory of the context is gone, in one step. Its blocks stay in the table until the
 * observer removes them; they are of an earlier generation and count no more. */
static __noinline void context_end(const struct at *at, const struct call *call, uint64_t context)
{
    struct wire_context *c = context_find(at, context);
    if (!c)
        return;
    if (!context)
        return; /* what is counted there may be of any */
    c->generation++;
    for (uint32_t i = 0; i < WIRE_SPACES; i++) {
        blocks_add(at, c->space[i].freed_blocks - c->space[i].alloc_blocks);
        c->space[i].freed_bytes = c->space[i].alloc_bytes;
        c->space[i].freed_blocks = c->space[i].alloc_blocks;
    }
    reset_tell(at, call, context);
}

struct reset {
    const struct at *at;
    const struct call *call;
    int32_t device;
    uint64_t retained; /* references to the primary context of the device */
};

/* Is it the primary context of the device, or one that stands for it? */
static bool is_primary(const struct wire_context_key *key, const struct wire_context *c,
                       const struct reset *reset)
{
    return key->pid == reset->at->pid && key->generation == reset->at->generation &&
           c->device == reset->device && c->flags;
}

static long reset_each(void *map, struct wire_context_key *key, struct wire_context *c,
                       struct reset *reset)
{
    if (is_primary(key, c, reset))
        context_end(reset->at, reset->call, key->context);
    return 0;
}

static __noinline void device_reset(const struct at *at, const struct call *call)
{
    struct reset reset = {at, call, (int32_t)call->extra, 0};
    bpf_for_each_map_elem(&contexts, reset_each, &reset, 0);
}

/* The context is of this device. */
static void device_tell(const struct at *at, const struct call *call, uint64_t context,
                        int32_t device)
{
    struct wire_event *e = event_new(at, TRACE_NONE, call->function);
    if (!e)
        return;
    e->context = context;
    e->device = device;
    event_send(at, e);
}

static __noinline void context_made(const struct at *at, const struct call *call, bool current)
{
    uint64_t context;
    if (!read_word(at, call->address, false, &context) || !context)
        return;
    struct wire_context *c = context_make(at, context, (int32_t)call->extra);
    if (!at->process->default_context)
        at->process->default_context = context;
    if (current)
        context_push(at->thread, context);
    else if (c) {
        c->flags |= WIRE_CONTEXT_PRIMARY;
        __sync_fetch_and_add(&c->retained, 1);
    }
    device_tell(at, call, context, (int32_t)call->extra);
}

/* ---- the primary context, and green contexts that stand for it ---- */

static long release_each(void *map, struct wire_context_key *key, struct wire_context *c,
                         struct reset *reset)
{
    if (is_primary(key, c, reset) && c->flags & WIRE_CONTEXT_PRIMARY && c->retained > 0)
        __sync_fetch_and_add(&c->retained, -1);
    return 0;
}

static long retained_each(void *map, struct wire_context_key *key, struct wire_context *c,
                          struct reset *reset)
{
    if (is_primary(key, c, reset))
        reset->retained += c->retained;
    return 0;
}

/* A reference to the primary context went. A process that was not seen from its start may have
 * others. */
static __noinline void primary_unref(const struct at *at, const struct call *call, int32_t device)
{
    struct reset reset = {at, call, device, 0};
    bpf_for_each_map_elem(&contexts, retained_each, &reset, 0);
    if (reset.retained == 0 && at->process->from_start)
        bpf_for_each_map_elem(&contexts, reset_each, &reset, 0);
}

static __noinline void primary_release(const struct at *at, const struct call *call)
{
    struct reset reset = {at, call, (int32_t)call->extra, 0};
    bpf_for_each_map_elem(&contexts, release_each, &reset, 0);
    primary_unref(at, call, (int32_t)call->extra);
}

/* A green context keeps the primary one of its device, and has no memory of its own. */
static __noinline void green_made(const struct at *at, const struct call *call)
{
    uint64_t green;
    if (!read_word(at, call->address, false, &green) || !green)
        return;
    struct wire_context *c = context_make(at, green, (int32_t)call->extra);
    if (!c)
        return;
    c->flags |= WIRE_CONTEXT_GREEN;
    c->retained = 1;
    device_tell(at, call, green, (int32_t)call->extra);
}

static __noinline void green_context(const struct at *at, const struct call *call)
{
    uint64_t context;
    const struct wire_context *green = context_find(at, call->source);
    if (!green || !read_word(at, call->address, false, &context) || !context)
        return;
    struct wire_context *c = context_make(at, context, green->device);
    if (c)
        c->flags |= WIRE_CONTEXT_GREEN;
    device_tell(at, call, context, green->device);
}

/* At the entry of the call, so that no other can have got its handle before. */
static __noinline void green_end(const struct at *at, struct call *call)
{
    struct wire_context *green = context_find(at, call->address);
    call->has_removed = green && green->flags & WIRE_CONTEXT_GREEN && green->retained;
    if (!call->has_removed)
        return;
    call->extra = (uint32_t)green->device;
    green->retained = 0;
}

static __noinline void green_ended(const struct at *at, struct call *call, int32_t result)
{
    struct wire_context *green = context_find(at, call->address);
    if (!call->has_removed)
        return;
    if (result == 0)
        primary_unref(at, call, (int32_t)call->extra);
    else if (green)
        green->retained = 1;
}

static __noinline void note_tell(const struct at *at, const struct call *call)
{
    struct wire_event *e = event_new(at, TRACE_NONE, call->function);
    if (e)
        event_send(at, e);
}

static __noinline void uuid_told(const struct at *at, const struct call *call)
{
    struct wire_event *e = event_new(at, TRACE_NONE, call->function);
    if (!e)
        return;
    e->device = (int32_t)call->extra;
    e->flags = WIRE_EVENT_UUID;
    if (bpf_probe_read_user(e->uuid, sizeof(e->uuid), (void *)call->address) < 0)
        e->flags = 0;
    event_send(at, e);
}

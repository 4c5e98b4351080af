/* block.bpf.h: the table of live blocks, and what allocations and frees do to it. Included by
 * probe.bpf.c alone. */
#pragma once

/* An event about a block. */
static __always_inline void block_tell(const struct at *at, uint16_t kind, const struct call *call,
                                       uint64_t address, const struct wire_block *block,
                                       uint8_t class, uint8_t flags)
{
    struct wire_event *e = event_new(at, kind, call->function);
    if (!e)
        return;
    e->address = address;
    e->size = block->size;
    e->call = call->number;
    e->context = block->context;
    if (class == WIRE_GRAPH)
        e->source = context_of(at); /* whose device it is on */
    e->site = call->site;
    e->has_stack = call->has_stack;
    e->space = block->space;
    e->class = class;
    e->flags = flags;
    event_send(at, e);
}

/* ---- the table of live blocks ---- */

static void key_set(const struct at *at, uint8_t class, uint64_t address, struct wire_key *key)
{
    key->pid = at->pid;
    key->class_generation = at->generation << 8 | class;
    key->address = address;
}

/* Mappings and memory of other processes are in the table, but in no total. Registered bytes and
 * memory of graphs have totals of their own. */
static void count(const struct at *at, const struct wire_block *block, uint8_t class, bool alloc,
                  int64_t sign)
{
    uint8_t space = class == WIRE_REGISTERED ? WIRE_SPACE_REGISTERED : block->space;
    if (class == WIRE_MAPPING || class == WIRE_GRAPH || block->flags & WIRE_FUNCTION_SHARED)
        return;
    struct wire_context *c = context_find(at, class == WIRE_HANDLE ? 0 : block->context);
    if (!c || c->generation != block->context_generation)
        return;
    struct wire_counters *n = &c->space[space & (WIRE_SPACES - 1)];
    if (alloc) {
        __sync_fetch_and_add(&n->alloc_bytes, sign * (int64_t)block->size);
        __sync_fetch_and_add(&n->alloc_blocks, sign);
    } else {
        __sync_fetch_and_add(&n->freed_bytes, sign * (int64_t)block->size);
        __sync_fetch_and_add(&n->freed_blocks, sign);
    }
}

/* Is it of a context that has not ended since? Mappings and handles are of no context. */
static bool block_current(const struct at *at, const struct wire_block *block, uint8_t class)
{
    if (class == WIRE_MAPPING || class == WIRE_HANDLE)
        return true;
    if (class == WIRE_GRAPH)
        return group_find(at, block->context);
    const struct wire_context *c = context_find(at, block->context);
    return !c || c->generation == block->context_generation;
}

/* False: there is no room, and nothing is counted. */
static __noinline bool block_put(const struct at *at, uint64_t address, uint8_t class,
                                 struct wire_block *block)
{
    struct wire_key key;
    key_set(at, class, address, &key);
    const struct wire_block *old = bpf_map_lookup_elem(&blocks, &key);
    bool takes_room = !old || !block_current(at, old, class);
    if (class != WIRE_MAPPING && class != WIRE_GRAPH && !(block->flags & WIRE_FUNCTION_SHARED) &&
        !context_find(at, class == WIRE_HANDLE ? 0 : block->context))
        goto full; /* of contexts: it would be in the table and in no total */
    if (!takes_room) {
        count(at, old, class, false, 1);
        __sync_fetch_and_add(&at->process->replaced, 1);
    } else if (at->process->live_blocks >= at->settings->blocks_quota ||
               !user_admits(at->process, at->settings->user_quota)) {
        goto full;
    }
    if (bpf_map_update_elem(&blocks, &key, block, BPF_ANY_) < 0)
        goto full;
    if (takes_room)
        blocks_add(at, 1);
    count(at, block, class, true, 1);
    return true;
full:
    __sync_fetch_and_add(&at->process->lost_blocks, 1);
    __sync_fetch_and_add(&at->process->lost_bytes, block->size);
    return false;
}

static __noinline bool block_take(const struct at *at, uint64_t address, uint8_t class,
                                  struct wire_block *ret_block)
{
    struct wire_key key;
    key_set(at, class, address, &key);
    const struct wire_block *block = bpf_map_lookup_elem(&blocks, &key);
    if (!block)
        return false;
    *ret_block = *block;
    if (bpf_map_delete_elem(&blocks, &key) < 0)
        return false; /* another thread was faster */
    if (!block_current(at, ret_block, class))
        return false; /* it went with its context */
    blocks_add(at, -1);
    count(at, ret_block, class, false, 1);
    return true;
}

/* ---- what calls do ---- */

static void block_new(const struct at *at, const struct call *call, const struct wire_function *f,
                      uint64_t size, struct wire_block *ret_block)
{
    uint64_t context = context_of(at);
    bool physical =
        f->op ==
        WIRE_OP_HANDLE_MAKE; /* outlives contexts: it counts in the one that is not known */
    const struct wire_context *c = context_make(at, physical ? 0 : context, -1);
    if (!c) { /* there is no room for one more */
        context = 0;
        c = context_make(at, 0, -1);
    }
    *ret_block = (struct wire_block){
        .size = size,
        .time_ns = bpf_ktime_get_ns(),
        .call = call->number,
        .context = context,
        .context_generation = c ? c->generation : 0,
        .site = call->site,
        .function = call->function,
        .space = f->space,
        .flags = f->flags,
        .references = 1,
    };
}

static __noinline void failed_tell(const struct at *at, const struct call *call,
                                   const struct wire_function *f, int32_t result)
{
    struct wire_event *e = event_new(at, TRACE_FAILED, call->function);
    if (!e)
        return;
    e->size = call->size;
    e->call = call->number;
    e->context = context_of(at);
    e->result = result;
    e->site = call->site;
    e->has_stack = call->has_stack;
    e->space = f->space;
    event_send(at, e);
}

static uint8_t class_of(const struct wire_function *f)
{
    if (f->flags & WIRE_FUNCTION_ARRAY)
        return WIRE_ARRAY;
    if (f->op == WIRE_OP_REGISTER || f->op == WIRE_OP_UNREGISTER)
        return WIRE_REGISTERED;
    if (f->op == WIRE_OP_HANDLE_MAKE || f->op == WIRE_OP_HANDLE_FREE)
        return WIRE_HANDLE;
    return WIRE_MEMORY;
}

static __noinline void alloc_done(const struct at *at, struct call *call,
                                  const struct wire_function *f, int32_t result)
{
    uint64_t address = call->address, size = call->size;
    bool narrow = f->flags & WIRE_FUNCTION_NARROW;
    if (result != 0) {
        failed_tell(at, call, f, result);
        return;
    }
    if (f->op != WIRE_OP_REGISTER && !read_word(at, call->address, narrow, &address))
        return;
    if (address == 0)
        return; /* the driver gives nothing for nothing */
    if (f->op == WIRE_OP_ALLOC_PITCH) {
        uint64_t pitch;
        if (!read_word(at, call->source, narrow, &pitch))
            return;
        size = pitch * call->extra;
    }
    struct wire_block block;
    block_new(at, call, f, size, &block);
    uint8_t class = class_of(f);
    bool kept = block_put(at, address, class, &block);
    block_tell(at, TRACE_ALLOC, call, address, &block, class, kept ? 0 : WIRE_EVENT_UNKEPT);
}

/* Memory that a launch gave a graph, and that the program frees: the graph has its place still. */
static bool is_of_graph(const struct at *at, uint64_t address)
{
    struct wire_key key;
    if (!at->process->graph_blocks)
        return false;
    key_set(at, WIRE_GRAPH, address, &key);
    const struct wire_block *block = bpf_map_lookup_elem(&blocks, &key);
    return block && block_current(at, block, WIRE_GRAPH);
}

static __noinline void free_begin(const struct at *at, struct call *call,
                                  const struct wire_function *f)
{
    if (call->address == 0 || call->recorder)
        return;
    uint8_t class = class_of(f);
    call->has_removed = block_take(at, call->address, class, &call->removed);
    if (!call->has_removed) {
        if (is_of_graph(at, call->address))
            return;
        __sync_fetch_and_add(&at->process->unknown_frees, 1);
        call->removed = (struct wire_block){.space = f->space};
    }
    block_tell(at, TRACE_FREE, call, call->address, &call->removed, class,
               call->has_removed ? 0 : WIRE_EVENT_UNKNOWN);
}

static __noinline void free_undo(const struct at *at, struct call *call,
                                 const struct wire_function *f)
{
    if (!call->has_removed)
        return;
    uint8_t class = class_of(f);
    struct wire_key key;
    key_set(at, class, call->address, &key);
    if (bpf_map_update_elem(&blocks, &key, &call->removed, BPF_NOEXIST_) < 0)
        return; /* another thread has got the address: the free did work */
    blocks_add(at, 1);
    count(at, &call->removed, class, false, -1);
    block_tell(at, TRACE_RESTORE, call, call->address, &call->removed, class, 0);
}

/* CUDA_ARRAY_DESCRIPTOR: width, height, format, channels. CUDA_ARRAY3D_DESCRIPTOR has a depth
 * before the format. A height or depth of 0 means that the array has fewer dimensions. */
static uint64_t array_bytes(const struct at *at, uint64_t descriptor, bool three, uint64_t levels)
{
    uint64_t shape[3] = {0, 0, 0};
    uint32_t element[2] = {0, 0};
    long r = bpf_probe_read_user(shape, three ? 24 : 16, (void *)descriptor);
    r |= bpf_probe_read_user(element, sizeof(element), (void *)(descriptor + (three ? 24 : 16)));
    if (r < 0) {
        __sync_fetch_and_add(&at->process->unreadable, 1);
        return 0;
    }
    /* CU_AD_FORMAT: 0x01, 0x08: 8 bits; 0x02, 0x09, 0x10: 16; 0x03, 0x0a, 0x20: 32. */
    uint32_t format = element[0];
    uint64_t bytes = format == 0x01 || format == 0x08                     ? 1
                     : format == 0x03 || format == 0x0a || format == 0x20 ? 4
                                                                          : 2;
    uint64_t total = 0;
    for (uint32_t level = 0; level < 32; level++) {
        uint64_t width = shape[0] >> level, height = shape[1] >> level, depth = shape[2] >> level;
        if (level > 0 && level >= levels)
            break;
        total += (width ? width : 1) * (height ? height : 1) * (depth ? depth : 1);
    }
    return total * bytes * element[1];
}

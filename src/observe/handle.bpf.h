/* handle.bpf.h: physical memory, which has handles and references, and its mappings. Included by
 * probe.bpf.c alone. */
#pragma once

enum { REMOVED_BLOCK = 1, REMOVED_REFERENCE = 2 };

/* A reference to a handle goes; its memory with the last one. */
static __noinline void handle_drop(const struct at *at, struct call *call, uint64_t handle)
{
    struct wire_key key;
    key_set(at, WIRE_HANDLE, handle, &key);
    struct wire_block *block = bpf_map_lookup_elem(&blocks, &key);
    if (!block)
        return;
    call->has_removed = REMOVED_REFERENCE;
    if (__sync_fetch_and_add(&block->references, -1) > 1)
        return;
    if (!block_take(at, handle, WIRE_HANDLE, &call->removed))
        return;
    call->has_removed = REMOVED_BLOCK;
    block_tell(at, TRACE_FREE, call, handle, &call->removed, WIRE_HANDLE, 0);
}

/* The release failed. */
static __noinline void handle_undo(const struct at *at, struct call *call,
                                   const struct wire_function *f)
{
    struct wire_key key;
    if (call->has_removed == REMOVED_BLOCK) {
        call->removed.references = 1;
        free_undo(at, call, f);
    } else if (call->has_removed == REMOVED_REFERENCE) {
        key_set(at, WIRE_HANDLE, call->address, &key);
        struct wire_block *block = bpf_map_lookup_elem(&blocks, &key);
        if (block)
            __sync_fetch_and_add(&block->references, 1);
    }
}

static __noinline void handle_make(const struct at *at, struct call *call,
                                   const struct wire_function *f, int32_t result)
{
    uint64_t handle;
    if (result != 0) {
        failed_tell(at, call, f, result);
        return;
    }
    if (!read_word(at, call->address, false, &handle))
        return;
    struct wire_block block;
    block_new(at, call, f, call->size, &block);
    /* CUmemAllocationProp: the type of the location is at 8, and 1 for a device. */
    uint32_t location = 1;
    if (call->source &&
        bpf_probe_read_user(&location, sizeof(location), (void *)(call->source + 8)) == 0 &&
        location != 1)
        block.space = SPACE_PINNED;
    bool kept = block_put(at, handle, WIRE_HANDLE, &block);
    block_tell(at, TRACE_ALLOC, call, handle, &block, WIRE_HANDLE, kept ? 0 : WIRE_EVENT_UNKEPT);
}

static __noinline void handle_keep(const struct at *at, struct call *call)
{
    uint64_t handle;
    struct wire_key key;
    if (!read_word(at, call->address, false, &handle))
        return;
    key_set(at, WIRE_HANDLE, handle, &key);
    struct wire_block *block = bpf_map_lookup_elem(&blocks, &key);
    if (block)
        __sync_fetch_and_add(&block->references, 1);
}

static __noinline void map_done(const struct at *at, struct call *call,
                                const struct wire_function *f)
{
    struct wire_key key;
    struct wire_block block;
    key_set(at, WIRE_HANDLE, call->source, &key);
    struct wire_block *handle = bpf_map_lookup_elem(&blocks, &key);
    block_new(at, call, f, call->size, &block);
    if (handle) {
        __sync_fetch_and_add(&handle->references, 1);
        block.space = handle->space;
    }
    block.context = call->source;
    bool kept = block_put(at, call->address, WIRE_MAPPING, &block);
    block_tell(at, TRACE_ALLOC, call, call->address, &block, WIRE_MAPPING,
               kept ? 0 : WIRE_EVENT_UNKEPT);
}

struct unmap {
    const struct at *at;
    struct call *call;
    uint64_t address, end;
    uint64_t unknown; /* there were some */
};

static long unmap_next(uint32_t i, struct unmap *u)
{
    struct wire_block block;
    if (u->address >= u->end)
        return 1;
    if (!block_take(u->at, u->address, WIRE_MAPPING, &block) || block.size == 0) {
        /* Mapped before tracing began. Known ones may follow. */
        if (!u->unknown)
            __sync_fetch_and_add(&u->at->process->unknown_frees, 1);
        u->unknown = 1;
        u->address += 1ull << WIRE_GRANULE_SHIFT;
        return 0;
    }
    block_tell(u->at, TRACE_FREE, u->call, u->address, &block, WIRE_MAPPING, 0);
    handle_drop(u->at, u->call, block.context);
    u->address += block.size;
    return 0;
}

static __noinline void unmap_done(const struct at *at, struct call *call)
{
    struct unmap u = {at, call, call->address, call->address + call->size, 0};
    bpf_loop(WIRE_MAPPINGS_MAX, unmap_next, &u, 0);
}

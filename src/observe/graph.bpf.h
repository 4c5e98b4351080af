/* graph.bpf.h: streams that record, nodes of graphs, and what graphs become. Included by
 * probe.bpf.c alone. */
#pragma once

/* ---- recording ---- */

/* Handles of default streams. Only that of the thread can record. */
enum { STREAM_DEFAULT = 0, STREAM_LEGACY = 1, STREAM_PER_THREAD = 2 };

static void capture_key_set(const struct at *at, uint64_t stream, struct wire_graph_key *key)
{
    bool own = stream == STREAM_DEFAULT || stream == STREAM_PER_THREAD;
    graph_key_set(at, WIRE_GRAPH_CAPTURE, own ? STREAM_PER_THREAD : stream, key);
    key->tid = own ? at->tid : 0;
}

/* The group of the graph that records what is submitted to the stream; 0: the stream works.
 *
 * A stream joins a recording when it waits for an event of it, which is not observed: such calls
 * are frequent. So another stream than the default one, used by a thread that has a recording
 * under way, is taken to be part of that. */
static __noinline uint64_t recorder_of(const struct at *at, uint64_t stream)
{
    struct wire_graph_key key;
    capture_key_set(at, stream, &key);
    const struct wire_graph *g = bpf_map_lookup_elem(&graphs, &key);
    if (!g && stream > STREAM_PER_THREAD)
        g = graph_find(at, WIRE_GRAPH_THREAD, at->tid);
    return g ? g->group : 0;
}

static __noinline void capture_begun(const struct at *at, const struct call *call)
{
    struct wire_graph_key key;
    struct wire_graph capture = {.group = WIRE_GROUP_BIT | call->number, .tid = at->tid};
    const struct wire_graph *to =
        call->source ? graph_find(at, WIRE_GRAPH_HANDLE, call->source) : 0;
    struct wire_graph *group = to ? group_find(at, to->group) : 0;
    if (group)
        capture.group = to->group;
    capture_key_set(at, call->stream, &key);
    if (!graph_put(at, &key, &capture))
        return;
    if (group)
        __sync_fetch_and_add(&group->references, 1);
    __sync_fetch_and_add(&at->process->captures, 1);
    struct wire_graph *thread = graph_find(at, WIRE_GRAPH_THREAD, at->tid);
    if (thread) {
        thread->references++;
        thread->group = capture.group;
        return;
    }
    capture.references = 1;
    graph_key_set(at, WIRE_GRAPH_THREAD, at->tid, &key);
    graph_put(at, &key, &capture);
}

/* CUDA_ERROR_ILLEGAL_STATE: the stream does not record. Those of captures: it does so no more,
 * but for the last, which says that another thread has to end it. */
enum { ILLEGAL_STATE = 401, CAPTURE_ERRORS = 900, CAPTURE_WRONG_THREAD = 908 };

static bool capture_ended(int32_t result)
{
    return result == 0 || result == ILLEGAL_STATE ||
           (result >= CAPTURE_ERRORS && result < CAPTURE_WRONG_THREAD);
}

/* `call->address` 0: the stream itself has gone. */
static __noinline void capture_end(const struct at *at, const struct call *call, int32_t result)
{
    struct wire_graph_key key;
    uint64_t handle = 0;
    if (!at->process->captures || !capture_ended(result))
        return;
    capture_key_set(at, call->stream, &key);
    const struct wire_graph *capture = bpf_map_lookup_elem(&graphs, &key);
    if (!capture)
        return;
    uint64_t group = capture->group;
    uint32_t tid = capture->tid;
    graph_remove(at, &key);
    __sync_fetch_and_add(&at->process->captures, -1);
    struct wire_graph *thread = graph_find(at, WIRE_GRAPH_THREAD, tid);
    graph_key_set(at, WIRE_GRAPH_THREAD, tid, &key);
    if (thread && __sync_fetch_and_add(&thread->references, -1) == 1)
        graph_remove(at, &key);
    if (!group_find(at, group))
        return; /* it recorded no memory */
    if (result != 0 || !call->address || !read_word(at, call->address, false, &handle) || !handle ||
        !graph_bind(at, WIRE_GRAPH_HANDLE, handle, group))
        group_drop(at, call, group);
}

/* ---- nodes ---- */

/* Memory of a node: `call->size` bytes at `address`. Nodes that follow the free of another may get
 * its address: one place serves both, and has the size of the larger. */
static __noinline void graph_memory(const struct at *at, struct call *call,
                                    const struct wire_function *f, struct wire_graph *group,
                                    uint64_t address)
{
    uint64_t size = call->size;
    struct wire_key key;
    struct wire_block block;
    if (!group || !address)
        return;
    key_set(at, WIRE_GRAPH, address, &key);
    const struct wire_block *old = bpf_map_lookup_elem(&blocks, &key);
    struct wire_graph *of = old ? group_find(at, old->context) : 0;
    if (of) {
        block = *old;
        if (block.context == group->group && block.size > size)
            size = block.size;
        bpf_map_delete_elem(&blocks, &key);
        blocks_add(at, -1);
        __sync_fetch_and_add(&of->bytes, -block.size);
        __sync_fetch_and_add(&of->blocks, -1);
        __sync_fetch_and_add(&at->process->graph_bytes, -block.size);
        __sync_fetch_and_add(&at->process->graph_blocks, -1);
        block_tell(at, TRACE_FREE, call, address, &block, WIRE_GRAPH, 0);
    }
    block_new(at, call, f, size, &block);
    block.space = SPACE_DRAM;
    block.context = group->group;
    bool kept = block_put(at, address, WIRE_GRAPH, &block);
    if (kept) {
        __sync_fetch_and_add(&group->bytes, size);
        __sync_fetch_and_add(&group->blocks, 1);
        __sync_fetch_and_add(&at->process->graph_bytes, size);
        __sync_fetch_and_add(&at->process->graph_blocks, 1);
    }
    block_tell(at, TRACE_ALLOC, call, address, &block, WIRE_GRAPH, kept ? 0 : WIRE_EVENT_UNKEPT);
}

/* No room for one more graph: its memory is in no figure. */
static void graph_lost(const struct at *at, uint64_t size)
{
    __sync_fetch_and_add(&at->process->lost_blocks, 1);
    __sync_fetch_and_add(&at->process->lost_bytes, size);
}

/* An allocation that a stream recorded. */
static __noinline void record_done(const struct at *at, struct call *call,
                                   const struct wire_function *f)
{
    uint64_t address;
    if (!read_word(at, call->address, false, &address))
        return;
    struct wire_graph *group = group_get(at, call->recorder);
    if (group)
        graph_memory(at, call, f, group, address);
    else
        graph_lost(at, call->size);
}

/* CUgraphNodeParams: a type, and from 16 on what it needs. A copy has two words before its
 * CUDA_MEMCPY3D. */
enum { NODE_COPY = 1, NODE_ALLOC = 10, NODE_PARAMS = 16, NODE_COPY_PARAMS = 32 };

/* CUDA_MEM_ALLOC_NODE_PARAMS: size and address. */
enum { NODE_ALLOC_SIZE = 104 };

static __noinline void node_alloc(const struct at *at, struct call *call,
                                  const struct wire_function *f, uint64_t params)
{
    uint64_t told[2] = {0, 0};
    if (bpf_probe_read_user(told, sizeof(told), (void *)(params + NODE_ALLOC_SIZE)) < 0) {
        __sync_fetch_and_add(&at->process->unreadable, 1);
        return;
    }
    const struct wire_graph *graph = graph_find(at, WIRE_GRAPH_HANDLE, call->source);
    uint64_t number = graph ? graph->group : WIRE_GROUP_BIT | call->number;
    struct wire_graph *group = group_get(at, number);
    if (group && !graph && !graph_bind(at, WIRE_GRAPH_HANDLE, call->source, number)) {
        group_drop(at, call, number);
        group = 0;
    }
    call->size = told[0];
    if (group)
        graph_memory(at, call, f, group, told[1]);
    else
        graph_lost(at, told[0]);
}

static __noinline void node_added(const struct at *at, struct call *call,
                                  const struct wire_function *f)
{
    uint64_t params = call->address;
    uint32_t type = f->unit == WIRE_NODE_COPY ? NODE_COPY : NODE_ALLOC;
    if (f->unit == WIRE_NODE_ANY) {
        if (bpf_probe_read_user(&type, sizeof(type), (void *)params) < 0) {
            __sync_fetch_and_add(&at->process->unreadable, 1);
            return;
        }
        params += type == NODE_COPY ? NODE_COPY_PARAMS : NODE_PARAMS;
    }
    if (type == NODE_ALLOC) {
        node_alloc(at, call, f, params);
    } else if (type == NODE_COPY) {
        call->address = params;
        copy_shaped(at, call, true);
        call->recorder = WIRE_GROUP_BIT;
        copy_count(at, call, call->size);
    }
}

/* ---- graphs ---- */

static __noinline void exec_made(const struct at *at, const struct call *call)
{
    uint64_t handle;
    const struct wire_graph *graph = graph_find(at, WIRE_GRAPH_HANDLE, call->source);
    struct wire_graph *group = graph ? group_find(at, graph->group) : 0;
    if (!group || !read_word(at, call->address, false, &handle))
        return;
    __sync_fetch_and_add(&group->references, 1);
    if (!graph_bind(at, WIRE_GRAPH_EXEC, handle, group->group))
        group_drop(at, call, group->group);
}

/* At the entry of the call: its handle may be another graph's when it returns. */
static __noinline void graph_end(const struct at *at, const struct call *call, bool executable)
{
    struct wire_graph_key key;
    graph_key_set(at, executable ? WIRE_GRAPH_EXEC : WIRE_GRAPH_HANDLE, call->address, &key);
    const struct wire_graph *graph = bpf_map_lookup_elem(&graphs, &key);
    if (!graph)
        return;
    uint64_t group = graph->group;
    graph_remove(at, &key);
    group_drop(at, call, group);
}

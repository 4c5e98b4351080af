/* group.bpf.h: the table of graphs, and groups of their memory (wire.h). Included by probe.bpf.c
 * alone. */
#pragma once

static void graph_key_set(const struct at *at, uint32_t kind, uint64_t handle,
                          struct wire_graph_key *key)
{
    *key = (struct wire_graph_key){
        .pid = at->pid, .generation = at->generation, .kind = kind, .handle = handle};
}

static struct wire_graph *graph_find(const struct at *at, uint32_t kind, uint64_t handle)
{
    struct wire_graph_key key;
    graph_key_set(at, kind, handle, &key);
    return bpf_map_lookup_elem(&graphs, &key);
}

/* What is recorded must be known as such: captures have room of their own in the quota. */
enum { CAPTURES_QUOTA = 256 };

static __noinline bool graph_put(const struct at *at, const struct wire_graph_key *key,
                                 const struct wire_graph *graph)
{
    uint32_t quota = WIRE_GRAPHS_QUOTA + (key->kind >= WIRE_GRAPH_CAPTURE ? CAPTURES_QUOTA : 0);
    if (at->process->n_graphs >= quota || bpf_map_update_elem(&graphs, key, graph, BPF_NOEXIST_))
        return false;
    __sync_fetch_and_add(&at->process->n_graphs, 1);
    return true;
}

static void graph_remove(const struct at *at, const struct wire_graph_key *key)
{
    if (bpf_map_delete_elem(&graphs, key) == 0)
        __sync_fetch_and_add(&at->process->n_graphs, -1);
}

/* Another name of a group. */
static bool graph_bind(const struct at *at, uint32_t kind, uint64_t handle, uint64_t group)
{
    struct wire_graph_key key;
    struct wire_graph graph = {.group = group};
    graph_key_set(at, kind, handle, &key);
    return graph_put(at, &key, &graph);
}

static struct wire_graph *group_find(const struct at *at, uint64_t group)
{
    return graph_find(at, WIRE_GRAPH_GROUP, group);
}

/* The group, made if there is none. NULL: no room. */
static __noinline struct wire_graph *group_get(const struct at *at, uint64_t group)
{
    struct wire_graph *found = group_find(at, group);
    struct wire_graph fresh = {.group = group, .references = 1};
    struct wire_graph_key key;
    if (found)
        return found;
    graph_key_set(at, WIRE_GRAPH_GROUP, group, &key);
    return graph_put(at, &key, &fresh) ? group_find(at, group) : 0;
}

/* A name of the group goes; all its memory with the last one, in one step. Its blocks stay in the
 * table until the observer removes them; they count no more. */
static __noinline void group_drop(const struct at *at, const struct call *call, uint64_t number)
{
    struct wire_graph *group = group_find(at, number);
    struct wire_graph_key key;
    if (!group || __sync_fetch_and_add(&group->references, -1) != 1)
        return;
    uint64_t bytes = group->bytes;
    int64_t n = group->blocks;
    graph_key_set(at, WIRE_GRAPH_GROUP, number, &key);
    graph_remove(at, &key);
    __sync_fetch_and_add(&at->process->graph_bytes, -bytes);
    __sync_fetch_and_add(&at->process->graph_blocks, -n);
    blocks_add(at, -n);
    reset_tell(at, call, number);
}

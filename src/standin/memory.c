#include "standin/memory.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void counts_live(enum standin_kind kind, const struct device *d, uint64_t bytes)
{
    struct standin_live *live = &standin.counts.live[d->number][kind];

    live->bytes += bytes;
    live->blocks++;
    standin.counts.allocations++;
    device_publish(d);
}

void counts_dead(enum standin_kind kind, const struct device *d, uint64_t bytes)
{
    struct standin_live *live = &standin.counts.live[d->number][kind];

    live->bytes -= bytes;
    live->blocks--;
    standin.counts.frees++;
    device_publish(d);
}

CUresult memory_add(enum standin_kind kind, struct device *device, struct context *context,
                    uint64_t address, uint64_t size, struct block **ret)
{
    struct block *b = calloc(1, sizeof(*b));

    if (!b)
        return CUDA_ERROR_OUT_OF_MEMORY;
    b->node.key = address;
    b->size = size;
    b->id = ++standin.next_id;
    b->kind = kind;
    b->device = device;
    b->context = context ? context_memory(context) : NULL;
    tree_insert(kind == STANDIN_RESERVED ? &standin.reservations : &standin.blocks, &b->node);
    counts_live(kind, device, size);
    if (ret)
        *ret = b;
    return CUDA_SUCCESS;
}

CUresult memory_take(enum standin_kind kind, struct device *device, struct arena *arena,
                     struct context *context, uint64_t size, struct block **ret)
{
    if (arena != &standin.host && !device_has_room(device, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t address = arena_take(arena, size);
    if (address == 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct block *b;
    CUresult r = memory_add(kind, device, context, address, size, &b);
    if (r != CUDA_SUCCESS) {
        arena_give(arena, address, size);
        return r;
    }
    b->arena = arena;
    *ret = b;
    return CUDA_SUCCESS;
}

/* The mapping begins at a page, the block need not. */
static void import_unmap(const struct block *b)
{
    uint64_t lead = b->node.key & ((uint64_t)sysconf(_SC_PAGESIZE) - 1);

    munmap((void *)(b->node.key - lead), b->size + lead);
}

void memory_drop(struct block *b)
{
    tree_remove(b->kind == STANDIN_RESERVED ? &standin.reservations : &standin.blocks, &b->node);
    if (b->arena)
        arena_give(b->arena, b->node.key, b->size);
    else if (b->kind == STANDIN_GRAPH)
        graph_memory_dropped(b->graph_memory);
    else if (b->kind == STANDIN_IMPORTED)
        import_unmap(b);
    if (b->pool)
        memory_left_pool(b->pool, b->size);
    counts_dead(b->kind, b->device, b->size);
    free(b);
}

void memory_drop_context(const struct context *context)
{
    struct node *n = tree_ceiling(&standin.blocks, 0);

    while (n) {
        struct block *b = NODE_OF(n, struct block, node);
        n = tree_ceiling(&standin.blocks, n->key + 1);
        if (b->context == context)
            memory_drop(b);
    }
}

struct block *memory_begins(uint64_t address)
{
    struct node *n = tree_find(&standin.blocks, address);

    return NODE_OF(n, struct block, node);
}

struct block *memory_at(uint64_t address)
{
    struct node *n = tree_floor(&standin.blocks, address);
    struct block *b = NODE_OF(n, struct block, node);

    return b && address - b->node.key < b->size ? b : NULL;
}

struct block *memory_overlaps(uint64_t address, uint64_t size)
{
    struct block *b = memory_at(address);

    if (b)
        return b;
    struct node *n = tree_ceiling(&standin.blocks, address);
    return n && n->key - address < size ? NODE_OF(n, struct block, node) : NULL;
}

bool memory_covers(uint64_t address, uint64_t size)
{
    while (size > 0) {
        struct block *b = memory_at(address);
        if (!b || (b->kind == STANDIN_MAPPED && b->flags == 0))
            return false;
        uint64_t rest = b->size - (address - b->node.key);
        if (rest >= size)
            return true;
        address += rest;
        size -= rest;
    }
    return true;
}

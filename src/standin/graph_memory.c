/* graph_memory.c: the memory of graphs. See graph.h. */
#include <stdlib.h>

#include "standin/graph.h"
#include "standin/memory.h"

/* Of an allocation node. Addresses stay taken while a node or a live block uses them. */
struct graph_memory {
    struct object object; /* so that all of them can be found */
    unsigned refs;
    struct device *device;
    struct context *context; /* that the memory dies with */
    uint64_t address, size;
    bool live;
    bool backed; /* has bytes of the device */
};

enum { GRAPH_USED = 0, GRAPH_USED_HIGH = 1, GRAPH_RESERVED = 2, GRAPH_RESERVED_HIGH = 3 };

static uint64_t backing(const struct graph_memory *m)
{
    return (m->size + ARENA_CHUNK - 1) / ARENA_CHUNK * ARENA_CHUNK;
}

static void unback(struct graph_memory *m)
{
    if (!m->backed)
        return;
    m->backed = false;
    m->device->graph.reserved -= backing(m);
}

static CUresult back(struct graph_memory *m)
{
    struct device *d = m->device;

    if (m->backed)
        return CUDA_SUCCESS;
    uint64_t kept = backing(m) < d->graph.kept ? backing(m) : d->graph.kept;
    if (!device_has_room(d, backing(m) - kept))
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->backed = true;
    d->graph.kept -= kept;
    d->graph.reserved += backing(m) - kept;
    if (d->graph.reserved > d->graph.reserved_high)
        d->graph.reserved_high = d->graph.reserved;
    device_publish(d);
    return CUDA_SUCCESS;
}

void graph_memory_ref(struct graph_memory *m)
{
    m->refs++;
}

void graph_memory_unref(struct graph_memory *m)
{
    if (--m->refs > 0)
        return;
    if (m->backed)
        m->device->graph.kept += backing(m);
    arena_give(&m->device->graph.addresses, m->address, m->size);
    object_remove(&m->object);
    free(m);
}

void graph_memory_dropped(struct graph_memory *m)
{
    m->live = false;
    m->device->graph.used -= m->size;
    graph_memory_unref(m);
}

uint64_t graph_memory_address(const struct graph_memory *m)
{
    return m->address;
}

CUresult graph_memory_new(struct context *c, size_t size, struct graph_memory **ret)
{
    struct graph_memory *m = calloc(1, sizeof(*m));
    struct device *d = c->device;
    struct arena *a = &d->graph.addresses;

    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (a->base || arena_open(a, standin.memory_bytes, ARENA_ANYWHERE, 0, "standin-graph") == 0)
        m->address = arena_take(a, size);
    if (!m->address) {
        free(m);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    m->refs = 1;
    m->device = d;
    m->context = context_memory(c);
    m->size = size;
    object_add(&m->object, OBJECT_GRAPH_MEMORY, NULL);
    *ret = m;
    return CUDA_SUCCESS;
}

CUresult graph_memory_run(struct graph_memory *m, bool again)
{
    struct block *b;

    state_lock();
    CUresult r = m->context->destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
    if (r == CUDA_SUCCESS && m->live && again)
        memory_drop(memory_begins(m->address));
    if (r == CUDA_SUCCESS && m->live)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        r = back(m);
    if (r == CUDA_SUCCESS)
        r = memory_add(STANDIN_GRAPH, m->device, m->context, m->address, m->size, &b);
    if (r == CUDA_SUCCESS) {
        struct graph_pool *pool = &m->device->graph;
        b->graph_memory = m;
        m->live = true;
        m->refs++;
        pool->used += m->size;
        if (pool->used > pool->used_high)
            pool->used_high = pool->used;
    }
    state_unlock();
    return r;
}

/* Bytes that no live memory uses go back. The next launch takes them again. */
static CUresult trim(CUdevice dev)
{
    struct device *d = device_of(dev);

    if (!d)
        return CUDA_ERROR_INVALID_DEVICE;
    state_lock();
    d->graph.reserved -= d->graph.kept;
    d->graph.kept = 0;
    for (struct node *n = tree_ceiling(&standin.objects, 0); n;
         n = tree_ceiling(&standin.objects, n->key + 1)) {
        struct object *o = NODE_OF(n, struct object, node);
        struct graph_memory *m = (struct graph_memory *)o;
        if (o->kind == OBJECT_GRAPH_MEMORY && m->device == d && !m->live)
            unback(m);
    }
    device_publish(d);
    state_unlock();
    return CUDA_SUCCESS;
}
API(cuDeviceGraphMemTrim, trim, (CUdevice device), (device))

static CUresult attribute_get(CUdevice dev, int attribute, void *ret)
{
    struct device *d = device_of(dev);

    if (!d)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!ret || attribute < GRAPH_USED || attribute > GRAPH_RESERVED_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    const uint64_t values[] = {
        [GRAPH_USED] = d->graph.used,
        [GRAPH_USED_HIGH] = d->graph.used_high,
        [GRAPH_RESERVED] = d->graph.reserved,
        [GRAPH_RESERVED_HIGH] = d->graph.reserved_high,
    };
    *(uint64_t *)ret = values[attribute];
    state_unlock();
    return CUDA_SUCCESS;
}
API(cuDeviceGetGraphMemAttribute, attribute_get, (CUdevice device, int attr, void *value),
    (device, attr, value))

/* The highest figures can begin anew, at the present ones. */
static CUresult attribute_set(CUdevice dev, int attribute, void *value)
{
    struct device *d = device_of(dev);

    if (!d)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value || *(uint64_t *)value != 0 ||
        (attribute != GRAPH_USED_HIGH && attribute != GRAPH_RESERVED_HIGH))
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    if (attribute == GRAPH_USED_HIGH)
        d->graph.used_high = d->graph.used;
    else
        d->graph.reserved_high = d->graph.reserved;
    state_unlock();
    return CUDA_SUCCESS;
}
API(cuDeviceSetGraphMemAttribute, attribute_set, (CUdevice device, int attr, void *value),
    (device, attr, value))

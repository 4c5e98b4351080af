/* api_pool.c: memory pools. A block that is freed goes back to its device at once, so that its address is the next to be
 * given out; a pool keeps figures, not memory. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "standin/export.h"
#include "standin/graph.h"
#include "standin/stream.h"

#define POOL_MAGIC "standin pool"

struct pool {
    struct object object;
    struct device *device;
    bool is_default;
    uint64_t used, used_high;
    uint64_t threshold; /* attribute 4 */
    int reuse[3];       /* attributes 1 to 3 */
};

enum {
    POOL_REUSE_LAST = 3,
    POOL_RELEASE_THRESHOLD = 4,
    POOL_RESERVED = 5,
    POOL_RESERVED_HIGH = 6,
    POOL_USED = 7,
    POOL_USED_HIGH = 8,
};

/* Needs the lock. */
static struct pool *pool_new(struct device *d)
{
    struct pool *p = calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    p->device = d;
    for (int i = 0; i < POOL_REUSE_LAST; i++)
        p->reuse[i] = 1;
    object_add(&p->object, OBJECT_POOL, NULL);
    return p;
}

static struct pool *pool_default(struct device *d)
{
    if (!d->default_pool) {
        d->default_pool = pool_new(d);
        if (d->default_pool)
            d->default_pool->is_default = true;
    }
    return d->default_pool;
}

static struct pool *pool_current(struct device *d)
{
    return d->current_pool ? d->current_pool : pool_default(d);
}

void memory_left_pool(struct pool *p, uint64_t size)
{
    p->used -= size;
}

/* `pool` NULL: the current one of the device. */
static CUresult pool_alloc(CUdeviceptr *ret, size_t size, bool named, CUmemoryPool pool,
                           CUstream stream)
{
    struct context *c;
    struct stream *s;
    struct block *b;

    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    if (size == 0) {
        *ret = 0;
        return CUDA_SUCCESS;
    }
    state_lock();
    CUresult r = context_current(&c);
    if (r == CUDA_SUCCESS)
        r = stream_of(stream, &s);
    if (r == CUDA_SUCCESS && s && s->capture) {
        r = graph_record_alloc(s->capture, c, size, ret);
        state_unlock();
        return r;
    }
    struct pool *p = NULL;
    if (r == CUDA_SUCCESS)
        p = named ? object_of(pool, OBJECT_POOL) : pool_current(c->device);
    if (r == CUDA_SUCCESS && !p)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        r = memory_take(STANDIN_POOL, p->device, &p->device->memory, c, size, &b);
    if (r == CUDA_SUCCESS) {
        b->pool = p;
        p->used += size;
        if (p->used > p->used_high)
            p->used_high = p->used;
        *ret = b->node.key;
    }
    state_unlock();
    return r;
}
API_PTSZ(cuMemAllocAsync, pool_alloc, (CUdeviceptr * dptr, size_t bytesize, CUstream hStream),
         (dptr, bytesize, false, NULL, hStream))
API_PTSZ(cuMemAllocFromPoolAsync, pool_alloc,
         (CUdeviceptr * dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream),
         (dptr, bytesize, true, pool, hStream))

static CUresult pool_free(CUdeviceptr address, CUstream stream)
{
    struct context *c;
    struct stream *s;

    state_lock();
    CUresult r = context_current(&c);
    if (r == CUDA_SUCCESS)
        r = stream_of(stream, &s);
    if (r == CUDA_SUCCESS && s && s->capture) {
        r = graph_record_free(s->capture, address);
        state_unlock();
        return r;
    }
    if (r == CUDA_SUCCESS && address) {
        struct block *b = memory_begins(address);
        if (b && (b->kind == STANDIN_POOL || b->kind == STANDIN_GRAPH || b->kind == STANDIN_DEVICE))
            memory_drop(b);
        else
            r = CUDA_ERROR_INVALID_VALUE;
    }
    state_unlock();
    return r;
}
API_PTSZ(cuMemFreeAsync, pool_free, (CUdeviceptr dptr, CUstream hStream), (dptr, hStream))

static CUresult pool_create(CUmemoryPool *ret, const CUmemPoolProps *props)
{
    if (!ret || !props || props->type != CU_MEM_ALLOCATION_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (props->location.type != CU_MEM_LOCATION_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct device *d = device_of(props->location.id);
    if (!d)
        return CUDA_ERROR_INVALID_DEVICE;
    state_lock();
    struct pool *p = pool_new(d);
    if (p)
        *ret = p;
    state_unlock();
    return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
API(cuMemPoolCreate, pool_create, (CUmemoryPool * pool, const CUmemPoolProps *poolProps),
    (pool, poolProps))

/* Blocks of the pool live on. */
static CUresult pool_destroy(CUmemoryPool handle)
{
    state_lock();
    struct pool *p = object_of(handle, OBJECT_POOL);
    if (!p || p->is_default) {
        state_unlock();
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (struct node *n = tree_ceiling(&standin.blocks, 0); n;
         n = tree_ceiling(&standin.blocks, n->key + 1)) {
        struct block *b = NODE_OF(n, struct block, node);
        if (b->pool == p)
            b->pool = NULL;
    }
    for (int i = 0; i < standin.device_count; i++)
        if (standin.devices[i].current_pool == p)
            standin.devices[i].current_pool = NULL;
    object_remove(&p->object);
    free(p);
    state_unlock();
    return CUDA_SUCCESS;
}
API(cuMemPoolDestroy, pool_destroy, (CUmemoryPool pool), (pool))

static CUresult pool_check(CUmemoryPool handle)
{
    state_lock();
    struct pool *p = object_of(handle, OBJECT_POOL);
    state_unlock();
    return p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API(cuMemPoolTrimTo, pool_check, (CUmemoryPool pool, size_t minBytesToKeep), (pool))

static CUresult pool_set(CUmemoryPool handle, int attribute, void *value)
{
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    struct pool *p = object_of(handle, OBJECT_POOL);
    CUresult r = p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (!p)
        ;
    else if (attribute >= 1 && attribute <= POOL_REUSE_LAST)
        p->reuse[attribute - 1] = *(int *)value;
    else if (attribute == POOL_RELEASE_THRESHOLD)
        p->threshold = *(uint64_t *)value;
    else if ((attribute == POOL_USED_HIGH || attribute == POOL_RESERVED_HIGH) &&
             *(uint64_t *)value == 0)
        p->used_high = p->used; /* only a reset is allowed */
    else
        r = CUDA_ERROR_INVALID_VALUE;
    state_unlock();
    return r;
}
API(cuMemPoolSetAttribute, pool_set, (CUmemoryPool pool, int attr, void *value),
    (pool, attr, value))

static CUresult pool_get(CUmemoryPool handle, int attribute, void *ret)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    struct pool *p = object_of(handle, OBJECT_POOL);
    CUresult r = p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (!p)
        ;
    else if (attribute >= 1 && attribute <= POOL_REUSE_LAST)
        *(int *)ret = p->reuse[attribute - 1];
    else if (attribute == POOL_RELEASE_THRESHOLD)
        *(uint64_t *)ret = p->threshold;
    else if (attribute == POOL_USED || attribute == POOL_RESERVED)
        *(uint64_t *)ret = p->used;
    else if (attribute == POOL_USED_HIGH || attribute == POOL_RESERVED_HIGH)
        *(uint64_t *)ret = p->used_high;
    else
        r = CUDA_ERROR_INVALID_VALUE;
    state_unlock();
    return r;
}
API(cuMemPoolGetAttribute, pool_get, (CUmemoryPool pool, int attr, void *value),
    (pool, attr, value))

/* The handle of a pool is a file that says so; pointers carry all that is needed to map them. */
static CUresult pool_export(void *ret, CUmemoryPool handle, int type)
{
    if (!ret || type != CU_MEM_HANDLE_POSIX_FD || pool_check(handle) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    int fd = memfd_create("standin-pool", MFD_CLOEXEC);
    if (fd < 0 || write(fd, POOL_MAGIC, sizeof(POOL_MAGIC)) != (ssize_t)sizeof(POOL_MAGIC)) {
        if (fd >= 0)
            close(fd);
        return CUDA_ERROR_UNKNOWN;
    }
    *(int *)ret = fd;
    return CUDA_SUCCESS;
}
API(cuMemPoolExportToShareableHandle, pool_export,
    (void *handle_out, CUmemoryPool pool, int handleType, unsigned long long flags),
    (handle_out, pool, handleType))

static CUresult pool_import(CUmemoryPool *ret, void *handle, int type)
{
    char magic[sizeof(POOL_MAGIC)] = "";
    struct context *c;

    if (!ret || type != CU_MEM_HANDLE_POSIX_FD)
        return CUDA_ERROR_INVALID_VALUE;
    if (pread((int)(uintptr_t)handle, magic, sizeof(magic), 0) != (ssize_t)sizeof(magic) ||
        memcmp(magic, POOL_MAGIC, sizeof(magic)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    struct device *d = context_current(&c) == CUDA_SUCCESS ? c->device : &standin.devices[0];
    struct pool *p = pool_new(d);
    if (p)
        *ret = p;
    state_unlock();
    return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
API(cuMemPoolImportFromShareableHandle, pool_import,
    (CUmemoryPool * pool_out, void *handle, int handleType, unsigned long long flags),
    (pool_out, handle, handleType))

static CUresult export_pointer(CUmemPoolPtrExportData *ret, CUdeviceptr address)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    struct block *b = memory_begins(address);
    CUresult r =
        b && b->kind == STANDIN_POOL ? export_make(address, true, ret) : CUDA_ERROR_INVALID_VALUE;
    state_unlock();
    return r;
}
API(cuMemPoolExportPointer, export_pointer,
    (CUmemPoolPtrExportData * shareData_out, CUdeviceptr ptr), (shareData_out, ptr))

static CUresult import_pointer(CUdeviceptr *ret, CUmemoryPool pool,
                               const CUmemPoolPtrExportData *data)
{
    struct context *c;

    if (!ret || !data)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = object_of(pool, OBJECT_POOL) ? context_current(&c) : CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        r = export_open(data, c, ret);
    if (r == CUDA_SUCCESS)
        memory_begins(*ret)->flags = 1; /* cuMemFree() ends it */
    state_unlock();
    return r;
}
API(cuMemPoolImportPointer, import_pointer,
    (CUdeviceptr * ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData),
    (ptr_out, pool, shareData))

static CUresult device_set_pool(CUdevice dev, CUmemoryPool handle)
{
    struct device *d = device_of(dev);

    if (!d)
        return CUDA_ERROR_INVALID_DEVICE;
    state_lock();
    struct pool *p = object_of(handle, OBJECT_POOL);
    bool fits = p && p->device == d;
    if (fits)
        d->current_pool = p;
    state_unlock();
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API(cuDeviceSetMemPool, device_set_pool, (CUdevice dev, CUmemoryPool pool), (dev, pool))

static CUresult device_get_pool(CUmemoryPool *ret, CUdevice dev, bool current)
{
    struct device *d = device_of(dev);

    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    if (!d)
        return CUDA_ERROR_INVALID_DEVICE;
    state_lock();
    struct pool *p = current ? pool_current(d) : pool_default(d);
    if (p)
        *ret = p;
    state_unlock();
    return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
API(cuDeviceGetMemPool, device_get_pool, (CUmemoryPool * pool, CUdevice dev), (pool, dev, true))
API(cuDeviceGetDefaultMemPool, device_get_pool, (CUmemoryPool * pool_out, CUdevice dev),
    (pool_out, dev, false))

static CUresult location_device(const CUmemLocation *location, int type, CUdevice *ret)
{
    if (!location || type != CU_MEM_ALLOCATION_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    *ret = location->id;
    return CUDA_SUCCESS;
}

static CUresult set_pool(CUmemLocation *location, int type, CUmemoryPool pool)
{
    CUdevice dev;
    CUresult r = location_device(location, type, &dev);

    return r == CUDA_SUCCESS ? device_set_pool(dev, pool) : r;
}
API(cuMemSetMemPool, set_pool, (CUmemLocation * location, int type, CUmemoryPool pool),
    (location, type, pool))

static CUresult get_pool(CUmemoryPool *ret, CUmemLocation *location, int type, bool current)
{
    CUdevice dev;
    CUresult r = location_device(location, type, &dev);

    return r == CUDA_SUCCESS ? device_get_pool(ret, dev, current) : r;
}
API(cuMemGetDefaultMemPool, get_pool, (CUmemoryPool * pool_out, CUmemLocation *location, int type),
    (pool_out, location, type, false))
API(cuMemGetMemPool, get_pool, (CUmemoryPool * pool, CUmemLocation *location, int type),
    (pool, location, type, true))

/* api_host.c: pinned and registered host memory. Both are known by their host address, which devices use as well. */
#include <sys/mman.h>
#include <unistd.h>

#include "standin/memory.h"
#include "standin/timing.h"

static CUresult host_alloc(void **ret, size_t size, unsigned flags)
{
    struct context *c;
    struct block *b;

    if (!ret || flags > 7)
        return CUDA_ERROR_INVALID_VALUE;
    if (size == 0) {
        *ret = NULL;
        return CUDA_SUCCESS;
    }
    state_lock();
    CUresult r = context_current(&c);
    if (r == CUDA_SUCCESS)
        r = memory_take(STANDIN_HOST, c->device, &standin.host, c, size, &b);
    if (r == CUDA_SUCCESS) {
        b->flags = flags;
        *ret = (void *)b->node.key;
    }
    state_unlock();
    return r;
}
API_CONTEXT(cuMemHostAlloc, host_alloc, (void **pp, size_t bytesize, unsigned int Flags),
            (pp, bytesize, Flags))
API_CONTEXT(cuMemAllocHost_v2, host_alloc, (void **pp, size_t bytesize), (pp, bytesize, 0))
API_CONTEXT(cuMemAllocHost, host_alloc, (void **pp, unsigned int bytesize), (pp, bytesize, 0))

static CUresult host_free(void *p)
{
    struct context *c;

    if (!p)
        return CUDA_SUCCESS;
    state_lock();
    CUresult r = context_current(&c);
    if (r == CUDA_SUCCESS) {
        struct block *b = memory_begins((uintptr_t)p);
        if (b && b->kind == STANDIN_HOST)
            memory_drop(b);
        else
            r = CUDA_ERROR_INVALID_VALUE;
    }
    state_unlock();
    return r;
}
API(cuMemFreeHost, host_free, (void *p), (p))

/* Whether every page of the range is mapped. */
static bool mapped(uintptr_t address, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = address & ~(page - 1), to = address + size;
    unsigned char seen[4096];

    while (from < to) {
        size_t length = to - from;
        if (length > page * sizeof(seen))
            length = page * sizeof(seen);
        if (mincore((void *)from, length, seen) < 0)
            return false;
        from += length;
    }
    return true;
}

static CUresult host_register(void *p, size_t size, unsigned flags)
{
    uintptr_t address = (uintptr_t)p;
    struct context *c;
    struct block *b;

    if (!p || size == 0 || flags > 15 || address + size < address)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = context_current(&c);
    struct block *there = memory_overlaps(address, size);
    if (r == CUDA_SUCCESS && there)
        r = there->kind == STANDIN_REGISTERED ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                                              : CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS && !mapped(address, size))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        r = memory_add(STANDIN_REGISTERED, c->device, c, address, size, &b);
    if (r == CUDA_SUCCESS)
        b->flags = flags;
    state_unlock();
    if (r == CUDA_SUCCESS)
        timing_register(size);
    return r;
}
API_CONTEXT(cuMemHostRegister_v2, host_register, (void *p, size_t bytesize, unsigned int Flags),
            (p, bytesize, Flags))
API_CONTEXT(cuMemHostRegister, host_register, (void *p, size_t bytesize, unsigned int Flags),
            (p, bytesize, Flags))

/* As with cuMemFree(), no context need be current. */
static CUresult host_unregister(void *p)
{
    struct context *c;

    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    timing_flush();
    state_lock();
    CUresult r = context_current(&c);
    struct block *b = memory_at((uintptr_t)p);
    if (r == CUDA_ERROR_CONTEXT_IS_DESTROYED)
        ;
    else if (!b)
        r = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    else if (b->kind != STANDIN_REGISTERED || b->node.key != (uintptr_t)p)
        r = CUDA_ERROR_INVALID_VALUE;
    else
        r = CUDA_SUCCESS;
    if (r == CUDA_SUCCESS) {
        timing_unregister(b->size);
        memory_drop(b);
    }
    state_unlock();
    return r;
}
API(cuMemHostUnregister, host_unregister, (void *p), (p))

/* The block of host memory at `p`. Needs the lock. */
static CUresult host_at(void *p, struct block **ret)
{
    struct context *c;
    CUresult r = context_current(&c);
    struct block *b = memory_at((uintptr_t)p);

    if (r != CUDA_SUCCESS)
        return r;
    if (!b || memory_is_device(b))
        return CUDA_ERROR_INVALID_VALUE;
    *ret = b;
    return CUDA_SUCCESS;
}

static CUresult host_device_pointer(CUdeviceptr *ret, void *p, unsigned flags)
{
    struct block *b;

    if (!ret || !p || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = host_at(p, &b);
    if (r == CUDA_SUCCESS)
        *ret = (uintptr_t)p;
    state_unlock();
    return r;
}
API(cuMemHostGetDevicePointer_v2, host_device_pointer,
    (CUdeviceptr * pdptr, void *p, unsigned int Flags), (pdptr, p, Flags))

static CUresult host_flags(unsigned *ret, void *p)
{
    struct block *b;

    if (!ret || !p)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = host_at(p, &b);
    if (r == CUDA_SUCCESS)
        *ret = b->flags | 2; /* with unified addressing all host memory is mapped */
    state_unlock();
    return r;
}
API(cuMemHostGetFlags, host_flags, (unsigned int *pFlags, void *p), (pFlags, p))

/* api_memory.c: device and managed memory, and questions about addresses. */
#include <stdlib.h>

#include "standin/memory.h"

static CUresult allocate(enum standin_kind kind, uint64_t *ret, size_t size)
{
    struct context *c;
    struct block *b;

    if (!ret || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = context_current(&c);
    if (r == CUDA_SUCCESS)
        r = memory_take(kind, c->device, &c->device->memory, c, size, &b);
    if (r == CUDA_SUCCESS)
        *ret = b->node.key;
    state_unlock();
    return r;
}

static CUresult alloc(CUdeviceptr *ret, size_t size)
{
    uint64_t address;
    CUresult r = ret ? allocate(STANDIN_DEVICE, &address, size) : CUDA_ERROR_INVALID_VALUE;

    if (r == CUDA_SUCCESS)
        *ret = address;
    return r;
}
API_CONTEXT(cuMemAlloc_v2, alloc, (CUdeviceptr * dptr, size_t bytesize), (dptr, bytesize))

static CUresult alloc_managed(CUdeviceptr *ret, size_t size, unsigned flags)
{
    uint64_t address;

    /* 1: any stream, 2: the host only */
    if (!ret || (flags != 1 && flags != 2))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = allocate(STANDIN_MANAGED, &address, size);
    if (r == CUDA_SUCCESS)
        *ret = address;
    return r;
}
API_CONTEXT(cuMemAllocManaged, alloc_managed,
            (CUdeviceptr * dptr, size_t bytesize, unsigned int flags), (dptr, bytesize, flags))

#define PITCH_ALIGNMENT 512u

static CUresult alloc_pitch(CUdeviceptr *ret, size_t *ret_pitch, size_t width, size_t height,
                            unsigned element)
{
    uint64_t address;
    size_t pitch = (width + PITCH_ALIGNMENT - 1) / PITCH_ALIGNMENT * PITCH_ALIGNMENT, size;

    if (!ret || !ret_pitch || width == 0 || height == 0 || pitch < width)
        return CUDA_ERROR_INVALID_VALUE;
    if (element != 4 && element != 8 && element != 16)
        return CUDA_ERROR_INVALID_VALUE;
    if (__builtin_mul_overflow(pitch, height, &size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = allocate(STANDIN_DEVICE, &address, size);
    if (r == CUDA_SUCCESS) {
        *ret = address;
        *ret_pitch = pitch;
    }
    return r;
}
API_CONTEXT(cuMemAllocPitch_v2, alloc_pitch,
            (CUdeviceptr * dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
             unsigned int ElementSizeBytes),
            (dptr, pPitch, WidthInBytes, Height, ElementSizeBytes))

/* The forms with pointers of 32 bits have addresses of their own, below 4 GiB. */
#define LOW_BYTES (64ul << 20)

static CUresult alloc_low(CUdeviceptr_v1 *ret, size_t size)
{
    struct context *c;
    struct block *b;

    if (!ret || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = context_current(&c);
    struct arena *low = r == CUDA_SUCCESS ? &c->device->low : NULL;
    if (low && !low->base && arena_open(low, LOW_BYTES, ARENA_BELOW_4G, 0, "standin-low") < 0)
        r = CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS)
        r = memory_take(STANDIN_DEVICE, c->device, low, c, size, &b);
    if (r == CUDA_SUCCESS)
        *ret = (CUdeviceptr_v1)b->node.key;
    state_unlock();
    return r;
}
API_CONTEXT(cuMemAlloc, alloc_low, (CUdeviceptr_v1 * dptr, unsigned int bytesize), (dptr, bytesize))

static CUresult alloc_pitch_low(CUdeviceptr_v1 *ret, unsigned *ret_pitch, unsigned width,
                                unsigned height, unsigned element)
{
    uint64_t pitch = ((uint64_t)width + PITCH_ALIGNMENT - 1) / PITCH_ALIGNMENT * PITCH_ALIGNMENT;

    if (!ret_pitch || width == 0 || height == 0 || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = alloc_low(ret, pitch * height);
    if (r == CUDA_SUCCESS)
        *ret_pitch = (unsigned)pitch;
    return r;
}
API_CONTEXT(cuMemAllocPitch, alloc_pitch_low,
            (CUdeviceptr_v1 * dptr, unsigned int *pPitch, unsigned int WidthInBytes,
             unsigned int Height, unsigned int ElementSizeBytes),
            (dptr, pPitch, WidthInBytes, Height, ElementSizeBytes))

static bool freeable(const struct block *b)
{
    switch (b->kind) {
    case STANDIN_DEVICE:
    case STANDIN_MANAGED:
    case STANDIN_POOL:
    case STANDIN_GRAPH:
        return true;
    case STANDIN_IMPORTED:
        return b->flags == 1; /* not by IPC, which has a call of its own */
    default:
        return false;
    }
}

/* Addresses say whose they are: no context need be current. But a current one must not be destroyed. */
static CUresult release(CUdeviceptr address)
{
    struct context *c;

    if (!address)
        return CUDA_SUCCESS;
    state_lock();
    CUresult r = context_current(&c);
    if (r != CUDA_ERROR_CONTEXT_IS_DESTROYED) {
        struct block *b = memory_begins(address);
        r = b && freeable(b) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        if (r == CUDA_SUCCESS)
            memory_drop(b);
    }
    state_unlock();
    return r;
}
API(cuMemFree_v2, release, (CUdeviceptr dptr), (dptr))
API(cuMemFree, release, (CUdeviceptr_v1 dptr), (dptr))

static void others(const struct shared_file *f, void *arg)
{
    uint64_t *used = arg;

    for (int i = 0; i < STANDIN_DEVICES_MAX; i++)
        if (f->pid != standin.shared.file->pid)
            used[i] += f->used[i];
}

static CUresult get_info(size_t *ret_free, size_t *ret_total)
{
    struct context *c;
    uint64_t used[STANDIN_DEVICES_MAX] = {0};

    if (!ret_free || !ret_total)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = context_current(&c);
    if (r == CUDA_SUCCESS) {
        if (standin.shared.file)
            shared_walk(others, used);
        uint64_t taken = device_used(c->device) + used[c->device->index];
        *ret_total = standin.memory_bytes;
        *ret_free = taken < standin.memory_bytes ? standin.memory_bytes - taken : 0;
    }
    state_unlock();
    return r;
}
API(cuMemGetInfo_v2, get_info, (size_t * free, size_t *total), (free, total))

static CUresult get_info_low(unsigned *ret_free, unsigned *ret_total)
{
    size_t free_bytes, total;
    CUresult r = ret_free && ret_total ? get_info(&free_bytes, &total) : CUDA_ERROR_INVALID_VALUE;

    if (r == CUDA_SUCCESS) {
        *ret_free = free_bytes > UINT32_MAX ? UINT32_MAX : (unsigned)free_bytes;
        *ret_total = total > UINT32_MAX ? UINT32_MAX : (unsigned)total;
    }
    return r;
}
API(cuMemGetInfo, get_info_low, (unsigned int *free, unsigned int *total), (free, total))

static CUresult get_range(CUdeviceptr *ret_base, size_t *ret_size, CUdeviceptr address)
{
    struct context *c;

    state_lock();
    CUresult r = context_current(&c);
    struct block *b = memory_at(address);
    if (r == CUDA_SUCCESS && !b)
        r = CUDA_ERROR_NOT_FOUND;
    if (r == CUDA_SUCCESS && ret_base)
        *ret_base = b->node.key;
    if (r == CUDA_SUCCESS && ret_size)
        *ret_size = b->size;
    state_unlock();
    return r;
}
API(cuMemGetAddressRange_v2, get_range, (CUdeviceptr * pbase, size_t *psize, CUdeviceptr dptr),
    (pbase, psize, dptr))

/* What CU_POINTER_ATTRIBUTE_... asks for. */
enum {
    ATTRIBUTE_CONTEXT = 1,
    ATTRIBUTE_MEMORY_TYPE = 2,
    ATTRIBUTE_DEVICE_POINTER = 3,
    ATTRIBUTE_HOST_POINTER = 4,
    ATTRIBUTE_BUFFER_ID = 7,
    ATTRIBUTE_IS_MANAGED = 8,
    ATTRIBUTE_DEVICE_ORDINAL = 9,
    ATTRIBUTE_RANGE_START = 11,
    ATTRIBUTE_RANGE_SIZE = 12,
    ATTRIBUTE_MAPPED = 13,
    ATTRIBUTE_MEMPOOL = 17,
};

static CUresult attribute_of(const struct block *b, void *ret, int attribute, CUdeviceptr address)
{
    bool device = memory_is_device(b);

    switch (attribute) {
    case ATTRIBUTE_CONTEXT:
        *(CUcontext *)ret = b->context;
        return CUDA_SUCCESS;
    case ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)ret = device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        return CUDA_SUCCESS;
    case ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)ret = address;
        return CUDA_SUCCESS;
    case ATTRIBUTE_HOST_POINTER:
        if (device && b->kind != STANDIN_MANAGED)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)ret = (void *)(uintptr_t)address;
        return CUDA_SUCCESS;
    case ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)ret = b->id;
        return CUDA_SUCCESS;
    case ATTRIBUTE_IS_MANAGED:
        *(unsigned *)ret = b->kind == STANDIN_MANAGED;
        return CUDA_SUCCESS;
    case ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)ret = b->device->number;
        return CUDA_SUCCESS;
    case ATTRIBUTE_RANGE_START:
        *(CUdeviceptr *)ret = b->node.key;
        return CUDA_SUCCESS;
    case ATTRIBUTE_RANGE_SIZE:
        *(size_t *)ret = b->size;
        return CUDA_SUCCESS;
    case ATTRIBUTE_MAPPED:
        *(unsigned *)ret = 1;
        return CUDA_SUCCESS;
    case ATTRIBUTE_MEMPOOL:
        *(CUmemoryPool *)ret = b->pool;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

static CUresult attribute(void *ret, int which, CUdeviceptr address)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    struct block *b = memory_at(address);
    CUresult r = b ? attribute_of(b, ret, which, address) : CUDA_ERROR_INVALID_VALUE;
    state_unlock();
    return r;
}
API(cuPointerGetAttribute, attribute, (void *data, int which, CUdeviceptr ptr), (data, which, ptr))

/* Of an address that is not known, all values are 0 and the call succeeds. */
static CUresult attributes(unsigned count, int *which, void **data, CUdeviceptr address)
{
    if (!which || !data || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        if (attribute(data[i], which[i], address) == CUDA_SUCCESS)
            continue;
        if (which[i] == ATTRIBUTE_DEVICE_ORDINAL)
            *(int *)data[i] = -2;
        else if (which[i] == ATTRIBUTE_MEMORY_TYPE || which[i] == ATTRIBUTE_IS_MANAGED ||
                 which[i] == ATTRIBUTE_MAPPED)
            *(unsigned *)data[i] = 0;
        else
            *(uint64_t *)data[i] = 0;
    }
    return CUDA_SUCCESS;
}
API(cuPointerGetAttributes, attributes,
    (unsigned int numAttributes, int *which, void **data, CUdeviceptr ptr),
    (numAttributes, which, data, ptr))

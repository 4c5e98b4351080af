/* api_array.c: arrays, mipmapped arrays, and copies of ranges of arrays. */
#include "standin/array.h"

#include <stdlib.h>

#include "standin/copy.h"

#define LEVELS_MAX 32u

struct mipmap {
    struct object object;
    struct array *levels[LEVELS_MAX];
    unsigned count;
};

/* Bytes of an element, or 0 if the format is not known. */
static size_t element_bytes(unsigned format, unsigned channels)
{
    if (channels != 1 && channels != 2 && channels != 4)
        return 0;
    switch (format) {
    case 0x01: /* unsigned, signed */
    case 0x08:
        return channels;
    case 0x02:
    case 0x09:
    case 0x10: /* half */
        return channels * 2ul;
    case 0x03:
    case 0x0a:
    case 0x20: /* float */
        return channels * 4ul;
    default:
        return 0;
    }
}

/* Needs the lock. */
static CUresult array_new(struct context *c, const CUDA_ARRAY3D_DESCRIPTOR *d, struct array **ret)
{
    size_t element = element_bytes(d->format, d->channels), row, bytes;
    size_t height = d->height ? d->height : 1, depth = d->depth ? d->depth : 1;

    if (element == 0 || d->width == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (__builtin_mul_overflow(d->width, element, &row) ||
        __builtin_mul_overflow(row, height, &bytes) || __builtin_mul_overflow(bytes, depth, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct array *a = calloc(1, sizeof(*a));
    if (!a)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = memory_take(STANDIN_ARRAY, c->device, &c->device->memory, c, bytes, &a->block);
    if (r != CUDA_SUCCESS) {
        free(a);
        return r;
    }
    a->shape = *d;
    a->shape.height = height;
    a->shape.depth = depth;
    a->row_bytes = row;
    object_add(&a->object, OBJECT_ARRAY, context_memory(c));
    *ret = a;
    return CUDA_SUCCESS;
}

static void array_free(struct array *a)
{
    memory_drop(a->block);
    object_remove(&a->object);
    free(a);
}

void array_drop_context(const struct context *c)
{
    struct node *n = tree_ceiling(&standin.objects, 0);

    while (n) {
        struct object *o = NODE_OF(n, struct object, node);
        n = tree_ceiling(&standin.objects, n->key + 1);
        if (o->context != c)
            continue;
        if (o->kind == OBJECT_ARRAY) {
            array_free((struct array *)o);
        } else if (o->kind == OBJECT_MIPMAP) {
            object_remove(o);
            free(o);
        }
    }
}

static CUresult create_3d(CUarray *ret, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    struct context *c;

    if (!ret || !d)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = context_current(&c);
    if (r == CUDA_SUCCESS)
        r = array_new(c, d, ret);
    state_unlock();
    return r;
}
API(cuArray3DCreate_v2, create_3d,
    (CUarray * pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray), (pHandle, pAllocateArray))

static CUresult create_2d(CUarray *ret, const CUDA_ARRAY_DESCRIPTOR *d)
{
    CUDA_ARRAY3D_DESCRIPTOR shape = {0};

    if (!d)
        return CUDA_ERROR_INVALID_VALUE;
    shape.width = d->width;
    shape.height = d->height;
    shape.format = d->format;
    shape.channels = d->channels;
    return create_3d(ret, &shape);
}
API(cuArrayCreate_v2, create_2d, (CUarray * pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray),
    (pHandle, pAllocateArray))

static CUresult array_descriptor(CUDA_ARRAY3D_DESCRIPTOR *ret, CUarray handle)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    struct array *a = object_of(handle, OBJECT_ARRAY);
    if (a)
        *ret = a->shape;
    state_unlock();
    return a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
API(cuArray3DGetDescriptor_v2, array_descriptor,
    (CUDA_ARRAY3D_DESCRIPTOR * pArrayDescriptor, CUarray hArray), (pArrayDescriptor, hArray))

static CUresult array_destroy(CUarray handle)
{
    state_lock();
    struct array *a = object_of(handle, OBJECT_ARRAY);
    bool own = a && !a->level;
    if (own)
        array_free(a);
    state_unlock();
    return own ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
API(cuArrayDestroy, array_destroy, (CUarray hArray), (hArray))

/* Needs the lock. */
static void mipmap_free(struct mipmap *m)
{
    for (unsigned i = 0; i < m->count; i++)
        array_free(m->levels[i]);
    object_remove(&m->object);
    free(m);
}

static size_t halved(size_t n)
{
    return n > 1 ? n / 2 : n;
}

static CUresult mipmap_create(CUmipmappedArray *ret, const CUDA_ARRAY3D_DESCRIPTOR *d,
                              unsigned levels)
{
    struct context *c;

    if (!ret || !d || levels == 0)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = context_current(&c);
    struct mipmap *m = r == CUDA_SUCCESS ? calloc(1, sizeof(*m)) : NULL;
    if (r == CUDA_SUCCESS && !m)
        r = CUDA_ERROR_OUT_OF_MEMORY;
    if (m) {
        object_add(&m->object, OBJECT_MIPMAP, context_memory(c));
        CUDA_ARRAY3D_DESCRIPTOR shape = *d;
        while (r == CUDA_SUCCESS && m->count < levels && m->count < LEVELS_MAX) {
            r = array_new(c, &shape, &m->levels[m->count]);
            if (r != CUDA_SUCCESS)
                break;
            m->levels[m->count++]->level = true;
            if (shape.width == 1 && shape.height <= 1 && shape.depth <= 1)
                break;
            shape.width = halved(shape.width);
            shape.height = halved(shape.height);
            shape.depth = halved(shape.depth);
        }
        if (r == CUDA_SUCCESS)
            *ret = m;
        else
            mipmap_free(m);
    }
    state_unlock();
    return r;
}
API(cuMipmappedArrayCreate, mipmap_create,
    (CUmipmappedArray * pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
     unsigned int numMipmapLevels),
    (pHandle, pMipmappedArrayDesc, numMipmapLevels))

static CUresult mipmap_destroy(CUmipmappedArray handle)
{
    state_lock();
    struct mipmap *m = object_of(handle, OBJECT_MIPMAP);
    if (m)
        mipmap_free(m);
    state_unlock();
    return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
API(cuMipmappedArrayDestroy, mipmap_destroy, (CUmipmappedArray hMipmappedArray), (hMipmappedArray))

static CUresult mipmap_level(CUarray *ret, CUmipmappedArray handle, unsigned level)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    struct mipmap *m = object_of(handle, OBJECT_MIPMAP);
    CUresult r = !m                 ? CUDA_ERROR_INVALID_HANDLE
                 : level < m->count ? CUDA_SUCCESS
                                    : CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *ret = m->levels[level];
    state_unlock();
    return r;
}
API(cuMipmappedArrayGetLevel, mipmap_level,
    (CUarray * pLevelArray, CUmipmappedArray hMipmappedArray, unsigned int level),
    (pLevelArray, hMipmappedArray, level))

/* Sparse arrays are not supported, as the device's attribute tells. */
static CUresult map_array(const void *list, unsigned count)
{
    return list && count ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}
API_PTSZ(cuMemMapArrayAsync, map_array, (void *mapInfoList, unsigned int count, CUstream hStream),
         (mapInfoList, count))

/* The address of byte `offset` of an array, if `size` bytes of its first row follow: these copies are for arrays of one
 * dimension. */
static CUresult array_bytes(CUarray handle, size_t offset, size_t size, uint64_t *ret)
{
    state_lock();
    struct array *a = object_of(handle, OBJECT_ARRAY);
    CUresult r = a ? CUDA_SUCCESS : handle ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    if (a && (offset > a->row_bytes || size > a->row_bytes - offset))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *ret = a->block->node.key + offset;
    state_unlock();
    return r;
}

static CUresult to_array(CUarray dst, size_t offset, uint64_t src, enum copy_side side, size_t size,
                         CUstream stream)
{
    struct copy c = {0, src, COPY_DEVICE, side, size};
    CUresult r = array_bytes(dst, offset, size, &c.dst);

    return r == CUDA_SUCCESS ? copy_submit(&c, stream) : r;
}

static CUresult from_array(uint64_t dst, enum copy_side side, CUarray src, size_t offset,
                           size_t size, CUstream stream)
{
    struct copy c = {dst, 0, side, COPY_DEVICE, size};
    CUresult r = array_bytes(src, offset, size, &c.src);

    return r == CUDA_SUCCESS ? copy_submit(&c, stream) : r;
}

API_PTDS(cuMemcpyHtoA_v2, to_array,
         (CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount),
         (dstArray, dstOffset, (uintptr_t)srcHost, COPY_HOST, ByteCount, NULL))
API_PTSZ(cuMemcpyHtoAAsync_v2, to_array,
         (CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount,
          CUstream hStream),
         (dstArray, dstOffset, (uintptr_t)srcHost, COPY_HOST, ByteCount, hStream))
API_PTDS(cuMemcpyDtoA_v2, to_array,
         (CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount),
         (dstArray, dstOffset, srcDevice, COPY_DEVICE, ByteCount, NULL))
API_PTDS(cuMemcpyAtoH_v2, from_array,
         (void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount),
         ((uintptr_t)dstHost, COPY_HOST, srcArray, srcOffset, ByteCount, NULL))
API_PTSZ(cuMemcpyAtoHAsync_v2, from_array,
         (void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream),
         ((uintptr_t)dstHost, COPY_HOST, srcArray, srcOffset, ByteCount, hStream))
API_PTDS(cuMemcpyAtoD_v2, from_array,
         (CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount),
         (dstDevice, COPY_DEVICE, srcArray, srcOffset, ByteCount, NULL))

static CUresult between(CUarray dst, size_t dst_offset, CUarray src, size_t src_offset, size_t size)
{
    uint64_t address;
    CUresult r = array_bytes(src, src_offset, size, &address);

    return r == CUDA_SUCCESS ? to_array(dst, dst_offset, address, COPY_DEVICE, size, NULL) : r;
}
API_PTDS(cuMemcpyAtoA_v2, between,
         (CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset, size_t ByteCount),
         (dstArray, dstOffset, srcArray, srcOffset, ByteCount))

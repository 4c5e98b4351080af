/* api_set.c: setting memory, and hints about managed memory. */
#include "standin/set.h"

#include <string.h>

#include "standin/graph.h"
#include "standin/stream.h"

static void fill(char *row, unsigned value, unsigned element, size_t count)
{
    if (element == 1) {
        memset(row, (int)value, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        memcpy(row + i * element, &value, element);
}

CUresult set_run(const CUDA_MEMSET_NODE_PARAMS *p)
{
    size_t row = p->width * p->element_size, rows = p->height;
    size_t pitch = rows > 1 ? p->pitch : row;
    struct context *c;

    if (p->width > SIZE_MAX / 8 || p->dst % p->element_size || (rows > 1 && pitch < row) ||
        (rows > 1 && pitch % p->element_size))
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = context_current(&c);
    for (size_t y = 0; y < rows && r == CUDA_SUCCESS; y++)
        if (!memory_covers(p->dst + y * pitch, row))
            r = CUDA_ERROR_INVALID_VALUE;
    state_unlock();
    if (r != CUDA_SUCCESS)
        return r;
    for (size_t y = 0; y < rows && row; y++)
        fill((char *)p->dst + y * pitch, p->value, p->element_size, p->width);
    state_lock();
    standin.counts.sets++;
    standin.counts.set_bytes += row * rows;
    state_unlock();
    return CUDA_SUCCESS;
}

static CUresult set(CUdeviceptr dst, size_t pitch, unsigned value, unsigned element, size_t width,
                    size_t height, CUstream stream)
{
    CUDA_MEMSET_NODE_PARAMS p = {dst, pitch, value, element, width, height};
    struct stream *s;

    state_lock();
    CUresult r = stream_of(stream, &s);
    if (r == CUDA_SUCCESS && s && s->capture) {
        r = graph_record_set(s->capture, &p);
        state_unlock();
        return r;
    }
    state_unlock();
    return r == CUDA_SUCCESS ? set_run(&p) : r;
}

#define SET_FORMS(bits, bytes, type)                                                            \
    API_PTDS(cuMemsetD##bits##_v2, set, (CUdeviceptr dstDevice, type value, size_t N),          \
             (dstDevice, 0, value, bytes, N, 1, NULL))                                          \
    API_PTSZ(cuMemsetD##bits##Async, set,                                                       \
             (CUdeviceptr dstDevice, type value, size_t N, CUstream hStream),                   \
             (dstDevice, 0, value, bytes, N, 1, hStream))                                       \
    API_PTDS(cuMemsetD2D##bits##_v2, set,                                                       \
             (CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width, size_t Height), \
             (dstDevice, dstPitch, value, bytes, Width, Height, NULL))                          \
    API_PTSZ(cuMemsetD2D##bits##Async, set,                                                     \
             (CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width, size_t Height,  \
              CUstream hStream),                                                                \
             (dstDevice, dstPitch, value, bytes, Width, Height, hStream))
SET_FORMS(8, 1, unsigned char)
SET_FORMS(16, 2, unsigned short)
SET_FORMS(32, 4, unsigned int)

/* Hints change nothing here, but need managed memory (or any host memory, where the system shares its page tables). */
static CUresult hint(CUdeviceptr address, size_t size, int device)
{
    struct context *c;

    if (address == 0 || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = context_current(&c);
    struct block *b = memory_at(address);
    if (r == CUDA_SUCCESS && (!b || b->kind != STANDIN_MANAGED || !memory_covers(address, size)))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS && device != -1 && !device_of(device)) /* -1: the host */
        r = CUDA_ERROR_INVALID_DEVICE;
    state_unlock();
    return r;
}

static CUresult hint_on(CUdeviceptr address, size_t size, int device, CUstream stream)
{
    struct stream *s;

    state_lock();
    CUresult r = stream_of(stream, &s);
    state_unlock();
    return r == CUDA_SUCCESS ? hint(address, size, device) : r;
}

static CUresult hint_at(CUdeviceptr address, size_t size, CUmemLocation location, CUstream stream)
{
    if (location.type < CU_MEM_LOCATION_DEVICE || location.type > 4)
        return CUDA_ERROR_INVALID_VALUE;
    return hint_on(address, size, location.type == CU_MEM_LOCATION_DEVICE ? location.id : -1,
                   stream);
}
API_PTSZ(cuMemPrefetchAsync, hint_on,
         (CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream),
         (devPtr, count, dstDevice, hStream))
API_PTSZ(cuMemPrefetchAsync_v2, hint_at,
         (CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
          CUstream hStream),
         (devPtr, count, location, hStream))
/* Advice 1 and 2 (read mostly) look at no location. */
static CUresult advise(CUdeviceptr address, size_t size, int advice, CUmemLocation location)
{
    if (advice < 1 || advice > 6)
        return CUDA_ERROR_INVALID_VALUE;
    return advice <= 2 ? hint_on(address, size, -1, NULL) : hint_at(address, size, location, NULL);
}

static CUresult advise_device(CUdeviceptr address, size_t size, int advice, CUdevice device)
{
    CUmemLocation at = {device < 0 ? CU_MEM_LOCATION_HOST : CU_MEM_LOCATION_DEVICE, device};

    return advise(address, size, advice, at);
}
API(cuMemAdvise, advise_device, (CUdeviceptr devPtr, size_t count, int advice, CUdevice device),
    (devPtr, count, advice, device))
API(cuMemAdvise_v2, advise, (CUdeviceptr devPtr, size_t count, int advice, CUmemLocation location),
    (devPtr, count, advice, location))

static CUresult hint_batch(CUdeviceptr *addresses, size_t *sizes, size_t count,
                           CUmemLocation *locations, size_t *indices, size_t location_count,
                           CUstream stream)
{
    if (!addresses || !sizes || count == 0 || !locations || !indices || location_count == 0 ||
        location_count > count || indices[0] != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0, at = 0; i < count; i++) {
        while (at + 1 < location_count && indices[at + 1] <= i)
            at++;
        CUresult r = hint_at(addresses[i], sizes[i], locations[at], stream);
        if (r != CUDA_SUCCESS)
            return r;
    }
    return CUDA_SUCCESS;
}
API_PTSZ(cuMemPrefetchBatchAsync, hint_batch,
         (CUdeviceptr * dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
          size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
          CUstream hStream),
         (dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, hStream))
API_PTSZ(cuMemDiscardAndPrefetchBatchAsync, hint_batch,
         (CUdeviceptr * dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
          size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
          CUstream hStream),
         (dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, hStream))

static CUresult discard_batch(CUdeviceptr *addresses, size_t *sizes, size_t count, CUstream stream)
{
    if (!addresses || !sizes || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        CUresult r = hint_on(addresses[i], sizes[i], -1, stream);
        if (r != CUDA_SUCCESS)
            return r;
    }
    return CUDA_SUCCESS;
}
API_PTSZ(cuMemDiscardBatchAsync, discard_batch,
         (CUdeviceptr * dptrs, size_t *sizes, size_t count, unsigned long long flags,
          CUstream hStream),
         (dptrs, sizes, count, hStream))

static CUresult attach(CUstream stream, CUdeviceptr address, unsigned flags)
{
    struct stream *s;

    if (flags != 1 && flags != 2 && flags != 4)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = stream_of(stream, &s);
    struct block *b = memory_at(address);
    if (r == CUDA_SUCCESS && (!b || b->kind != STANDIN_MANAGED))
        r = CUDA_ERROR_INVALID_VALUE;
    state_unlock();
    return r;
}
API_PTSZ(cuStreamAttachMemAsync, attach,
         (CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags),
         (hStream, dptr, flags))

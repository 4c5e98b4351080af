/* api_copy.c: copies of one range. */
#include <string.h>
#include <time.h>

#include "standin/copy.h"
#include "standin/graph.h"
#include "standin/stream.h"
#include "standin/timing.h"

void copy_done(bool dst_device, bool src_device, uint64_t bytes)
{
    enum standin_direction d = dst_device && src_device ? STANDIN_ON_DEVICE
                               : dst_device             ? STANDIN_TO_DEVICE
                               : src_device             ? STANDIN_FROM_DEVICE
                                                        : STANDIN_ON_HOST;

    if (standin.delay_ns) {
        struct timespec t = {(time_t)(standin.delay_ns / 1000000000u),
                             (long)(standin.delay_ns % 1000000000u)};
        nanosleep(&t, NULL);
    }
    state_lock();
    standin.counts.copies[d]++;
    standin.counts.copied_bytes[d] += bytes;
    state_unlock();
}

/* Whether `side` may be used in this way, and whether it is device memory. Needs the lock. */
static CUresult side_check(enum copy_side side, uint64_t address, size_t size, bool *ret_device)
{
    struct block *b = memory_at(address);

    *ret_device = side == COPY_DEVICE || (side == COPY_UNIFIED && memory_is_device(b));
    if (size == 0)
        return CUDA_SUCCESS;
    if (address == 0 || address + size < address)
        return CUDA_ERROR_INVALID_VALUE;
    if (*ret_device && !memory_covers(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    /* A range that begins in pinned memory must not leave it. */
    if (b && !memory_is_device(b) && address + size > b->node.key + b->size)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* `async`: it may be put off. */
static CUresult run(const struct copy *c, bool async)
{
    bool dst_device, src_device;
    struct context *context;

    state_lock();
    CUresult r = context_current(&context);
    if (r == CUDA_SUCCESS)
        r = side_check(c->dst_side, c->dst, c->size, &dst_device);
    if (r == CUDA_SUCCESS)
        r = side_check(c->src_side, c->src, c->size, &src_device);
    state_unlock();
    if (r != CUDA_SUCCESS)
        return r;
    if (!async || !timing_late(c)) {
        timing_flush();
        if (timing_moves())
            memmove((void *)c->dst, (const void *)c->src, c->size);
    }
    timing_copy(c, dst_device, src_device);
    copy_done(dst_device, src_device, c->size);
    return CUDA_SUCCESS;
}

CUresult copy_run(const struct copy *c)
{
    return run(c, false);
}

CUresult copy_run_shape(const struct copy_shape *dst, const struct copy_shape *src, size_t width,
                        size_t rows, size_t layers)
{
    bool dst_device = false, src_device = false;
    struct context *context;

    if (width == 0 || rows == 0 || layers == 0)
        return CUDA_SUCCESS;
    state_lock();
    CUresult r = context_current(&context);
    for (size_t z = 0; z < layers && r == CUDA_SUCCESS; z++)
        for (size_t y = 0; y < rows && r == CUDA_SUCCESS; y++) {
            r = side_check(dst->side, dst->address + z * dst->layer_pitch + y * dst->pitch, width,
                           &dst_device);
            if (r == CUDA_SUCCESS)
                r = side_check(src->side, src->address + z * src->layer_pitch + y * src->pitch,
                               width, &src_device);
        }
    state_unlock();
    if (r != CUDA_SUCCESS)
        return r;
    for (size_t z = 0; z < layers; z++)
        for (size_t y = 0; y < rows; y++)
            memmove((char *)dst->address + z * dst->layer_pitch + y * dst->pitch,
                    (const char *)src->address + z * src->layer_pitch + y * src->pitch, width);
    copy_done(dst_device, src_device, width * rows * layers);
    return CUDA_SUCCESS;
}

CUresult copy_submit(const struct copy *c, CUstream stream)
{
    struct stream *s;

    state_lock();
    CUresult r = stream_of(stream, &s);
    if (r == CUDA_SUCCESS && s && s->capture) {
        r = graph_record_copy(s->capture, c);
        state_unlock();
        return r;
    }
    state_unlock();
    return r == CUDA_SUCCESS ? run(c, true) : r;
}

static CUresult copy(uint64_t dst, enum copy_side dst_side, uint64_t src, enum copy_side src_side,
                     size_t size)
{
    struct copy c = {dst, src, dst_side, src_side, size};

    return copy_run(&c);
}

static CUresult copy_async(uint64_t dst, enum copy_side dst_side, uint64_t src,
                           enum copy_side src_side, size_t size, CUstream stream)
{
    struct copy c = {dst, src, dst_side, src_side, size};

    return copy_submit(&c, stream);
}

API_PTDS(cuMemcpy, copy, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount),
         (dst, COPY_UNIFIED, src, COPY_UNIFIED, ByteCount))
API_PTSZ(cuMemcpyAsync, copy_async,
         (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream),
         (dst, COPY_UNIFIED, src, COPY_UNIFIED, ByteCount, hStream))

API_PTDS(cuMemcpyHtoD_v2, copy, (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount),
         (dstDevice, COPY_DEVICE, (uintptr_t)srcHost, COPY_HOST, ByteCount))
API_PTSZ(cuMemcpyHtoDAsync_v2, copy_async,
         (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream),
         (dstDevice, COPY_DEVICE, (uintptr_t)srcHost, COPY_HOST, ByteCount, hStream))

API_PTDS(cuMemcpyDtoH_v2, copy, (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount),
         ((uintptr_t)dstHost, COPY_HOST, srcDevice, COPY_DEVICE, ByteCount))
API_PTSZ(cuMemcpyDtoHAsync_v2, copy_async,
         (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
         ((uintptr_t)dstHost, COPY_HOST, srcDevice, COPY_DEVICE, ByteCount, hStream))

API_PTDS(cuMemcpyDtoD_v2, copy, (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount),
         (dstDevice, COPY_DEVICE, srcDevice, COPY_DEVICE, ByteCount))
API_PTSZ(cuMemcpyDtoDAsync_v2, copy_async,
         (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
         (dstDevice, COPY_DEVICE, srcDevice, COPY_DEVICE, ByteCount, hStream))

/* The forms with pointers of 32 bits. */
API(cuMemcpyHtoD, copy, (CUdeviceptr_v1 dstDevice, const void *srcHost, unsigned int ByteCount),
    (dstDevice, COPY_DEVICE, (uintptr_t)srcHost, COPY_HOST, ByteCount))
API(cuMemcpyDtoH, copy, (void *dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount),
    ((uintptr_t)dstHost, COPY_HOST, srcDevice, COPY_DEVICE, ByteCount))
API(cuMemcpyDtoD, copy,
    (CUdeviceptr_v1 dstDevice, CUdeviceptr_v1 srcDevice, unsigned int ByteCount),
    (dstDevice, COPY_DEVICE, srcDevice, COPY_DEVICE, ByteCount))

/* Both contexts must be alive. */
static CUresult peers(CUcontext dst, CUcontext src)
{
    state_lock();
    bool alive = context_of(dst) && context_of(src);
    state_unlock();
    return alive ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult copy_peer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                          CUcontext src_context, size_t size, CUstream stream)
{
    CUresult r = peers(dst_context, src_context);

    return r == CUDA_SUCCESS ? copy_async(dst, COPY_DEVICE, src, COPY_DEVICE, size, stream) : r;
}
API_PTDS(cuMemcpyPeer, copy_peer,
         (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
          size_t ByteCount),
         (dstDevice, dstContext, srcDevice, srcContext, ByteCount, NULL))
API_PTSZ(cuMemcpyPeerAsync, copy_peer,
         (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
          size_t ByteCount, CUstream hStream),
         (dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream))

/* Copies run in order; the first that fails ends the batch. */
static CUresult copy_batch(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                           CUmemcpyAttributes *attributes, size_t *indices, size_t attribute_count,
                           size_t *ret_failed, CUstream stream)
{
    if (ret_failed)
        *ret_failed = SIZE_MAX;
    if (!dsts || !srcs || !sizes || count == 0 || !stream)
        return CUDA_ERROR_INVALID_VALUE;
    if (!attributes || !indices || attribute_count == 0 || attribute_count > count ||
        indices[0] != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        CUresult r = copy_async(dsts[i], COPY_UNIFIED, srcs[i], COPY_UNIFIED, sizes[i], stream);
        if (r == CUDA_SUCCESS)
            continue;
        if (ret_failed)
            *ret_failed = i;
        return r;
    }
    return CUDA_SUCCESS;
}
API_PTSZ(cuMemcpyBatchAsync, copy_batch,
         (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
          CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx,
          CUstream hStream),
         (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream))
API_PTSZ(cuMemcpyBatchAsync_v2, copy_batch,
         (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
          CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream),
         (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, NULL, hStream))

/* No algorithm is supported, as on devices without a decompression engine. */
static CUresult decompress(CUmemDecompressParams *params, size_t count, size_t *ret_failed)
{
    if (!params || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (ret_failed)
        *ret_failed = 0;
    return CUDA_ERROR_NOT_SUPPORTED;
}
API_PTSZ(cuMemBatchDecompressAsync, decompress,
         (CUmemDecompressParams * paramsArray, size_t count, unsigned int flags, size_t *errorIndex,
          CUstream stream),
         (paramsArray, count, errorIndex))

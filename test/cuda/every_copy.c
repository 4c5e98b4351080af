/* every_copy.c: copies, sets and hints. Each copy must move the bytes that it names. */
#include <stdlib.h>
#include <string.h>

#include "drive.h"

#define SIZE 4096ul

static unsigned char from[SIZE], to[SIZE];

/* New bytes to copy, unlike those before. */
static void fresh(void)
{
    static unsigned seed;

    seed++;
    for (size_t i = 0; i < SIZE; i++)
        from[i] = (unsigned char)(i * 31 + seed * 17);
    memset(to, 0, SIZE);
}

static bool arrived(size_t size)
{
    return memcmp(from, to, size) == 0;
}

static void linear(bool twin, CUdeviceptr a, CUdeviceptr b, CUstream s)
{
    fresh();
    OK_TWIN(cuMemcpyHtoD_v2, ptds, a, from, SIZE);
    OK_TWIN(cuMemcpyDtoD_v2, ptds, b, a, SIZE);
    OK_TWIN(cuMemcpyDtoH_v2, ptds, to, b, SIZE);
    HOLDS(arrived(SIZE));
    fresh();
    OK_TWIN(cuMemcpyHtoDAsync_v2, ptsz, a, from, SIZE, s);
    OK_TWIN(cuMemcpyDtoDAsync_v2, ptsz, b, a, SIZE, s);
    OK_TWIN(cuMemcpyDtoHAsync_v2, ptsz, to, b, SIZE, s);
    OK_TWIN(cuStreamSynchronize, ptsz, s);
    HOLDS(arrived(SIZE));
    fresh();
    OK_TWIN(cuMemcpy, ptds, a, (uintptr_t)from, SIZE);
    OK_TWIN(cuMemcpyAsync, ptsz, (uintptr_t)to, a, SIZE, s);
    HOLDS(arrived(SIZE));
}

static void peers(bool twin, CUdeviceptr a, CUdeviceptr b, CUstream s)
{
    CUcontext c;

    OK(cuCtxGetCurrent, &c);
    fresh();
    OK(cuMemcpyHtoD_v2, a, from, SIZE);
    OK_TWIN(cuMemcpyPeer, ptds, b, c, a, c, SIZE / 2);
    OK_TWIN(cuMemcpyPeerAsync, ptsz, b + SIZE / 2, c, a + SIZE / 2, c, SIZE / 2, s);
    OK(cuMemcpyDtoH_v2, to, b, SIZE);
    HOLDS(arrived(SIZE));
}

static void batches(bool twin, CUdeviceptr a, CUdeviceptr b, CUstream s)
{
    CUdeviceptr dsts[] = {a, (uintptr_t)to}, srcs[] = {(uintptr_t)from, a};
    size_t sizes[] = {SIZE, SIZE}, first = 0, failed;
    CUmemcpyAttributes how = {.src_access_order = 1};
    CUDA_MEMCPY3D_BATCH_OP ops[2] = {
        {.src = {.type = CU_MEMCPY_OPERAND_POINTER, .pointer = {.ptr = (uintptr_t)from}},
         .dst = {.type = CU_MEMCPY_OPERAND_POINTER, .pointer = {.ptr = b}},
         .width = 64,
         .height = 8,
         .depth = 4,
         .src_access_order = 1},
        {.src = {.type = CU_MEMCPY_OPERAND_POINTER, .pointer = {.ptr = b}},
         .dst = {.type = CU_MEMCPY_OPERAND_POINTER, .pointer = {.ptr = (uintptr_t)to}},
         .width = 64,
         .height = 8,
         .depth = 4,
         .src_access_order = 1},
    };

    fresh();
    OK_TWIN(cuMemcpyBatchAsync, ptsz, dsts, srcs, sizes, 2, &how, &first, 1, &failed, s);
    HOLDS(arrived(SIZE));
    fresh();
    OK_TWIN(cuMemcpyBatchAsync_v2, ptsz, dsts, srcs, sizes, 2, &how, &first, 1, s);
    HOLDS(arrived(SIZE));
    fresh();
    OK_TWIN(cuMemcpy3DBatchAsync, ptsz, 2, ops, &failed, 0, s);
    HOLDS(arrived(64 * 8 * 4));
    fresh();
    OK_TWIN(cuMemcpy3DBatchAsync_v2, ptsz, 2, ops, 0, s);
    HOLDS(arrived(64 * 8 * 4));
    CUmemDecompressParams packed = {.src_bytes = 1, .dst_bytes = 1};
    FAILS_TWIN(CUDA_ERROR_NOT_SUPPORTED, cuMemBatchDecompressAsync, ptsz, &packed, 1, 0, &failed,
               s);
}

void every_copy(bool twin)
{
    CUdeviceptr a, b;
    CUstream s;

    OK(cuStreamCreate, &s, 0);
    OK(cuMemAlloc_v2, &a, SIZE);
    OK(cuMemAlloc_v2, &b, SIZE);
    linear(twin, a, b, s);
    peers(twin, a, b, s);
    batches(twin, a, b, s);
    OK(cuMemFree_v2, a);
    OK(cuMemFree_v2, b);
    OK(cuStreamDestroy_v2, s);
}

static void arrays(bool twin, CUdeviceptr a, CUstream s)
{
    CUDA_ARRAY_DESCRIPTOR flat = {SIZE / 4, 0, 0x20, 1};
    CUDA_ARRAY3D_DESCRIPTOR solid = {16, 8, 4, 0x01, 1, 0}, seen;
    CUmipmappedArray mipmap;
    CUarray one, two, level;

    OK(cuArrayCreate_v2, &one, &flat);
    OK(cuArrayCreate_v2, &two, &flat);
    fresh();
    OK_TWIN(cuMemcpyHtoA_v2, ptds, one, 0, from, SIZE / 2);
    OK_TWIN(cuMemcpyHtoAAsync_v2, ptsz, one, SIZE / 2, from + SIZE / 2, SIZE / 2, s);
    OK_TWIN(cuMemcpyAtoA_v2, ptds, two, 0, one, 0, SIZE);
    OK_TWIN(cuMemcpyAtoD_v2, ptds, a, two, 0, SIZE);
    OK_TWIN(cuMemcpyDtoA_v2, ptds, one, 0, a, SIZE);
    OK_TWIN(cuMemcpyAtoH_v2, ptds, to, one, 0, SIZE / 2);
    OK_TWIN(cuMemcpyAtoHAsync_v2, ptsz, to + SIZE / 2, one, SIZE / 2, SIZE / 2, s);
    HOLDS(arrived(SIZE));
    OK(cuArrayDestroy, one);
    OK(cuArrayDestroy, two);

    OK(cuArray3DCreate_v2, &one, &solid);
    OK(cuArray3DGetDescriptor_v2, &seen, one);
    HOLDS(seen.width == 16 && seen.depth == 4);
    OK(cuArrayDestroy, one);
    OK(cuMipmappedArrayCreate, &mipmap, &solid, 3);
    OK(cuMipmappedArrayGetLevel, &level, mipmap, 1);
    OK(cuArray3DGetDescriptor_v2, &seen, level);
    HOLDS(seen.width == 8 && seen.height == 4 && seen.depth == 2);
    OK(cuMipmappedArrayDestroy, mipmap);
}

static void shapes(bool twin, CUdeviceptr a, CUstream s)
{
    CUcontext c;
    CUDA_MEMCPY2D in = {.src_type = CU_MEMORYTYPE_HOST,
                        .src_host = from,
                        .src_pitch = 64,
                        .dst_type = CU_MEMORYTYPE_DEVICE,
                        .dst_device = a,
                        .dst_pitch = 128,
                        .width = 64,
                        .height = 16};
    CUDA_MEMCPY2D out = {.src_type = CU_MEMORYTYPE_DEVICE,
                         .src_device = a,
                         .src_pitch = 128,
                         .dst_type = CU_MEMORYTYPE_HOST,
                         .dst_host = to,
                         .dst_pitch = 64,
                         .width = 64,
                         .height = 16};
    CUDA_MEMCPY3D in_3d = {.src_type = CU_MEMORYTYPE_HOST,
                           .src_host = from,
                           .src_pitch = 64,
                           .src_height = 4,
                           .dst_type = CU_MEMORYTYPE_DEVICE,
                           .dst_device = a,
                           .dst_pitch = 128,
                           .dst_height = 8,
                           .width = 64,
                           .height = 4,
                           .depth = 4};
    CUDA_MEMCPY3D out_3d = {.src_type = CU_MEMORYTYPE_DEVICE,
                            .src_device = a,
                            .src_pitch = 128,
                            .src_height = 8,
                            .dst_type = CU_MEMORYTYPE_HOST,
                            .dst_host = to,
                            .dst_pitch = 64,
                            .dst_height = 4,
                            .width = 64,
                            .height = 4,
                            .depth = 4};

    fresh();
    OK_TWIN(cuMemcpy2D_v2, ptds, &in);
    OK_TWIN(cuMemcpy2DUnaligned_v2, ptds, &out);
    HOLDS(arrived(64 * 16));
    fresh();
    OK_TWIN(cuMemcpy2DAsync_v2, ptsz, &in, s);
    OK_TWIN(cuMemcpy2D_v2, ptds, &out);
    HOLDS(arrived(64 * 16));
    fresh();
    OK_TWIN(cuMemcpy3D_v2, ptds, &in_3d);
    OK_TWIN(cuMemcpy3DAsync_v2, ptsz, &out_3d, s);
    HOLDS(arrived(64 * 16));
    OK(cuCtxGetCurrent, &c);
    in_3d.src_context = in_3d.dst_context = out_3d.src_context = out_3d.dst_context = c;
    fresh();
    OK_TWIN(cuMemcpy3DPeer, ptds, &in_3d);
    OK_TWIN(cuMemcpy3DPeerAsync, ptsz, &out_3d, s);
    HOLDS(arrived(64 * 16));
}

void every_shape(bool twin)
{
    CUdeviceptr a;
    CUstream s;

    OK(cuStreamCreateWithPriority, &s, 1, 0);
    OK(cuMemAlloc_v2, &a, SIZE);
    arrays(twin, a, s);
    shapes(twin, a, s);
    OK(cuMemFree_v2, a);
    OK(cuStreamDestroy, s);
}

/* Whether all elements of the device memory are `value`. */
static bool all(CUdeviceptr a, unsigned value, size_t element, size_t count)
{
    OK(cuMemcpyDtoH_v2, to, a, count * element);
    for (size_t i = 0; i < count; i++)
        if (memcmp(to + i * element, &value, element) != 0)
            return false;
    return true;
}

static void hints(bool twin, CUstream s)
{
    CUmemLocation host = {CU_MEM_LOCATION_HOST, 0}, device = {CU_MEM_LOCATION_DEVICE, 0};
    CUdeviceptr a;
    size_t size = SIZE, first = 0;

    OK(cuMemAllocManaged, &a, SIZE, 1);
    *(volatile char *)a = 1; /* the host reaches it */
    OK_TWIN(cuMemPrefetchAsync, ptsz, a, SIZE, 0, s);
    OK_TWIN(cuMemPrefetchAsync_v2, ptsz, a, SIZE, host, 0, s);
    OK_TWIN(cuMemPrefetchBatchAsync, ptsz, &a, &size, 1, &device, &first, 1, 0, s);
    OK_TWIN(cuMemDiscardBatchAsync, ptsz, &a, &size, 1, 0, s);
    OK_TWIN(cuMemDiscardAndPrefetchBatchAsync, ptsz, &a, &size, 1, &device, &first, 1, 0, s);
    OK(cuMemAdvise, a, SIZE, 1, 0);
    OK(cuMemAdvise_v2, a, SIZE, 3, device);
    OK_TWIN(cuStreamAttachMemAsync, ptsz, s, a, 0, 1);
    OK(cuMemFree_v2, a);
}

void every_set(bool twin)
{
    CUdeviceptr a;
    CUstream s;

    OK(cuStreamCreate, &s, 0);
    OK(cuMemAlloc_v2, &a, SIZE);
    OK_TWIN(cuMemsetD8_v2, ptds, a, 3, SIZE);
    HOLDS(all(a, 3, 1, SIZE));
    OK_TWIN(cuMemsetD16_v2, ptds, a, 300, SIZE / 2);
    HOLDS(all(a, 300, 2, SIZE / 2));
    OK_TWIN(cuMemsetD32_v2, ptds, a, 70000, SIZE / 4);
    HOLDS(all(a, 70000, 4, SIZE / 4));
    OK_TWIN(cuMemsetD8Async, ptsz, a, 4, SIZE, s);
    OK_TWIN(cuMemsetD16Async, ptsz, a, 400, SIZE / 4, s);
    OK_TWIN(cuMemsetD32Async, ptsz, a, 80000, SIZE / 8, s);
    HOLDS(all(a, 80000, 4, SIZE / 8));
    OK_TWIN(cuMemsetD2D8_v2, ptds, a, 64, 5, 64, 8);
    HOLDS(all(a, 5, 1, 512));
    OK_TWIN(cuMemsetD2D16_v2, ptds, a, 64, 500, 32, 8);
    HOLDS(all(a, 500, 2, 256));
    OK_TWIN(cuMemsetD2D32_v2, ptds, a, 64, 90000, 16, 8);
    HOLDS(all(a, 90000, 4, 128));
    OK_TWIN(cuMemsetD2D8Async, ptsz, a, 64, 6, 64, 8, s);
    OK_TWIN(cuMemsetD2D16Async, ptsz, a, 64, 600, 32, 8, s);
    OK_TWIN(cuMemsetD2D32Async, ptsz, a, 64, 90001, 16, 8, s);
    HOLDS(all(a, 90001, 4, 128));
    hints(twin, s);
    OK(cuMemFree_v2, a);
    OK(cuStreamDestroy_v2, s);
}

/* The probe table of NVIDIA's driver, libcuda.
 *
 * The runtime (libcudart, static or shared), cuBLAS, NCCL and frameworks all end here, so this
 * layer alone sees every allocation and copy once. Kernel launches are never probed. Numbers are
 * those of arguments, from 1; a struct of more than 16 bytes that is passed by value takes no
 * number. Where two versions of a function differ in their arguments, the driver exports both
 * under names of their own. */
#include <memoir/memoir.h>

#include "observe/probe_table.h"
#include "trace/event.h"

#define ROW(name_, twins_, ...)                                     \
    {                                                               \
        .name = (name_), .twins = (twins_), .wire = { __VA_ARGS__ } \
    }

/* *out gets `size` bytes of `space`. */
#define ALLOC(name_, twins_, space_, flags_)                   \
    ROW(name_, twins_, .op = WIRE_OP_ALLOC, .space = (space_), \
        .flags = WIRE_FUNCTION_SITE | (flags_), .address = 1, .size = 2)
#define PITCH(name_, flags_)                                                \
    ROW(name_, NULL, .op = WIRE_OP_ALLOC_PITCH, .space = MEMOIR_SPACE_DRAM, \
        .flags = WIRE_FUNCTION_SITE | (flags_), .address = 1, .source = 2, .extra = 4, .size = 3)
#define ARRAY(name_, three_, levels_)                                               \
    ROW(name_, NULL, .op = WIRE_OP_ALLOC_ARRAY, .space = MEMOIR_SPACE_DRAM,         \
        .flags = WIRE_FUNCTION_SITE | WIRE_FUNCTION_ARRAY, .address = 1, .size = 2, \
        .extra = (levels_), .unit = (three_))
#define FREE(name_, twins_, space_, flags_) \
    ROW(name_, twins_, .op = WIRE_OP_FREE, .space = (space_), .flags = (flags_), .address = 1)
#define COPY(name_, twins_, direction_, to_, from_, size_, flags_)                   \
    ROW(name_, twins_, .op = WIRE_OP_COPY, .direction = (direction_),                \
        .flags = WIRE_FUNCTION_SITE | (flags_), .address = (to_), .source = (from_), \
        .size = (size_))
#define SHAPED(name_, twins_, op_, flags_) \
    ROW(name_, twins_, .op = (op_), .flags = WIRE_FUNCTION_SITE | (flags_), .address = 1)
#define SET(name_, twins_, unit_) \
    ROW(name_, twins_, .op = WIRE_OP_SET, .address = 1, .size = 3, .unit = (unit_))
#define SET_2D(name_, twins_, unit_) \
    ROW(name_, twins_, .op = WIRE_OP_SET, .address = 1, .size = 4, .extra = 5, .unit = (unit_))

enum {
    DRAM = MEMOIR_SPACE_DRAM,
    PINNED = MEMOIR_SPACE_PINNED,
    NARROW = WIRE_FUNCTION_NARROW,
    ASYNC = WIRE_FUNCTION_ASYNC,
    POOL = WIRE_FUNCTION_POOL,
    SHARED = WIRE_FUNCTION_SHARED,
};

static const struct probe_function functions[] = {
    ALLOC("cuMemAlloc_v2", NULL, DRAM, 0),
    ALLOC("cuMemAlloc", NULL, DRAM, NARROW),
    PITCH("cuMemAllocPitch_v2", 0),
    PITCH("cuMemAllocPitch", NARROW),
    ALLOC("cuMemAllocManaged", NULL, MEMOIR_SPACE_MANAGED, 0),
    ALLOC("cuMemAllocAsync", "_ptsz", DRAM, POOL | ASYNC),
    ALLOC("cuMemAllocFromPoolAsync", "_ptsz", DRAM, POOL | ASYNC),
    ARRAY("cuArrayCreate_v2", 0, 0),
    ARRAY("cuArray3DCreate_v2", 1, 0),
    ARRAY("cuMipmappedArrayCreate", 1, 3),

    FREE("cuMemFree_v2", NULL, DRAM, 0),
    FREE("cuMemFree", NULL, DRAM, NARROW),
    FREE("cuMemFreeAsync", "_ptsz", DRAM, ASYNC),
    FREE("cuArrayDestroy", NULL, DRAM, WIRE_FUNCTION_ARRAY),
    FREE("cuMipmappedArrayDestroy", NULL, DRAM, WIRE_FUNCTION_ARRAY),

    ALLOC("cuMemHostAlloc", NULL, PINNED, 0),
    ALLOC("cuMemAllocHost_v2", NULL, PINNED, 0),
    ALLOC("cuMemAllocHost", NULL, PINNED,
          WIRE_FUNCTION_NARROW_SIZE), /* host pointers were never narrow */
    FREE("cuMemFreeHost", NULL, PINNED, 0),
    ROW("cuMemHostRegister_v2", NULL, .op = WIRE_OP_REGISTER, .space = PINNED,
        .flags = WIRE_FUNCTION_SITE, .address = 1, .size = 2),
    ROW("cuMemHostRegister", NULL, .op = WIRE_OP_REGISTER, .space = PINNED,
        .flags = WIRE_FUNCTION_SITE, .address = 1, .size = 2),
    ROW("cuMemHostUnregister", NULL, .op = WIRE_OP_UNREGISTER, .space = PINNED, .address = 1),

    ROW("cuMemCreate", NULL, .op = WIRE_OP_HANDLE_MAKE, .space = DRAM, .flags = WIRE_FUNCTION_SITE,
        .address = 1, .size = 2, .source = 3),
    ROW("cuMemImportFromShareableHandle", NULL, .op = WIRE_OP_HANDLE_MAKE, .space = DRAM,
        .flags = WIRE_FUNCTION_SITE | SHARED, .address = 1),
    /* Names memory of several devices, and has none itself. */
    ROW("cuMulticastCreate", NULL, .op = WIRE_OP_HANDLE_MAKE, .space = DRAM,
        .flags = WIRE_FUNCTION_SITE | SHARED, .address = 1),
    ROW("cuMemRelease", NULL, .op = WIRE_OP_HANDLE_FREE, .space = DRAM, .address = 1),
    ROW("cuMemRetainAllocationHandle", NULL, .op = WIRE_OP_HANDLE_KEEP, .address = 1, .source = 2),
    ROW("cuMemMap", NULL, .op = WIRE_OP_MAP, .space = DRAM, .flags = WIRE_FUNCTION_SITE,
        .address = 1, .size = 2, .source = 4),
    ROW("cuMemUnmap", NULL, .op = WIRE_OP_UNMAP, .space = DRAM, .address = 1, .size = 2),

    ROW("cuMemPoolImportPointer", NULL, .op = WIRE_OP_ALLOC, .space = DRAM,
        .flags = WIRE_FUNCTION_SITE | SHARED | POOL, .address = 1),
    ROW("cuIpcOpenMemHandle_v2", NULL, .op = WIRE_OP_ALLOC, .space = DRAM,
        .flags = WIRE_FUNCTION_SITE | SHARED, .address = 1),
    ROW("cuIpcOpenMemHandle", NULL, .op = WIRE_OP_ALLOC, .space = DRAM,
        .flags = WIRE_FUNCTION_SITE | SHARED, .address = 1),
    FREE("cuIpcCloseMemHandle", NULL, DRAM, SHARED),
    ROW("cuExternalMemoryGetMappedBuffer", NULL, .op = WIRE_OP_ALLOC, .space = DRAM,
        .flags = WIRE_FUNCTION_SITE | SHARED, .address = 1),

    COPY("cuMemcpy", "_ptds", TRACE_DIRECTION_UNKNOWN, 1, 2, 3, 0),
    COPY("cuMemcpyAsync", "_ptsz", TRACE_DIRECTION_UNKNOWN, 1, 2, 3, ASYNC),
    COPY("cuMemcpyHtoD_v2", "_ptds", TRACE_TO_DEVICE, 1, 2, 3, 0),
    COPY("cuMemcpyHtoDAsync_v2", "_ptsz", TRACE_TO_DEVICE, 1, 2, 3, ASYNC),
    COPY("cuMemcpyDtoH_v2", "_ptds", TRACE_FROM_DEVICE, 1, 2, 3, 0),
    COPY("cuMemcpyDtoHAsync_v2", "_ptsz", TRACE_FROM_DEVICE, 1, 2, 3, ASYNC),
    COPY("cuMemcpyDtoD_v2", "_ptds", TRACE_ON_DEVICE, 1, 2, 3, 0),
    COPY("cuMemcpyDtoDAsync_v2", "_ptsz", TRACE_ON_DEVICE, 1, 2, 3, ASYNC),
    COPY("cuMemcpyPeer", "_ptds", TRACE_ON_DEVICE, 1, 3, 5, 0),
    COPY("cuMemcpyPeerAsync", "_ptsz", TRACE_ON_DEVICE, 1, 3, 5, ASYNC),
    SHAPED("cuMemcpy2D_v2", "_ptds", WIRE_OP_COPY_2D, 0),
    SHAPED("cuMemcpy2DUnaligned_v2", "_ptds", WIRE_OP_COPY_2D, 0),
    SHAPED("cuMemcpy2DAsync_v2", "_ptsz", WIRE_OP_COPY_2D, ASYNC),
    SHAPED("cuMemcpy3D_v2", "_ptds", WIRE_OP_COPY_3D, 0),
    SHAPED("cuMemcpy3DAsync_v2", "_ptsz", WIRE_OP_COPY_3D, ASYNC),
    SHAPED("cuMemcpy3DPeer", "_ptds", WIRE_OP_COPY_3D, 0),
    SHAPED("cuMemcpy3DPeerAsync", "_ptsz", WIRE_OP_COPY_3D, ASYNC),
    /* An array has a handle and no address: the other side has one. */
    COPY("cuMemcpyHtoA_v2", "_ptds", TRACE_TO_DEVICE, 0, 3, 4, 0),
    COPY("cuMemcpyHtoAAsync_v2", "_ptsz", TRACE_TO_DEVICE, 0, 3, 4, ASYNC),
    COPY("cuMemcpyAtoH_v2", "_ptds", TRACE_FROM_DEVICE, 1, 0, 4, 0),
    COPY("cuMemcpyAtoHAsync_v2", "_ptsz", TRACE_FROM_DEVICE, 1, 0, 4, ASYNC),
    COPY("cuMemcpyAtoD_v2", "_ptds", TRACE_ON_DEVICE, 1, 0, 4, 0),
    COPY("cuMemcpyDtoA_v2", "_ptds", TRACE_ON_DEVICE, 0, 3, 4, 0),
    COPY("cuMemcpyAtoA_v2", "_ptds", TRACE_ON_DEVICE, 0, 0, 5, 0),
    ROW("cuMemcpyBatchAsync", "_ptsz _v2 _v2_ptsz", .op = WIRE_OP_COPY_BATCH,
        .flags = WIRE_FUNCTION_SITE | ASYNC, .address = 1, .source = 2, .size = 3, .extra = 4),

    ROW("cuMemcpy3DBatchAsync", "_ptsz _v2 _v2_ptsz", .op = WIRE_OP_COPY_3D_BATCH,
        .flags = WIRE_FUNCTION_SITE | ASYNC, .address = 2, .extra = 1),

    SET("cuMemsetD8_v2", "_ptds", 1),
    SET("cuMemsetD8Async", "_ptsz", 1),
    SET("cuMemsetD16_v2", "_ptds", 2),
    SET("cuMemsetD16Async", "_ptsz", 2),
    SET("cuMemsetD32_v2", "_ptds", 4),
    SET("cuMemsetD32Async", "_ptsz", 4),
    SET_2D("cuMemsetD2D8_v2", "_ptds", 1),
    SET_2D("cuMemsetD2D8Async", "_ptsz", 1),
    SET_2D("cuMemsetD2D16_v2", "_ptds", 2),
    SET_2D("cuMemsetD2D16Async", "_ptsz", 2),
    SET_2D("cuMemsetD2D32_v2", "_ptds", 4),
    SET_2D("cuMemsetD2D32Async", "_ptsz", 4),

    ROW("cuMemPrefetchAsync", "_ptsz _v2 _v2_ptsz", .op = WIRE_OP_PREFETCH,
        .space = MEMOIR_SPACE_MANAGED, .address = 1, .size = 2),

    /* The first call of a program: it is looked at before it allocates. */
    ROW("cuInit", NULL, .op = WIRE_OP_NOTE),
    ROW("cuCtxSetCurrent", NULL, .op = WIRE_OP_CONTEXT_SET, .address = 1),
    ROW("cuCtxPushCurrent", "_v2", .op = WIRE_OP_CONTEXT_PUSH, .address = 1),
    ROW("cuCtxPopCurrent", "_v2", .op = WIRE_OP_CONTEXT_POP),
    ROW("cuDevicePrimaryCtxRetain", NULL, .op = WIRE_OP_CONTEXT_MAKE, .address = 1, .extra = 2),
    ROW("cuCtxCreate", "_v2", .op = WIRE_OP_CONTEXT_MAKE, .address = 1, .extra = 3, .unit = 1),
    ROW("cuCtxCreate_v3", NULL, .op = WIRE_OP_CONTEXT_MAKE, .address = 1, .extra = 5, .unit = 1),
    ROW("cuCtxCreate_v4", NULL, .op = WIRE_OP_CONTEXT_MAKE, .address = 1, .extra = 4, .unit = 1),
    ROW("cuCtxDestroy", "_v2", .op = WIRE_OP_CONTEXT_END, .address = 1),
    ROW("cuDevicePrimaryCtxReset", "_v2", .op = WIRE_OP_DEVICE_RESET, .extra = 1),
    ROW("cuDevicePrimaryCtxRelease", "_v2", .op = WIRE_OP_PRIMARY_RELEASE, .extra = 1),
    ROW("cuDeviceGetUuid", "_v2", .op = WIRE_OP_DEVICE_UUID, .address = 1, .extra = 2),
    {.name = NULL},
};

const struct probe_table probe_table_cuda = {
    .title = "CUDA",
    .library = "libcuda.so",
    .device_kind = MEMOIR_DEVICE_GPU,
    .out_of_memory = 2,
    .functions = functions,
};

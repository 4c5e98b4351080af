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
/* The last argument of those below is the number of the one that names the stream. */
#define ALLOC_ON(name_, stream_)                                                              \
    ROW(name_, "_ptsz", .op = WIRE_OP_ALLOC, .space = DRAM,                                   \
        .flags = WIRE_FUNCTION_SITE | WIRE_FUNCTION_POOL | WIRE_FUNCTION_ASYNC, .address = 1, \
        .size = 2, .stream = (stream_))
#define COPY(name_, direction_, to_, from_, size_)                     \
    ROW(name_, "_ptds", .op = WIRE_OP_COPY, .direction = (direction_), \
        .flags = WIRE_FUNCTION_SITE, .address = (to_), .source = (from_), .size = (size_))
#define COPY_ON(name_, direction_, to_, from_, size_, stream_)                                  \
    ROW(name_, "_ptsz", .op = WIRE_OP_COPY, .direction = (direction_),                          \
        .flags = WIRE_FUNCTION_SITE | WIRE_FUNCTION_ASYNC, .address = (to_), .source = (from_), \
        .size = (size_), .stream = (stream_))
#define SHAPED(name_, op_) \
    ROW(name_, "_ptds", .op = (op_), .flags = WIRE_FUNCTION_SITE, .address = 1)
#define SHAPED_ON(name_, op_, stream_)                                                  \
    ROW(name_, "_ptsz", .op = (op_), .flags = WIRE_FUNCTION_SITE | WIRE_FUNCTION_ASYNC, \
        .address = 1, .stream = (stream_))
#define BATCH_ON(name_, stream_)                                                                 \
    ROW(name_, "_ptsz", .op = WIRE_OP_COPY_BATCH,                                                \
        .flags = WIRE_FUNCTION_SITE | WIRE_FUNCTION_ASYNC, .address = 1, .source = 2, .size = 3, \
        .extra = 4, .stream = (stream_))
#define BATCH_3D_ON(name_, stream_)                                                  \
    ROW(name_, "_ptsz", .op = WIRE_OP_COPY_3D_BATCH,                                 \
        .flags = WIRE_FUNCTION_SITE | WIRE_FUNCTION_ASYNC, .address = 2, .extra = 1, \
        .stream = (stream_))
#define SET(name_, twins_, unit_, stream_)                                          \
    ROW(name_, twins_, .op = WIRE_OP_SET, .address = 1, .size = 3, .unit = (unit_), \
        .stream = (stream_))
#define SET_2D(name_, twins_, unit_, stream_)                                                   \
    ROW(name_, twins_, .op = WIRE_OP_SET, .address = 1, .size = 4, .extra = 5, .unit = (unit_), \
        .stream = (stream_))
#define PREFETCH_ON(name_, stream_)                                                          \
    ROW(name_, "_ptsz", .op = WIRE_OP_PREFETCH, .space = MEMOIR_SPACE_MANAGED, .address = 1, \
        .size = 2, .stream = (stream_))
#define PREFETCHES(name_)                                                                          \
    ROW(name_, "_ptsz", .op = WIRE_OP_PREFETCH_BATCH, .space = MEMOIR_SPACE_MANAGED, .address = 1, \
        .size = 2, .extra = 3)
#define CAPTURE(name_, twins_, graph_) \
    ROW(name_, twins_, .op = WIRE_OP_CAPTURE_BEGIN, .source = (graph_), .stream = 1)
#define NODE(name_, params_, unit_)                                                               \
    ROW(name_, NULL, .op = WIRE_OP_GRAPH_NODE, .flags = WIRE_FUNCTION_SITE, .address = (params_), \
        .source = 2, .unit = (unit_))
#define EXEC(name_, twins_) ROW(name_, twins_, .op = WIRE_OP_GRAPH_EXEC, .address = 1, .source = 2)

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
    ALLOC_ON("cuMemAllocAsync", 3),
    ALLOC_ON("cuMemAllocFromPoolAsync", 4),
    ARRAY("cuArrayCreate_v2", 0, 0),
    ARRAY("cuArray3DCreate_v2", 1, 0),
    ARRAY("cuMipmappedArrayCreate", 1, 3),

    FREE("cuMemFree_v2", NULL, DRAM, 0),
    FREE("cuMemFree", NULL, DRAM, NARROW),
    ROW("cuMemFreeAsync", "_ptsz", .op = WIRE_OP_FREE, .space = DRAM, .flags = ASYNC, .address = 1,
        .stream = 2),
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

    COPY("cuMemcpy", TRACE_DIRECTION_UNKNOWN, 1, 2, 3),
    COPY_ON("cuMemcpyAsync", TRACE_DIRECTION_UNKNOWN, 1, 2, 3, 4),
    COPY("cuMemcpyHtoD_v2", TRACE_TO_DEVICE, 1, 2, 3),
    COPY_ON("cuMemcpyHtoDAsync_v2", TRACE_TO_DEVICE, 1, 2, 3, 4),
    COPY("cuMemcpyDtoH_v2", TRACE_FROM_DEVICE, 1, 2, 3),
    COPY_ON("cuMemcpyDtoHAsync_v2", TRACE_FROM_DEVICE, 1, 2, 3, 4),
    COPY("cuMemcpyDtoD_v2", TRACE_ON_DEVICE, 1, 2, 3),
    COPY_ON("cuMemcpyDtoDAsync_v2", TRACE_ON_DEVICE, 1, 2, 3, 4),
    COPY("cuMemcpyPeer", TRACE_ON_DEVICE, 1, 3, 5),
    COPY_ON("cuMemcpyPeerAsync", TRACE_ON_DEVICE, 1, 3, 5, 6),
    SHAPED("cuMemcpy2D_v2", WIRE_OP_COPY_2D),
    SHAPED("cuMemcpy2DUnaligned_v2", WIRE_OP_COPY_2D),
    SHAPED_ON("cuMemcpy2DAsync_v2", WIRE_OP_COPY_2D, 2),
    SHAPED("cuMemcpy3D_v2", WIRE_OP_COPY_3D),
    SHAPED_ON("cuMemcpy3DAsync_v2", WIRE_OP_COPY_3D, 2),
    SHAPED("cuMemcpy3DPeer", WIRE_OP_COPY_3D),
    SHAPED_ON("cuMemcpy3DPeerAsync", WIRE_OP_COPY_3D, 2),
    /* An array has a handle and no address: the other side has one. */
    COPY("cuMemcpyHtoA_v2", TRACE_TO_DEVICE, 0, 3, 4),
    COPY_ON("cuMemcpyHtoAAsync_v2", TRACE_TO_DEVICE, 0, 3, 4, 5),
    COPY("cuMemcpyAtoH_v2", TRACE_FROM_DEVICE, 1, 0, 4),
    COPY_ON("cuMemcpyAtoHAsync_v2", TRACE_FROM_DEVICE, 1, 0, 4, 5),
    COPY("cuMemcpyAtoD_v2", TRACE_ON_DEVICE, 1, 0, 4),
    COPY("cuMemcpyDtoA_v2", TRACE_ON_DEVICE, 0, 3, 4),
    COPY("cuMemcpyAtoA_v2", TRACE_ON_DEVICE, 0, 0, 5),
    /* Before CUDA 13 an index of what failed stood before the stream. */
    BATCH_ON("cuMemcpyBatchAsync", 9),
    BATCH_ON("cuMemcpyBatchAsync_v2", 8),
    BATCH_3D_ON("cuMemcpy3DBatchAsync", 5),
    BATCH_3D_ON("cuMemcpy3DBatchAsync_v2", 4),

    SET("cuMemsetD8_v2", "_ptds", 1, 0),
    SET("cuMemsetD8Async", "_ptsz", 1, 4),
    SET("cuMemsetD16_v2", "_ptds", 2, 0),
    SET("cuMemsetD16Async", "_ptsz", 2, 4),
    SET("cuMemsetD32_v2", "_ptds", 4, 0),
    SET("cuMemsetD32Async", "_ptsz", 4, 4),
    SET_2D("cuMemsetD2D8_v2", "_ptds", 1, 0),
    SET_2D("cuMemsetD2D8Async", "_ptsz", 1, 6),
    SET_2D("cuMemsetD2D16_v2", "_ptds", 2, 0),
    SET_2D("cuMemsetD2D16Async", "_ptsz", 2, 6),
    SET_2D("cuMemsetD2D32_v2", "_ptds", 4, 0),
    SET_2D("cuMemsetD2D32Async", "_ptsz", 4, 6),

    PREFETCH_ON("cuMemPrefetchAsync", 4),
    PREFETCH_ON("cuMemPrefetchAsync_v2", 5), /* a location takes one register */
    PREFETCHES("cuMemPrefetchBatchAsync"),
    PREFETCHES("cuMemDiscardAndPrefetchBatchAsync"),

    /* Graphs. What their launches do is not seen: cuGraphLaunch() is one, and is not probed. */
    CAPTURE("cuStreamBeginCapture", "_ptsz _v2 _v2_ptsz", 0),
    CAPTURE("cuStreamBeginCaptureToGraph", "_ptsz", 2),
    ROW("cuStreamEndCapture", "_ptsz", .op = WIRE_OP_CAPTURE_END, .address = 2, .stream = 1),
    ROW("cuStreamDestroy", "_v2", .op = WIRE_OP_CAPTURE_END, .stream = 1),
    NODE("cuGraphAddMemAllocNode", 5, WIRE_NODE_ALLOC),
    NODE("cuGraphAddMemcpyNode", 5, WIRE_NODE_COPY),
    NODE("cuGraphAddNode", 5, WIRE_NODE_ANY),
    NODE("cuGraphAddNode_v2", 6, WIRE_NODE_ANY),
    EXEC("cuGraphInstantiate", "_v2"),
    EXEC("cuGraphInstantiateWithFlags", NULL),
    EXEC("cuGraphInstantiateWithParams", "_ptsz"),
    ROW("cuGraphDestroy", NULL, .op = WIRE_OP_GRAPH_END, .address = 1),
    ROW("cuGraphExecDestroy", NULL, .op = WIRE_OP_GRAPH_END, .address = 1, .unit = 1),

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
    ROW("cuGreenCtxCreate", NULL, .op = WIRE_OP_GREEN_MAKE, .address = 1, .extra = 3),
    ROW("cuCtxFromGreenCtx", NULL, .op = WIRE_OP_GREEN_CONTEXT, .address = 1, .source = 2),
    ROW("cuGreenCtxDestroy", NULL, .op = WIRE_OP_GREEN_END, .address = 1),
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

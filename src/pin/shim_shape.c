/* shim_shape.c: copies in two and three dimensions, batches, and nodes of graphs. See shim_copy.c
 * for what they must keep. */
#include "pin/manager.h"
#include "pin/shapes.h"
#include "pin/shim.h"

typedef CUresult shape_copy(const void *);
typedef CUresult shape_copy_async(const void *, CUstream);
typedef bool shape_read(const void *, struct pin_shape *);

static CUresult shape(shape_copy *real, shape_read *read, const void *params)
{
    struct pin_shape s;
    struct pin_copy copy;
    if (pin_inside || !read(params, &s))
        return real(params);
    pin_copy_begin(&copy, s.host, s.bytes, s.to, false);
    CUresult r = real(params);
    pin_copy_end(&copy, r == CUDA_SUCCESS);
    return r;
}

static CUresult shape_async(shape_copy_async *real, shape_read *read, const void *params,
                            CUstream stream, bool per_thread)
{
    struct pin_shape s;
    struct pin_copy copy;
    if (pin_inside || !read(params, &s))
        return real(params, stream);
    bool graph = shim_captured(stream, per_thread);
    pin_copy_begin(&copy, s.host, s.bytes, s.to, graph);
    return shim_finish(&copy, real(params, stream), stream, per_thread, graph);
}

#define SHAPE(symbol, read)                                               \
    SHIM_API CUresult shim_##symbol(const void *params) __asm__(#symbol); \
    CUresult shim_##symbol(const void *params)                            \
    {                                                                     \
        return shape(SHIM_REAL(shape_copy, symbol), read, params);        \
    }
#define SHAPE_ASYNC(symbol, read, per_thread)                                                      \
    SHIM_API CUresult shim_##symbol(const void *params, CUstream stream) __asm__(#symbol);         \
    CUresult shim_##symbol(const void *params, CUstream stream)                                    \
    {                                                                                              \
        return shape_async(SHIM_REAL(shape_copy_async, symbol), read, params, stream, per_thread); \
    }
SHAPE(cuMemcpy2D_v2, pin_shape_2d)
SHAPE(cuMemcpy2D_v2_ptds, pin_shape_2d)
SHAPE(cuMemcpy2DUnaligned_v2, pin_shape_2d)
SHAPE(cuMemcpy2DUnaligned_v2_ptds, pin_shape_2d)
SHAPE(cuMemcpy3D_v2, pin_shape_3d)
SHAPE(cuMemcpy3D_v2_ptds, pin_shape_3d)
SHAPE_ASYNC(cuMemcpy2DAsync_v2, pin_shape_2d, false)
SHAPE_ASYNC(cuMemcpy2DAsync_v2_ptsz, pin_shape_2d, true)
SHAPE_ASYNC(cuMemcpy3DAsync_v2, pin_shape_3d, false)
SHAPE_ASYNC(cuMemcpy3DAsync_v2_ptsz, pin_shape_3d, true)

/* ---- batches ---- */

/* Each copy counts by itself. A thread that is in here keeps others from evicting. */
static bool batch_note(const void *host, uint64_t bytes, enum pin_direction to, bool graph)
{
    struct pin_copy copy;
    pin_copy_begin(&copy, host, bytes, to, graph);
    bool pinned = copy.pinned;
    pin_copy_end(&copy, !graph);
    return pinned;
}

static bool batch(const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes,
                  size_t count, bool graph)
{
    bool pinned = false;
    for (size_t i = 0; dsts && srcs && sizes && i < count; i++) {
        const void *src = (const void *)(uintptr_t)srcs[i], *dst = (const void *)(uintptr_t)dsts[i];
        if (pin_owns(src))
            pinned |= batch_note(src, sizes[i], PIN_TO_DEVICE, graph);
        else if (pin_owns(dst))
            pinned |= batch_note(dst, sizes[i], PIN_FROM_DEVICE, graph);
    }
    return pinned;
}

static bool batch_3d(const void *operations, size_t count, bool graph)
{
    bool pinned = false;
    struct pin_shape s;
    for (size_t i = 0; operations && i < count; i++)
        if (pin_shape_batch((const char *)operations + i * PIN_SHAPE_BATCH_BYTES, &s))
            pinned |= batch_note(s.host, s.bytes, s.to, graph);
    return pinned;
}

/* The whole batch is one copy in flight. */
#define BATCHED(note, call, per_thread)                              \
    {                                                                \
        struct pin_copy whole;                                       \
        bool graph = shim_captured(stream, per_thread);              \
        pin_copy_begin(&whole, NULL, 0, PIN_TO_DEVICE, false);       \
        whole.pinned = note;                                         \
        return shim_finish(&whole, call, stream, per_thread, graph); \
    }
#define BATCH(symbol, per_thread)                                                                  \
    SHIM_API CUresult shim_##symbol(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,           \
                                    size_t count, void *attributes, size_t *indices, size_t n,     \
                                    size_t *failed, CUstream stream) __asm__(#symbol);             \
    CUresult shim_##symbol(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,      \
                           void *attributes, size_t *indices, size_t n, size_t *failed,            \
                           CUstream stream)                                                        \
        BATCHED(                                                                                   \
            batch(dsts, srcs, sizes, count, graph),                                                \
            (SHIM_REAL(CUresult(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, void *, size_t *,  \
                                size_t, size_t *, CUstream),                                       \
                       symbol)(dsts, srcs, sizes, count, attributes, indices, n, failed, stream)), \
            per_thread)
#define BATCH_V2(symbol, per_thread)                                                           \
    SHIM_API CUresult shim_##symbol(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,       \
                                    size_t count, void *attributes, size_t *indices, size_t n, \
                                    CUstream stream) __asm__(#symbol);                         \
    CUresult shim_##symbol(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,  \
                           void *attributes, size_t *indices, size_t n, CUstream stream)       \
        BATCHED(batch(dsts, srcs, sizes, count, graph),                                        \
                (SHIM_REAL(CUresult(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, void *,    \
                                    size_t *, size_t, CUstream),                               \
                           symbol)(dsts, srcs, sizes, count, attributes, indices, n, stream)), \
                per_thread)
BATCH(cuMemcpyBatchAsync, false)
BATCH(cuMemcpyBatchAsync_ptsz, true)
BATCH_V2(cuMemcpyBatchAsync_v2, false)
BATCH_V2(cuMemcpyBatchAsync_v2_ptsz, true)

#define BATCH_3D(symbol, per_thread)                                                             \
    SHIM_API CUresult shim_##symbol(size_t count, void *operations, size_t *failed,              \
                                    unsigned long long flags, CUstream stream) __asm__(#symbol); \
    CUresult shim_##symbol(size_t count, void *operations, size_t *failed,                       \
                           unsigned long long flags, CUstream stream)                            \
        BATCHED(batch_3d(operations, count, graph),                                              \
                (SHIM_REAL(CUresult(size_t, void *, size_t *, unsigned long long, CUstream),     \
                           symbol)(count, operations, failed, flags, stream)),                   \
                per_thread)
#define BATCH_3D_V2(symbol, per_thread)                                                       \
    SHIM_API CUresult shim_##symbol(size_t count, void *operations, unsigned long long flags, \
                                    CUstream stream) __asm__(#symbol);                        \
    CUresult shim_##symbol(size_t count, void *operations, unsigned long long flags,          \
                           CUstream stream)                                                   \
        BATCHED(batch_3d(operations, count, graph),                                           \
                (SHIM_REAL(CUresult(size_t, void *, unsigned long long, CUstream),            \
                           symbol)(count, operations, flags, stream)),                        \
                per_thread)
BATCH_3D(cuMemcpy3DBatchAsync, false)
BATCH_3D(cuMemcpy3DBatchAsync_ptsz, true)
BATCH_3D_V2(cuMemcpy3DBatchAsync_v2, false)
BATCH_3D_V2(cuMemcpy3DBatchAsync_v2_ptsz, true)

/* ---- graphs: they run later, and must find the memory as it was when they were made ---- */

static void graph_note(shape_read *read, const void *params)
{
    struct pin_shape s;
    if (read(params, &s))
        pin_graph_uses(s.host);
}

#define GRAPH(symbol, read, node, params, types, args)       \
    SHIM_API CUresult shim_##symbol params __asm__(#symbol); \
    CUresult shim_##symbol params                            \
    {                                                        \
        graph_note(read, node);                              \
        return SHIM_REAL(CUresult types, symbol) args;       \
    }
GRAPH(cuGraphAddMemcpyNode, pin_shape_3d, copy,
      (void **ret, void *graph, const void **needs, size_t n, const void *copy, CUcontext context),
      (void **, void *, const void **, size_t, const void *, CUcontext),
      (ret, graph, needs, n, copy, context))
GRAPH(cuGraphMemcpyNodeSetParams, pin_shape_3d, copy, (void *node, const void *copy),
      (void *, const void *), (node, copy))
GRAPH(cuGraphExecMemcpyNodeSetParams, pin_shape_3d, copy,
      (void *exec, void *node, const void *copy, CUcontext context),
      (void *, void *, const void *, CUcontext), (exec, node, copy, context))
GRAPH(cuGraphAddNode, pin_shape_node, node,
      (void **ret, void *graph, const void **needs, size_t n, void *node),
      (void **, void *, const void **, size_t, void *), (ret, graph, needs, n, node))
GRAPH(cuGraphAddNode_v2, pin_shape_node, node,
      (void **ret, void *graph, const void **needs, const void *edges, size_t n, void *node),
      (void **, void *, const void **, const void *, size_t, void *),
      (ret, graph, needs, edges, n, node))
GRAPH(cuGraphNodeSetParams, pin_shape_node, params, (void *node, void *params), (void *, void *),
      (node, params))
GRAPH(cuGraphExecNodeSetParams, pin_shape_node, params, (void *exec, void *node, void *params),
      (void *, void *, void *), (exec, node, params))

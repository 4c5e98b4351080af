/* every_graph.c: streams, events, graphs, recording. */
#include <string.h>

#include "drive.h"

#define SIZE 4096ul

static void streams(bool twin)
{
    CUstream s;
    CUevent first, second;
    CUcontext c;
    float ms;
    int capturing;

    OK(cuStreamCreate, &s, 0);
    OK(cuEventCreate, &first, 0);
    OK(cuEventCreate, &second, 0);
    OK_TWIN(cuEventRecord, ptsz, first, s);
    OK_TWIN(cuEventRecord, ptsz, second, s);
    OK(cuEventQuery, first);
    OK(cuEventSynchronize, second);
    OK(cuEventElapsedTime, &ms, first, second);
    HOLDS(ms >= 0);
    OK_TWIN(cuStreamWaitEvent, ptsz, s, first, 0);
    OK_TWIN(cuStreamQuery, ptsz, s);
    OK_TWIN(cuStreamGetCtx, ptsz, s, &c);
    OK_TWIN(cuStreamIsCapturing, ptsz, s, &capturing);
    int mode = 2; /* relaxed; exchanged for the thread's own, global, and back */
    OK(cuThreadExchangeStreamCaptureMode, &mode);
    HOLDS(mode == 0);
    OK(cuThreadExchangeStreamCaptureMode, &mode);
    HOLDS(mode == 2);
    OK_TWIN(cuLaunchKernel, ptsz, NULL, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL);
    OK(cuEventDestroy, first);
    OK(cuEventDestroy_v2, second);
    OK(cuStreamDestroy_v2, s);
}

static CUgraphNodeParams node_of(unsigned type)
{
    CUgraphNodeParams p;

    memset(&p, 0, sizeof(p));
    p.type = type;
    return p;
}

/* A graph that allocates, copies in, copies out and frees. Between launches nothing is live. */
static void nodes(bool twin, CUstream s)
{
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = {
        .pool = {.type = CU_MEM_ALLOCATION_PINNED, .location = {CU_MEM_LOCATION_DEVICE, 0}},
        .bytesize = SIZE};
    static unsigned char from[SIZE], to[SIZE], other[SIZE];
    CUgraphNode n[7];
    CUgraph g;
    CUgraphExec e;
    CUcontext c;

    OK(cuCtxGetCurrent, &c);
    OK(cuGraphCreate, &g, 0);
    OK(cuGraphAddMemAllocNode, &n[0], g, NULL, 0, &alloc);
    CUDA_MEMSET_NODE_PARAMS set = {alloc.dptr, 0, 1, 1, SIZE, 1};
    OK(cuGraphAddMemsetNode, &n[1], g, &n[0], 1, &set, c);
    CUDA_MEMCPY3D in = {.src_type = CU_MEMORYTYPE_HOST,
                        .src_host = from,
                        .dst_device = alloc.dptr,
                        .dst_type = CU_MEMORYTYPE_DEVICE,
                        .width = SIZE / 2,
                        .height = 1,
                        .depth = 1};
    CUDA_MEMCPY3D out = {.src_type = CU_MEMORYTYPE_DEVICE,
                         .src_device = alloc.dptr,
                         .dst_host = to,
                         .dst_type = CU_MEMORYTYPE_HOST,
                         .width = SIZE,
                         .height = 1,
                         .depth = 1};
    OK(cuGraphAddMemcpyNode, &n[2], g, &n[1], 1, &in, c);
    CUgraphNodeParams p = node_of(CU_GRAPH_NODE_MEMCPY);
    p.memcpy.copy = out;
    OK(cuGraphAddNode, &n[3], g, &n[2], 1, &p);
    p = node_of(CU_GRAPH_NODE_EMPTY);
    OK(cuGraphAddNode_v2, &n[4], g, &n[3], NULL, 1, &p);
    OK(cuGraphAddMemFreeNode, &n[5], g, &n[4], 1, alloc.dptr);
    OK(cuGraphInstantiateWithFlags, &e, g, 0);
    memset(from, 8, sizeof(from));
    OK_TWIN(cuGraphUpload, ptsz, e, s);
    OK_TWIN(cuGraphLaunch, ptsz, e, s);
    HOLDS(to[0] == 8 && to[SIZE - 1] == 1);

    set.value = 2;
    OK(cuGraphExecMemsetNodeSetParams, e, n[1], &set, c);
    memset(other, 9, sizeof(other));
    in.src_host = other;
    OK(cuGraphExecMemcpyNodeSetParams, e, n[2], &in, c);
    OK_TWIN(cuGraphLaunch, ptsz, e, s);
    HOLDS(to[0] == 9 && to[SIZE - 1] == 2);
    p = node_of(CU_GRAPH_NODE_MEMSET);
    p.memset = set;
    p.memset.value = 3;
    OK(cuGraphExecNodeSetParams, e, n[1], &p);
    OK_TWIN(cuGraphLaunch, ptsz, e, s);
    HOLDS(to[SIZE - 1] == 3);
    OK(cuGraphExecDestroy, e);
    OK(cuGraphDestroy, g);
    OK(cuDeviceGraphMemTrim, 0);
}

static void recorded(bool twin, CUstream s, bool first_form)
{
    static unsigned char from[SIZE], to[SIZE];
    CUdeviceptr a;
    CUgraph g;
    CUgraphExec e;

    if (first_form)
        OK_TWIN(cuStreamBeginCapture, ptsz, s);
    else
        OK_TWIN(cuStreamBeginCapture_v2, ptsz, s, 2);
    OK_TWIN(cuMemAllocAsync, ptsz, &a, SIZE, s);
    OK_TWIN(cuMemcpyHtoDAsync_v2, ptsz, a, from, SIZE, s);
    OK_TWIN(cuMemsetD8Async, ptsz, a, 1, 16, s);
    OK_TWIN(cuMemcpyDtoHAsync_v2, ptsz, to, a, SIZE, s);
    OK_TWIN(cuMemFreeAsync, ptsz, a, s);
    OK_TWIN(cuStreamEndCapture, ptsz, s, &g);
    OK(cuGraphInstantiateWithFlags, &e, g, 0);
    OK(cuGraphDestroy, g);
    memset(from, 6, sizeof(from));
    memset(to, 0, sizeof(to));
    OK_TWIN(cuGraphLaunch, ptsz, e, s);
    HOLDS(to[15] == 1 && to[16] == 6);
    memset(from, 7, sizeof(from));
    OK_TWIN(cuGraphLaunch, ptsz, e, s);
    HOLDS(to[SIZE - 1] == 7);
    OK(cuGraphExecDestroy, e);
}

static uint64_t graph_bytes(int attribute)
{
    uint64_t bytes = 0;

    OK(cuDeviceGetGraphMemAttribute, 0, attribute, &bytes);
    return bytes;
}

/* A graph's memory takes bytes of the device at its launch, and keeps them when it is freed. */
static void graph_pool(bool twin, CUstream s)
{
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = {
        .pool = {.type = CU_MEM_ALLOCATION_PINNED, .location = {CU_MEM_LOCATION_DEVICE, 0}},
        .bytesize = 3 << 20};
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = 1}; /* frees at the next launch */
    CUgraphNode node;
    CUgraphExec e;
    CUgraph g;
    uint64_t zero = 0;

    OK(cuDeviceGraphMemTrim, 0);
    OK(cuGraphCreate, &g, 0);
    OK(cuGraphAddMemAllocNode, &node, g, NULL, 0, &alloc);
    OK_TWIN(cuGraphInstantiateWithParams, ptsz, &e, g, &params);
    HOLDS(graph_bytes(0) == 0 && graph_bytes(2) == 0);
    OK_TWIN(cuGraphLaunch, ptsz, e, s);
    OK_TWIN(cuGraphLaunch, ptsz, e, s);
    HOLDS(graph_bytes(0) == 3 << 20 && graph_bytes(2) == 4 << 20);
    OK(cuMemFree_v2, alloc.dptr);
    HOLDS(graph_bytes(0) == 0 && graph_bytes(2) == 4 << 20);
    OK(cuDeviceGraphMemTrim, 0);
    HOLDS(graph_bytes(2) == 0 && graph_bytes(3) >= 4 << 20);
    OK(cuDeviceSetGraphMemAttribute, 0, 3, &zero);
    HOLDS(graph_bytes(3) == 0);
    OK(cuGraphExecDestroy, e);
    OK(cuGraphInstantiate_v2, &e, g, NULL, NULL, 0);
    OK(cuGraphExecDestroy, e);
    OK(cuGraphDestroy, g);
}

/* A second stream joins the recording of the first, which goes into a graph that is there. */
static void joined(bool twin, CUstream s)
{
    CUstream other;
    CUevent fork;
    CUgraph g, ended;
    CUdeviceptr a;

    OK(cuStreamCreate, &other, 0);
    OK(cuEventCreate, &fork, 0);
    OK(cuGraphCreate, &g, 0);
    OK_TWIN(cuStreamBeginCaptureToGraph, ptsz, s, g, NULL, NULL, 0, 2);
    OK_TWIN(cuEventRecord, ptsz, fork, s);
    OK_TWIN(cuStreamWaitEvent, ptsz, other, fork, 0);
    OK_TWIN(cuMemAllocAsync, ptsz, &a, SIZE, other);
    FAILS_TWIN(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2, ptds, a, 1, 16); /* it is not there yet */
    FAILS_TWIN(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture, ptsz, other, &ended);
    OK_TWIN(cuStreamEndCapture, ptsz, s, &ended);
    HOLDS(ended == g);
    OK_TWIN(cuStreamSynchronize, ptsz, other);
    OK(cuGraphDestroy, g);
    OK(cuEventDestroy_v2, fork);
    OK(cuStreamDestroy_v2, other);
}

void every_graph(bool twin)
{
    CUstream s;

    streams(twin);
    OK(cuStreamCreate, &s, 0);
    nodes(twin, s);
    recorded(twin, s, true);
    recorded(twin, s, false);
    graph_pool(twin, s);
    joined(twin, s);
    OK(cuStreamDestroy_v2, s);
}

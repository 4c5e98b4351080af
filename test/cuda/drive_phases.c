/* drive_phases.c: what goes wrong in programs, and many threads at once. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "drive.h"

#define MIB (1ul << 20)

static void errors_memory(void)
{
    CUdeviceptr a, unknown = 0x1234;
    size_t size;
    char host[64];
    void *p;

    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2, NULL, 4096);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2, &a, 0);
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2, &a, 1ul << 60);
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2, &a, SIZE_MAX);
    OK(cuMemAlloc_v2, &a, 3 * MIB);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, a + 512);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2, a, host, 4 * MIB);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2, unknown, host, 16);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2, a, NULL, 16);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2, host, unknown, 16);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2, a + 1, 1, 4);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2, a, 1, 1ul << 40);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost, (void *)a);
    FAILS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2, NULL, &size, unknown);
    OK(cuMemFree_v2, a);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, a);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, unknown);
    OK(cuMemFree_v2, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc, NULL, 4096, 0);
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostAlloc, &p, 1ul << 55, 0);
    OK(cuMemHostAlloc, &p, 4096, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, (uintptr_t)p);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2, p, 4096, 0);
    OK(cuMemFreeHost, p);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost, p);
    OK(cuMemAllocAsync, &a, 4096, NULL);
    OK(cuMemFreeAsync, a, NULL);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync, a, NULL);
}

static void errors_registered(void)
{
    char *own = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2, NULL, 4096, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2, own, 0, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2, (void *)0x10000, 4096, 0);
    FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister, own);
    OK(cuMemHostRegister_v2, own, 65536, 0);
    FAILS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2, own, 65536, 0);
    FAILS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2, own + 4096, 131072, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister, own + 4096);
    OK(cuMemHostUnregister, own);
    FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister, own);
    munmap(own, MIB);
}

static void errors_virtual(void)
{
    CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_PINNED,
                                 .location = {CU_MEM_LOCATION_DEVICE, 0}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr a;
    char host[64];

    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate, &handle, 4096, &props, 0);
    OK(cuMemCreate, &handle, 2 * MIB, &props, 0);
    OK(cuMemAddressReserve, &a, 4 * MIB, 0, 0, 0);
    OK(cuMemMap, a, 2 * MIB, 0, handle, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap, a, 2 * MIB, 0, handle, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap, a + 4 * MIB, 2 * MIB, 0, handle, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2, a, host, sizeof(host));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, a);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree, a, 4 * MIB);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap, a, MIB);
    OK(cuMemRelease, handle);
    OK(cuMemUnmap, a, 2 * MIB);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRelease, handle);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree, a, 2 * MIB);
    OK(cuMemAddressFree, a, 4 * MIB);
}

/* Memory of a graph is live from its launch to its free, and only once. */
static void errors_graph(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = {
        .pool = {.type = CU_MEM_ALLOCATION_PINNED, .location = {CU_MEM_LOCATION_DEVICE, 0}},
        .bytesize = 4096};
    CUgraphNode node;
    CUgraphExec e;
    CUgraph g;
    CUstream s;
    char host[16] = "";

    OK(cuGraphCreate, &g, 0);
    OK(cuGraphAddMemAllocNode, &node, g, NULL, 0, &alloc);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2, alloc.dptr, host, sizeof(host));
    OK(cuGraphInstantiateWithFlags, &e, g, 0);
    OK(cuGraphLaunch, e, NULL);
    OK(cuMemcpyHtoD_v2, alloc.dptr, host, sizeof(host));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch, e, NULL);
    OK(cuMemFree_v2, alloc.dptr);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, alloc.dptr);
    OK(cuGraphLaunch, e, NULL);
    OK(cuMemFreeAsync, alloc.dptr, NULL);
    OK(cuGraphExecDestroy, e);
    OK(cuGraphDestroy, g);

    OK(cuStreamCreate, &s, 0);
    FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture, s, &g);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2, NULL, 0);
    OK(cuStreamBeginCapture_v2, s, 2);
    FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture_v2, s, 2);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery, s);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture, s, &g);
    OK(cuStreamDestroy_v2, s);
}

/* Without a context, and with one that is gone. */
static void errors_context(void)
{
    CUcontext before, c;
    CUdeviceptr a, b;

    OK(cuMemAlloc_v2, &a, 4096);
    OK(cuCtxPopCurrent_v2, &before);
    OK(cuMemFree_v2, a);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2, &a, 4096);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2, NULL, 4096);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2, &c);
    FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister, &c);
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuCtxCreate_v2, &c, 0, 99);
    OK(cuCtxCreate_v2, &c, 0, 0);
    OK(cuMemAlloc_v2, &a, 4096);
    OK(cuCtxDestroy_v2, c);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, a);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent, c);
    OK(cuDevicePrimaryCtxRetain, &c, 0);
    OK(cuCtxPushCurrent_v2, c);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2, c);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuCtxDestroy_v2, NULL);
    OK(cuMemAlloc_v2, &a, 4096);
    OK(cuDevicePrimaryCtxReset_v2, 0);
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc_v2, &b, 4096);
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemFree_v2, a);
    OK(cuDevicePrimaryCtxRelease_v2, 0);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2, 0);
    OK(cuCtxPopCurrent_v2, &c);
    OK(cuCtxPushCurrent_v2, before);
}

static void errors_shape(void)
{
    CUDA_ARRAY_DESCRIPTOR shape = {64, 4, 0x20, 1};
    static char host[4096];
    CUdeviceptr a;
    CUarray array;

    FAILS(CUDA_ERROR_INVALID_VALUE, cuArrayCreate_v2, NULL, &shape);
    OK(cuArrayCreate_v2, &array, &shape);
    OK(cuMemcpyHtoA_v2, array, 0, host, 256);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA_v2, array, 256, host, 256);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA_v2, NULL, 0, host, 16);
    OK(cuArrayDestroy, array);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy, NULL);

    OK(cuMemAlloc_v2, &a, 4096);
    CUDA_MEMCPY2D copy = {.src_type = CU_MEMORYTYPE_HOST,
                          .src_host = host,
                          .src_pitch = 32,
                          .dst_type = CU_MEMORYTYPE_DEVICE,
                          .dst_device = a,
                          .dst_pitch = 128,
                          .width = 64,
                          .height = 4};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2, &copy);
    copy.src_pitch = 64;
    copy.dst_pitch = 2048;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2, &copy);
    copy.dst_pitch = 64;
    copy.src_type = 9;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2, &copy);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2, NULL);
    OK(cuMemFree_v2, a);
}

static void errors_lookup(void)
{
    void *p = NULL;
    int status = -1;

    OK(cuGetProcAddress_v2, "cuNothing", &p, 12000, 0, &status);
    HOLDS(!p && status == CU_PROC_SYMBOL_NOT_FOUND);
    OK(cuGetProcAddress_v2, "cuMemcpyBatchAsync", &p, 12000, 0, &status);
    HOLDS(!p && status == CU_PROC_VERSION_NOT_SUFFICIENT);
    FAILS(CUDA_ERROR_NOT_FOUND, cuGetProcAddress, "cuNothing", &p, 12000, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2, "cuMemAlloc", &p, 99999, 0, &status);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2, "cuMemAlloc", NULL, 12000, 0, &status);
}

void drive_errors(void)
{
    errors_memory();
    errors_registered();
    errors_virtual();
    errors_graph();
    errors_context();
    errors_shape();
    errors_lookup();
}

/* ---- threads ---- */

struct worker {
    pthread_t thread;
    CUcontext context;
    unsigned long count;
    unsigned number;
    /* of a pair: blocks on their way from the one that allocates to the one that frees; 0: none, 1: no more */
    CUdeviceptr *slot;
};

#define CHURN_BYTES 8192ul

static void *churn(void *arg)
{
    struct worker *w = arg;
    unsigned char out[64], in[64];

    OK(cuCtxSetCurrent, w->context);
    for (unsigned long i = 0; i < w->count; i++) {
        CUdeviceptr a;
        OK(cuMemAlloc_v2, &a, CHURN_BYTES);
        memset(out, (int)(w->number * 37 + i), sizeof(out));
        OK(cuMemcpyHtoD_v2, a, out, sizeof(out));
        OK(cuMemcpyDtoH_v2, in, a, sizeof(in));
        if (memcmp(in, out, sizeof(in)) != 0)
            drive_expect("a block has two owners", 1, 0);
        OK(cuMemFree_v2, a);
    }
    return NULL;
}

static void run(void *(*body)(void *), struct worker *workers, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        HOLDS(pthread_create(&workers[i].thread, NULL, body, &workers[i]) == 0);
    for (unsigned i = 0; i < count; i++)
        pthread_join(workers[i].thread, NULL);
}

static struct worker *workers_new(unsigned count, unsigned long blocks)
{
    struct worker *w = calloc(count, sizeof(*w));

    for (unsigned i = 0; i < count; i++) {
        OK(cuCtxGetCurrent, &w[i].context);
        w[i].count = blocks;
        w[i].number = i;
    }
    return w;
}

void drive_churn(unsigned long count, unsigned threads)
{
    struct worker *w = workers_new(threads, count);

    run(churn, w, threads);
    free(w);
}

static void *handoff(void *arg)
{
    struct worker *w = arg;
    CUdeviceptr a;

    OK(cuCtxSetCurrent, w->context);
    if (w->number % 2) {
        for (unsigned long i = 0; i < w->count; i++) {
            while (!(a = __atomic_exchange_n(w->slot, 0, __ATOMIC_ACQ_REL)))
                sched_yield();
            OK(cuMemFree_v2, a);
        }
        return NULL;
    }
    for (unsigned long i = 0; i < w->count; i++) {
        OK(cuMemAlloc_v2, &a, CHURN_BYTES);
        while (__atomic_load_n(w->slot, __ATOMIC_ACQUIRE))
            sched_yield();
        __atomic_store_n(w->slot, a, __ATOMIC_RELEASE);
    }
    return NULL;
}

void drive_handoff(unsigned long count, unsigned pairs)
{
    struct worker *w = workers_new(pairs * 2, count);
    CUdeviceptr *slots = calloc(pairs, sizeof(*slots));

    for (unsigned i = 0; i < pairs * 2; i++)
        w[i].slot = &slots[i / 2];
    run(handoff, w, pairs * 2);
    free(slots);
    free(w);
}

void drive_contexts(unsigned long count)
{
    CUcontext c;
    CUdeviceptr a;
    void *p;

    for (unsigned long i = 0; i < count; i++) {
        OK(cuCtxCreate_v2, &c, 0, 0);
        OK(cuMemAlloc_v2, &a, 1000);
        OK(cuMemAlloc_v2, &a, 3 * MIB);
        OK(cuMemHostAlloc, &p, 1000, 0);
        OK(cuMemAllocAsync, &a, 1000, NULL);
        OK(cuCtxDestroy_v2, c);
    }
}

/* Allocates and frees in every way that CUDA offers, counts it itself, and waits after each phase: the harness compares the count
 * with Memoir's. A line on stdin goes on. Built twice, with the static and with the shared runtime. */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <cuda.h>
#include <cuda_runtime.h>

#define CHECK(call)                                                                        \
    do {                                                                                   \
        int r_ = (int)(call);                                                              \
        if (r_) {                                                                          \
            std::printf("{\"error\": \"%s: %d at line %d\"}\n", #call, r_, __LINE__);      \
            std::exit(1);                                                                  \
        }                                                                                  \
    } while (0)

static long long device_bytes, pinned_bytes, managed_bytes, registered_bytes, graph_bytes;

static void phase(const char *name)
{
    CHECK(cudaDeviceSynchronize());
    size_t free_bytes, total;
    CHECK(cudaMemGetInfo(&free_bytes, &total));
    std::printf("{\"phase\": \"%s\", \"dram\": %lld, \"pinned\": %lld, \"managed\": %lld, \"registered\": %lld, "
                "\"graph\": %lld, \"used\": %zu}\n",
                name, device_bytes, pinned_bytes, managed_bytes, registered_bytes, graph_bytes, total - free_bytes);
    std::fflush(stdout);
    char line[64];
    if (!std::fgets(line, sizeof(line), stdin))
        std::exit(0);
}

static void arrays()
{
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float4>();
    cudaArray_t flat, deep;
    CHECK(cudaMallocArray(&flat, &format, 1024, 512));
    CHECK(cudaMalloc3DArray(&deep, &format, make_cudaExtent(64, 64, 32)));
    device_bytes += 1024ll * 512 * 16 + 64ll * 64 * 32 * 16;
    phase("arrays");
    CHECK(cudaFreeArray(flat));
    CHECK(cudaFreeArray(deep));
    device_bytes -= 1024ll * 512 * 16 + 64ll * 64 * 32 * 16;
    phase("arrays freed");
}

static void virtual_memory()
{
    CUdevice device;
    CHECK(cuCtxGetDevice(&device));
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    size_t grain;
    CHECK(cuMemGetAllocationGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUdeviceptr base;
    CHECK(cuMemAddressReserve(&base, grain * 8, 0, 0, 0));
    CUmemGenericAllocationHandle handles[8];
    for (int i = 0; i < 8; i++) {
        CHECK(cuMemCreate(&handles[i], grain, &prop, 0));
        CHECK(cuMemMap(base + i * grain, grain, 0, handles[i], 0));
        device_bytes += (long long)grain;
    }
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(cuMemSetAccess(base, grain * 8, &access, 1));
    phase("virtual memory");
    for (int i = 0; i < 8; i++) /* the memory lives on: it is mapped */
        CHECK(cuMemRelease(handles[i]));
    phase("handles released");
    CHECK(cuMemUnmap(base, grain * 8));
    device_bytes -= (long long)grain * 8;
    CHECK(cuMemAddressFree(base, grain * 8));
    phase("virtual memory freed");
}

static void threads()
{
    std::vector<std::thread> all;
    for (int t = 0; t < 4; t++)
        all.emplace_back([] {
            for (int i = 0; i < 2000; i++) {
                void *p;
                CHECK(cudaMalloc(&p, 4096 + i % 7 * 512));
                CHECK(cudaFree(p));
            }
        });
    for (auto &t : all)
        t.join();
    phase("threads");
}

/* What a graph allocates is recorded, and never live. */
static void graphs()
{
    cudaStream_t s;
    cudaGraph_t g;
    cudaGraphExec_t e;
    void *p;
    int device;
    CHECK(cudaGetDevice(&device));
    CHECK(cudaStreamCreate(&s));
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    CHECK(cudaMallocAsync(&p, 24 << 20, s));
    CHECK(cudaMemsetAsync(p, 1, 24 << 20, s));
    CHECK(cudaFreeAsync(p, s));
    CHECK(cudaStreamEndCapture(s, &g));
    CHECK(cudaGraphInstantiate(&e, g, 0));
    graph_bytes = 24 << 20;
    phase("graph recorded");
    for (int i = 0; i < 3; i++)
        CHECK(cudaGraphLaunch(e, s));
    phase("graph launched");
    CHECK(cudaGraphExecDestroy(e));
    CHECK(cudaGraphDestroy(g));
    graph_bytes = 0;
    phase("graph destroyed");
    CHECK(cudaDeviceGraphMemTrim(device));
    CHECK(cudaStreamDestroy(s));
    phase("graph trimmed");
}

int main()
{
    void *a, *b, *pitched, *managed, *pool, *host, *mapped;
    size_t pitch;
    CHECK(cudaFree(0));
    phase("context");
    CHECK(cudaMalloc(&a, 100 << 20));
    CHECK(cudaMalloc(&b, 12345));
    device_bytes += (100 << 20) + 12345;
    phase("cudaMalloc");
    CHECK(cudaMallocPitch(&pitched, &pitch, 1000, 77));
    device_bytes += (long long)pitch * 77;
    phase("cudaMallocPitch");
    CHECK(cudaMallocManaged(&managed, 8 << 20));
    managed_bytes += 8 << 20;
    phase("cudaMallocManaged");
    CHECK(cudaMallocAsync(&pool, 32 << 20, 0));
    device_bytes += 32 << 20;
    phase("cudaMallocAsync");
    CHECK(cudaHostAlloc(&host, 64 << 20, cudaHostAllocDefault));
    pinned_bytes += 64 << 20;
    mapped = std::aligned_alloc(4096, 16 << 20);
    std::memset(mapped, 1, 16 << 20);
    CHECK(cudaHostRegister(mapped, 16 << 20, cudaHostRegisterDefault));
    registered_bytes += 16 << 20;
    phase("host");
    for (int i = 0; i < 10; i++) {
        CHECK(cudaMemcpy(a, host, 1 << 20, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy((char *)a + (5 << 20), mapped, 1 << 20, cudaMemcpyDefault));
        CHECK(cudaMemcpy(host, a, 1 << 20, cudaMemcpyDeviceToHost));
    }
    phase("copies");
    void *too_much;
    if (cudaMalloc(&too_much, 1ull << 46) == cudaSuccess)
        return 1;
    cudaGetLastError();
    phase("failed");
    arrays();
    virtual_memory();
    graphs();
    threads();
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    CHECK(cudaFree(pitched));
    CHECK(cudaFree(managed));
    CHECK(cudaFreeAsync(pool, 0));
    CHECK(cudaFreeHost(host));
    CHECK(cudaHostUnregister(mapped));
    device_bytes = pinned_bytes = managed_bytes = registered_bytes = 0;
    phase("freed");
    CHECK(cudaMalloc(&a, 1 << 20));
    device_bytes = 0;
    CHECK(cudaDeviceReset());
    CHECK(cudaFree(0));
    phase("reset");
    return 0;
}

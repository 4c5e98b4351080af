/* cuda_runtime.h: as much of the CUDA runtime as pin_bench.cu uses, over the driver (the stand-in), so that the benchmark can be tried where there is neither nvcc nor a
 * GPU. Functions come from cuGetProcAddress(), as those of the runtime do. */
#pragma once

#include <cstddef>
#include <dlfcn.h>

enum cudaError_t { cudaSuccess = 0 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
enum { cudaHostAllocDefault = 0, cudaHostRegisterPortable = 1 };

static inline const char *cudaGetErrorString(cudaError_t)
{
    return "an error of the driver";
}

template <typename... A> static int cuda_call(const char *name, int version, A... arguments)
{
    static void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    using find = int (*)(const char *, void **, int, unsigned long long, int *);
    static find get = library ? (find)dlsym(library, "cuGetProcAddress_v2") : nullptr;
    void *function = nullptr;
    int status;
    if (!get || get(name, &function, version, 0, &status) != 0 || !function)
        return 999;
    return ((int (*)(A...))function)(arguments...);
}

static inline cudaError_t cuda_start()
{
    void *context = nullptr;
    int r = cuda_call("cuInit", 2000, 0u);
    r = r ? r : cuda_call("cuDevicePrimaryCtxRetain", 7000, &context, 0);
    return (cudaError_t)(r ? r : cuda_call("cuCtxSetCurrent", 4000, context));
}

static inline cudaError_t cudaFree(void *p)
{
    return p ? (cudaError_t)cuda_call("cuMemFree", 3020, (unsigned long long)p) : cuda_start();
}
static inline cudaError_t cudaFree(int)
{
    return cuda_start();
}
template <typename T> static cudaError_t cudaMalloc(T **p, size_t bytes)
{
    return (cudaError_t)cuda_call("cuMemAlloc", 3020, (unsigned long long *)p, bytes);
}
static inline cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    return (
        cudaError_t)(kind == cudaMemcpyHostToDevice
                         ? cuda_call("cuMemcpyHtoD", 3020, (unsigned long long)to, from, bytes)
                         : cuda_call("cuMemcpyDtoH", 3020, to, (unsigned long long)from, bytes));
}
static inline cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
    return (cudaError_t)cuda_call("cuMemHostAlloc", 2020, p, bytes, flags);
}
static inline cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    return cudaHostAlloc(p, bytes, 0);
}
static inline cudaError_t cudaFreeHost(void *p)
{
    return (cudaError_t)cuda_call("cuMemFreeHost", 2000, p);
}
static inline cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags)
{
    return (cudaError_t)cuda_call("cuMemHostRegister", 6050, p, bytes, flags);
}
static inline cudaError_t cudaHostUnregister(void *p)
{
    return (cudaError_t)cuda_call("cuMemHostUnregister", 4000, p);
}

/* every_memory.c: devices, contexts, memory of all kinds. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "drive.h"

#define MIB (1ul << 20)

void every_device(void)
{
    CUdevice device = -1, by_bus = -1;
    CUuuid uuid, uuid_v2;
    char name[64], bus[16];
    const char *text;
    size_t bytes;
    unsigned bytes_32;
    int value;

    OK(cuInit, 0);
    OK(cuDriverGetVersion, &value);
    OK(cuDeviceGetCount, &value);
    HOLDS(value >= 1);
    OK(cuDeviceGet, &device, 0);
    OK(cuDeviceGetName, name, sizeof(name), device);
    OK(cuDeviceGetUuid, &uuid, device);
    OK(cuDeviceGetUuid_v2, &uuid_v2, device);
    HOLDS(memcmp(&uuid, &uuid_v2, sizeof(uuid)) == 0);
    OK(cuDeviceGetPCIBusId, bus, sizeof(bus), device);
    OK(cuDeviceGetByPCIBusId, &by_bus, bus);
    HOLDS(by_bus == device);
    OK(cuDeviceTotalMem_v2, &bytes, device);
    OK(cuDeviceTotalMem, &bytes_32, device);
    OK(cuDeviceGetAttribute, &value, 75, device);
    OK(cuGetErrorName, CUDA_ERROR_OUT_OF_MEMORY, &text);
    HOLDS(strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
    OK(cuGetErrorString, CUDA_SUCCESS, &text);
    void *function = NULL;
    int status = -1;
    OK(cuGetProcAddress, "cuMemAlloc", &function, 12000, 0);
    OK(cuGetProcAddress_v2, "cuMemAlloc", &function, 12000, 0, &status);
    HOLDS(function && status == CU_PROC_FOUND);
    const void *table;
    FAILS(CUDA_ERROR_NOT_FOUND, cuGetExportTable, &table, &uuid);
}

/* Memory of a green context is the primary one's. */
static void green_contexts(void)
{
    CUcontext primary, before, c, again;
    CUdevResource all, part[4], rest;
    CUdevResourceDesc desc;
    CUgreenCtx green;
    CUdeviceptr a, b;
    CUstream s;
    unsigned n = 4;

    OK(cuCtxGetCurrent, &before);
    OK(cuDevicePrimaryCtxRetain, &primary, 0);
    OK(cuDeviceGetDevResource, 0, &all, CU_DEV_RESOURCE_SM);
    OK(cuDevSmResourceSplitByCount, part, &n, &all, &rest, 0, 16);
    HOLDS(n == 4 && part[3].sm.count == 16 && rest.sm.count == all.sm.count - 64);
    OK(cuDevResourceGenerateDesc, &desc, part, 1);
    OK(cuGreenCtxCreate, &green, desc, 0, 1);
    OK(cuGreenCtxGetDevResource, green, &rest, CU_DEV_RESOURCE_SM);
    HOLDS(rest.sm.count == 16);
    OK(cuCtxFromGreenCtx, &c, green);
    OK(cuCtxFromGreenCtx, &again, green);
    HOLDS(c == again && c != primary);
    OK(cuCtxSetCurrent, c);
    OK(cuMemAlloc_v2, &a, 4096);
    OK(cuMemAlloc_v2, &b, 4096);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2, c);
    OK(cuGreenCtxStreamCreate, &s, green, 1, 0);
    OK(cuMemFreeAsync, b, s);
    OK(cuStreamDestroy_v2, s);
    OK(cuGreenCtxDestroy, green);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGreenCtxDestroy, green);
    OK(cuCtxSetCurrent, primary);
    OK(cuMemFree_v2, a);
    OK(cuDevicePrimaryCtxRelease_v2, 0);
    OK(cuCtxSetCurrent, before);
}

void every_context(void)
{
    CUcontext before, c, other;
    CUdevice device;
    unsigned flags;
    int active;

    OK(cuCtxGetCurrent, &before);
    OK(cuCtxCreate, &c, 0, 0);
    OK(cuCtxDestroy, c);
    OK(cuCtxCreate_v3, &c, NULL, 0, 0, 0);
    OK(cuCtxDestroy_v2, c);
    OK(cuCtxCreate_v4, &c, NULL, 0, 0);
    OK(cuCtxGetDevice, &device);
    OK(cuCtxGetFlags, &flags);
    OK(cuCtxGetApiVersion, c, &flags);
    OK(cuCtxSynchronize);
    OK(cuCtxPopCurrent, &other);
    OK(cuCtxPushCurrent, c);
    OK(cuCtxPopCurrent_v2, &other);
    OK(cuCtxPushCurrent_v2, c);
    HOLDS(other == c);
    OK(cuCtxDestroy_v2, c);
    OK(cuCtxCreate_v2, &c, 0, 0);
    OK(cuCtxDestroy_v2, c);

    OK(cuDevicePrimaryCtxSetFlags, 0, 0);
    OK(cuDevicePrimaryCtxSetFlags_v2, 0, 0);
    OK(cuDevicePrimaryCtxRetain, &c, 0);
    OK(cuDevicePrimaryCtxGetState, 0, &flags, &active);
    HOLDS(active == 1);
    OK(cuDevicePrimaryCtxReset, 0);
    OK(cuDevicePrimaryCtxRelease, 0);
    OK(cuDevicePrimaryCtxRetain, &other, 0);
    HOLDS(other == c);
    OK(cuDevicePrimaryCtxReset_v2, 0);
    OK(cuDevicePrimaryCtxRelease_v2, 0);
    OK(cuCtxSetCurrent, before);
    green_contexts();
}

static void every_host(void)
{
    CUdeviceptr address;
    unsigned flags;
    void *p, *own = aligned_alloc(4096, 4 * 4096);

    OK(cuMemHostAlloc, &p, 1000, 0);
    memset(p, 1, 1000);
    OK(cuMemHostGetDevicePointer_v2, &address, p, 0);
    OK(cuMemHostGetFlags, &flags, p);
    OK(cuMemFreeHost, p);
    OK(cuMemAllocHost_v2, &p, 4096);
    OK(cuMemFreeHost, p);
    OK(cuMemAllocHost, &p, 4096);
    OK(cuMemFreeHost, p);
    OK(cuMemHostRegister_v2, own, 4 * 4096, 0);
    OK(cuMemHostUnregister, own);
    OK(cuMemHostRegister, own, 4096, 0);
    OK(cuMemHostUnregister, own);
    free(own);
}

static void every_pool(bool twin)
{
    CUmemPoolProps props = {.type = CU_MEM_ALLOCATION_PINNED,
                            .handle_types = CU_MEM_HANDLE_POSIX_FD,
                            .location = {CU_MEM_LOCATION_DEVICE, 0}};
    CUmemoryPool pool, other;
    CUdeviceptr address;
    uint64_t value = 0;

    OK(cuDeviceGetDefaultMemPool, &other, 0);
    OK(cuMemGetDefaultMemPool, &pool, &props.location, CU_MEM_ALLOCATION_PINNED);
    HOLDS(pool == other);
    OK(cuMemPoolCreate, &pool, &props);
    OK(cuMemAllocFromPoolAsync, &address, 5000, pool, NULL);
    OK(cuMemPoolGetAttribute, pool, 7, &value);
    HOLDS(value == 5000);
    OK(cuMemFreeAsync, address, NULL);
    OK_TWIN(cuMemAllocFromPoolAsync, ptsz, &address, 5000, pool, NULL);
    OK_TWIN(cuMemFreeAsync, ptsz, address, NULL);
    OK_TWIN(cuMemAllocAsync, ptsz, &address, MIB, NULL);
    OK_TWIN(cuMemFreeAsync, ptsz, address, NULL);
    value = 1 << 20;
    OK(cuMemPoolSetAttribute, pool, 4, &value);
    OK(cuMemPoolTrimTo, pool, 0);
    OK(cuDeviceSetMemPool, 0, pool);
    OK(cuDeviceGetMemPool, &other, 0);
    HOLDS(other == pool);
    OK(cuMemSetMemPool, &props.location, CU_MEM_ALLOCATION_PINNED, pool);
    OK(cuMemGetMemPool, &other, &props.location, CU_MEM_ALLOCATION_PINNED);
    HOLDS(other == pool);
    OK(cuMemPoolDestroy, pool);
}

/* The forms with pointers of 32 bits. */
static void every_low(void)
{
    CUdeviceptr_v1 a, b;
    unsigned pitch, free_bytes, total;
    char from[64], to[64] = "";

    memset(from, 42, sizeof(from));
    OK(cuMemAlloc, &a, 4096);
    OK(cuMemAllocPitch, &b, &pitch, 100, 4, 4);
    OK(cuMemcpyHtoD, a, from, sizeof(from));
    OK(cuMemcpyDtoD, b, a, sizeof(from));
    OK(cuMemcpyDtoH, to, b, sizeof(to));
    HOLDS(memcmp(from, to, sizeof(to)) == 0);
    OK(cuMemGetInfo, &free_bytes, &total);
    OK(cuMemFree, a);
    OK(cuMemFree, b);
}

void every_memory(bool twin)
{
    CUdeviceptr address, base;
    size_t size, pitch, free_bytes, total;
    unsigned type;
    void *where = &type;
    int which = 2;

    OK(cuMemGetInfo_v2, &free_bytes, &total);
    OK(cuMemAlloc_v2, &address, 3 * MIB);
    OK(cuMemGetAddressRange_v2, &base, &size, address + 100);
    HOLDS(base == address && size == 3 * MIB);
    OK(cuPointerGetAttribute, &type, 2, address);
    HOLDS(type == CU_MEMORYTYPE_DEVICE);
    OK(cuPointerGetAttributes, 1, &which, &where, address);
    OK(cuMemFree_v2, address);
    OK(cuMemAllocPitch_v2, &address, &pitch, 1000, 10, 4);
    HOLDS(pitch >= 1000);
    OK(cuMemFree_v2, address);
    every_host();
    every_pool(twin);
    every_low();
}

void every_virtual(bool twin)
{
    CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_PINNED,
                                 .handle_types = CU_MEM_HANDLE_POSIX_FD,
                                 .location = {CU_MEM_LOCATION_DEVICE, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_DEVICE, 0}, 3};
    CUmulticastObjectProp together = {.devices = 1, .size = 2 * MIB};
    CUmemGenericAllocationHandle handle, again, imported, multicast;
    CUdeviceptr address;
    unsigned long long flags;
    size_t step;
    int fd;
    char from[100], to[100] = "";

    memset(from, 7, sizeof(from));
    OK(cuMemGetAllocationGranularity, &step, &props, 0);
    OK(cuMemCreate, &handle, 2 * step, &props, 0);
    OK(cuMemGetAllocationPropertiesFromHandle, &props, handle);
    OK(cuMemAddressReserve, &address, 8 * step, 0, 0, 0);
    OK(cuMemMap, address, 2 * step, 0, handle, 0);
    OK(cuMemSetAccess, address, 2 * step, &access, 1);
    OK(cuMemGetAccess, &flags, &access.location, address);
    HOLDS(flags == 3);
    OK(cuMemcpyHtoD_v2, address + step, from, sizeof(from));
    OK(cuMemRetainAllocationHandle, &again, (void *)address);
    HOLDS(again == handle);
    OK(cuMemExportToShareableHandle, &fd, handle, CU_MEM_HANDLE_POSIX_FD, 0);
    OK(cuMemImportFromShareableHandle, &imported, (void *)(intptr_t)fd, CU_MEM_HANDLE_POSIX_FD);
    close(fd);
    OK(cuMemMap, address + 4 * step, 2 * step, 0, imported, 0);
    OK(cuMemSetAccess, address + 4 * step, 2 * step, &access, 1);
    OK(cuMemcpyDtoH_v2, to, address + 5 * step, sizeof(to));
    HOLDS(memcmp(from, to, sizeof(to)) == 0);

    OK(cuMulticastGetGranularity, &step, &together, 0);
    OK(cuMulticastCreate, &multicast, &together);
    OK(cuMulticastAddDevice, multicast, 0);
    OK(cuMulticastBindMem, multicast, 0, handle, 0, 2 * MIB, 0);
    OK(cuMulticastUnbind, multicast, 0, 0, 2 * MIB);
    OK(cuMulticastBindAddr, multicast, 0, address, 2 * MIB, 0);
    OK(cuMulticastUnbind, multicast, 0, 0, 2 * MIB);
    OK(cuMemRelease, multicast);

    OK(cuMemRelease, handle);
    OK(cuMemRelease, again);
    OK(cuMemUnmap, address, 2 * step);
    OK(cuMemUnmap, address + 4 * step, 2 * step);
    OK(cuMemRelease, imported);
    OK(cuMemAddressFree, address, 8 * step);
    char list[96] = "";
    FAILS_TWIN(CUDA_ERROR_NOT_SUPPORTED, cuMemMapArrayAsync, ptsz, list, 1, NULL);
}

/* What other processes get is driven by the commands "export" and "import"; here, what one process can do. */
void every_shared(void)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {.type = 1, .size = MIB};
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC range = {.offset = 4096, .size = 8192};
    CUexternalMemory external;
    CUdeviceptr address;
    char from[100], to[100] = "";

    desc.handle.fd = memfd_create("external", 0);
    memset(from, 9, sizeof(from));
    HOLDS(ftruncate(desc.handle.fd, (off_t)MIB) == 0);
    OK(cuImportExternalMemory, &external, &desc);
    OK(cuExternalMemoryGetMappedBuffer, &address, external, &range);
    OK(cuMemcpyHtoD_v2, address, from, sizeof(from));
    HOLDS(pread(desc.handle.fd, to, sizeof(to), 4096) == (ssize_t)sizeof(to));
    HOLDS(memcmp(from, to, sizeof(to)) == 0);
    OK(cuMemFree_v2, address);
    OK(cuDestroyExternalMemory, external);

    CUmemPoolPtrExportData data;
    CUipcMemHandle handle;
    CUmemoryPool pool, imported;
    int fd;
    OK(cuDeviceGetDefaultMemPool, &pool, 0);
    OK(cuMemAllocAsync, &address, 5000, NULL);
    OK(cuMemPoolExportPointer, &data, address);
    OK(cuMemPoolExportToShareableHandle, &fd, pool, CU_MEM_HANDLE_POSIX_FD, 0);
    OK(cuMemPoolImportFromShareableHandle, &imported, (void *)(intptr_t)fd, CU_MEM_HANDLE_POSIX_FD,
       0);
    close(fd);
    /* One process cannot import what it exported. */
    CUdeviceptr other;
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemPoolImportPointer, &other, imported, &data);
    OK(cuMemPoolDestroy, imported);
    OK(cuMemFreeAsync, address, NULL);
    OK(cuMemAlloc_v2, &address, 4096);
    OK(cuIpcGetMemHandle, &handle, address);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle, &other, handle, 1);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle_v2, &other, handle, 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle, address);
    OK(cuMemFree_v2, address);
}

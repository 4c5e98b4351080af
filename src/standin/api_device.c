/* api_device.c: initialization, and what devices there are. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "standin/memory.h"

/* Device memory lies where programs have nothing, at the same addresses in each run. */
#define DEVICE_BASE   0x200000000000ull
#define DEVICE_STRIDE (1ull << 41)

static int devices_total;

/* The machine's device that one word of CUDA_VISIBLE_DEVICES means: an index, or a UUID that may be cut short. */
static int visible_index(const char *word)
{
    char uuid[SHARED_UUID_SIZE], *end;

    if (strncmp(word, "GPU-", 4) == 0) {
        for (int i = 0; i < devices_total; i++) {
            shared_uuid(i, uuid);
            if (strncmp(uuid, word, strlen(word)) == 0)
                return i;
        }
        return -1;
    }
    long index = strtol(word, &end, 10);
    return *word && !*end && index >= 0 && index < devices_total ? (int)index : -1;
}

static void device_add(int index)
{
    struct device *d = &standin.devices[standin.device_count];

    for (int i = 0; i < standin.device_count; i++)
        if (standin.devices[i].index == index)
            return;
    d->number = standin.device_count++;
    d->index = index;
}

/* As the driver does: devices after the first invalid word are hidden. */
static void devices_find(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char text[1024], *save = NULL;

    devices_total = shared_devices();
    if (!visible) {
        for (int i = 0; i < devices_total; i++)
            device_add(i);
        return;
    }
    snprintf(text, sizeof(text), "%s", visible);
    for (char *word = strtok_r(text, ", ", &save); word; word = strtok_r(NULL, ", ", &save)) {
        int index = visible_index(word);
        if (index < 0)
            return;
        device_add(index);
    }
}

static bool devices_open(void)
{
    uint64_t bytes = shared_memory();
    char name[32];

    standin.memory_bytes = bytes;
    for (int i = 0; i < standin.device_count; i++) {
        struct device *d = &standin.devices[i];
        snprintf(name, sizeof(name), "standin-gpu%d", d->index);
        uint64_t hint = DEVICE_BASE + (uint64_t)d->index * DEVICE_STRIDE;
        if (arena_open(&d->memory, bytes, ARENA_AT_HINT, hint, name) < 0)
            return false;
        madvise((void *)d->memory.base, d->memory.chunks * ARENA_CHUNK, MADV_DONTFORK);
    }
    uint64_t hint = DEVICE_BASE + STANDIN_DEVICES_MAX * DEVICE_STRIDE;
    return arena_open(&standin.host, bytes * 2, ARENA_AT_HINT, hint, NULL) == 0;
}

static CUresult init(unsigned flags)
{
    CUresult r = CUDA_SUCCESS;

    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (atomic_load(&standin.forked))
        return CUDA_ERROR_NOT_INITIALIZED;
    state_lock();
    if (!atomic_load(&standin.initialized)) {
        const char *delay = getenv("MEMOIR_STANDIN_DELAY_NS");
        standin.delay_ns = delay ? strtoull(delay, NULL, 10) : 0;
        standin.device_count = 0;
        devices_find();
        if (standin.device_count == 0)
            r = CUDA_ERROR_NO_DEVICE;
        else if (!devices_open())
            r = CUDA_ERROR_OUT_OF_MEMORY;
        else
            atomic_store(&standin.initialized, true);
    }
    state_unlock();
    return r;
}
API_EARLY(cuInit, init, (unsigned int Flags), (Flags))

static CUresult driver_version(int *ret)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = STANDIN_VERSION;
    return CUDA_SUCCESS;
}
API_EARLY(cuDriverGetVersion, driver_version, (int *driverVersion), (driverVersion))

static CUresult device_count(int *ret)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = standin.device_count;
    return CUDA_SUCCESS;
}
API(cuDeviceGetCount, device_count, (int *count), (count))

static CUresult device_get(CUdevice *ret, int ordinal)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_of(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *ret = ordinal;
    return CUDA_SUCCESS;
}
API(cuDeviceGet, device_get, (CUdevice * device, int ordinal), (device, ordinal))

static CUresult device_name(char *ret, int size, CUdevice dev)
{
    if (!ret || size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_of(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(ret, (size_t)size, "%s", STANDIN_NAME);
    return CUDA_SUCCESS;
}
API(cuDeviceGetName, device_name, (char *name, int len, CUdevice dev), (name, len, dev))

static CUresult device_uuid(CUuuid *ret, CUdevice dev)
{
    struct device *d = device_of(dev);

    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    if (!d)
        return CUDA_ERROR_INVALID_DEVICE;
    shared_uuid_bytes(d->index, (unsigned char *)ret->bytes);
    return CUDA_SUCCESS;
}
API(cuDeviceGetUuid, device_uuid, (CUuuid * uuid, CUdevice dev), (uuid, dev))
API(cuDeviceGetUuid_v2, device_uuid, (CUuuid * uuid, CUdevice dev), (uuid, dev))

static CUresult device_bus(char *ret, int size, CUdevice dev)
{
    struct device *d = device_of(dev);

    if (!ret || size < 13)
        return CUDA_ERROR_INVALID_VALUE;
    if (!d)
        return CUDA_ERROR_INVALID_DEVICE;
    shared_bus(d->index, false, ret, (size_t)size);
    return CUDA_SUCCESS;
}
API(cuDeviceGetPCIBusId, device_bus, (char *pciBusId, int len, CUdevice dev), (pciBusId, len, dev))

static CUresult device_by_bus(CUdevice *ret, const char *bus)
{
    char own[32];

    if (!ret || !bus)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < standin.device_count; i++) {
        shared_bus(standin.devices[i].index, false, own, sizeof(own));
        if (strcasecmp(own, bus) == 0) {
            *ret = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}
API(cuDeviceGetByPCIBusId, device_by_bus, (CUdevice * dev, const char *pciBusId), (dev, pciBusId))

static CUresult device_memory(size_t *ret, CUdevice dev)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_of(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *ret = standin.memory_bytes;
    return CUDA_SUCCESS;
}
API(cuDeviceTotalMem_v2, device_memory, (size_t * bytes, CUdevice dev), (bytes, dev))

static CUresult device_memory_32(unsigned *ret, CUdevice dev)
{
    size_t bytes;
    CUresult r = ret ? device_memory(&bytes, dev) : CUDA_ERROR_INVALID_VALUE;

    if (r == CUDA_SUCCESS)
        *ret = bytes > UINT32_MAX ? UINT32_MAX : (unsigned)bytes;
    return r;
}
API(cuDeviceTotalMem, device_memory_32, (unsigned int *bytes, CUdevice dev), (bytes, dev))

/* Attributes that programs ask for; others are 0. */
static CUresult device_attribute(int *ret, int attribute, CUdevice dev)
{
    static const struct {
        int attribute, value;
    } values[] = {
        {1, 1024},     /* threads in a block */
        {10, 32},      /* warp size */
        {13, 1000000}, /* clock, kHz */
        {15, 1},       /* copies overlap with kernels */
        {16, 16},      /* multiprocessors */
        {19, 1},       /* maps host memory */
        {31, 1},       /* concurrent kernels */
        {34, 0},       /* PCI device */
        {40, 2},       /* copy engines */
        {41, 1},       /* unified addressing */
        {75, 9},       /* compute capability, major */
        {76, 0},       /* minor */
        {83, 1},       /* managed memory */
        {89, 1},       /* concurrent managed access */
        {91, 1},       /* registered memory has its host address */
        {102, 1},      /* virtual memory management */
        {103, 1},      /* handles as descriptors */
        {115, 1},      /* memory pools */
        {132, 1},      /* multicast */
    };
    struct device *d = device_of(dev);

    if (!ret || attribute <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!d)
        return CUDA_ERROR_INVALID_DEVICE;
    *ret = attribute == 33 ? d->index + 1 : 0; /* 33: PCI bus */
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        if (values[i].attribute == attribute)
            *ret = values[i].value;
    return CUDA_SUCCESS;
}
API(cuDeviceGetAttribute, device_attribute, (int *pi, int attrib, CUdevice dev), (pi, attrib, dev))

static const struct {
    CUresult error;
    const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_MAP_FAILED, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE",
     "the operation cannot be performed in the present state"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE",
     "cannot set while device is active in this process"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult error_text(CUresult error, const char **ret, bool name)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = NULL;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (errors[i].error == error)
            *ret = name ? errors[i].name : errors[i].text;
    return *ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API_EARLY(cuGetErrorName, error_text, (CUresult error, const char **pStr), (error, pStr, true))
API_EARLY(cuGetErrorString, error_text, (CUresult error, const char **pStr), (error, pStr, false))

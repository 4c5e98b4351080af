/* nvml.c: the stand-in libnvidia-ml.so.1. It tells what the stand-in drivers of all processes published (shared.h): for
 * each process a context and its memory, in units of 2 MiB, and for each device what the system itself takes on top. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "standin/shared.h"

#define NVML_API        __attribute__((visibility("default")))
#define DEVICE_RESERVED (16ull << 20) /* taken from each device before any process runs */
#define PROCESSES_MAX   1024u

typedef enum {
    NVML_SUCCESS = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_UNKNOWN = 999,
} nvmlReturn_t;

typedef struct nvml_device *nvmlDevice_t;

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;
static_assert(sizeof(nvmlPciInfo_t) == 68, "the vendor's size");

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;
static_assert(sizeof(nvmlMemory_v2_t) == 40, "the vendor's size");

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;
static_assert(sizeof(nvmlProcessInfo_t) == 24, "the vendor's size");

typedef struct {
    unsigned gpu, memory;
} nvmlUtilization_t;

struct nvml_device {
    int index;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;
static struct nvml_device devices[STANDIN_DEVICES_MAX];
static int device_count;

static nvmlReturn_t start(void)
{
    pthread_mutex_lock(&lock);
    if (users++ == 0) {
        device_count = shared_devices();
        for (int i = 0; i < device_count; i++)
            devices[i].index = i;
    }
    pthread_mutex_unlock(&lock);
    return NVML_SUCCESS;
}

static nvmlReturn_t started(void)
{
    pthread_mutex_lock(&lock);
    bool on = users > 0;
    pthread_mutex_unlock(&lock);
    return on ? NVML_SUCCESS : NVML_UNINITIALIZED;
}

static nvmlReturn_t device_check(nvmlDevice_t d)
{
    nvmlReturn_t r = started();

    if (r != NVML_SUCCESS)
        return r;
    return d >= devices && d < devices + device_count ? NVML_SUCCESS : NVML_INVALID_ARGUMENT;
}

static nvmlReturn_t text(char *ret, unsigned size, const char *value)
{
    if (!ret)
        return NVML_INVALID_ARGUMENT;
    if (strlen(value) >= size)
        return NVML_INSUFFICIENT_SIZE;
    strcpy(ret, value);
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlInit_v2(void);
nvmlReturn_t nvmlInit_v2(void)
{
    return start();
}

NVML_API nvmlReturn_t nvmlInit(void);
nvmlReturn_t nvmlInit(void)
{
    return start();
}

NVML_API nvmlReturn_t nvmlInitWithFlags(unsigned flags);
nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    return start();
}

NVML_API nvmlReturn_t nvmlShutdown(void);
nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&lock);
    bool on = users > 0;
    users -= on;
    pthread_mutex_unlock(&lock);
    return on ? NVML_SUCCESS : NVML_UNINITIALIZED;
}

NVML_API const char *nvmlErrorString(nvmlReturn_t result);
const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_UNINITIALIZED:
        return "Uninitialized";
    case NVML_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_NOT_FOUND:
        return "Not Found";
    case NVML_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    default:
        return "Unknown Error";
    }
}

NVML_API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length);
nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    nvmlReturn_t r = started();

    return r == NVML_SUCCESS ? text(version, length, "0.0 (stand-in)") : r;
}

NVML_API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version);
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    if (!version)
        return NVML_INVALID_ARGUMENT;
    *version = 13000;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count);
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    nvmlReturn_t r = started();

    if (r != NVML_SUCCESS)
        return r;
    if (!count)
        return NVML_INVALID_ARGUMENT;
    *count = (unsigned)device_count;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    nvmlReturn_t r = started();

    if (r != NVML_SUCCESS)
        return r;
    if (!device || index >= (unsigned)device_count)
        return NVML_INVALID_ARGUMENT;
    *device = &devices[index];
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    char own[SHARED_UUID_SIZE];
    nvmlReturn_t r = started();

    if (r != NVML_SUCCESS)
        return r;
    if (!uuid || !device)
        return NVML_INVALID_ARGUMENT;
    for (int i = 0; i < device_count; i++) {
        shared_uuid(i, own);
        if (strcmp(own, uuid) != 0)
            continue;
        *device = &devices[i];
        return NVML_SUCCESS;
    }
    return NVML_NOT_FOUND;
}

NVML_API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index);
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
    nvmlReturn_t r = device_check(device);

    if (r == NVML_SUCCESS && !index)
        r = NVML_INVALID_ARGUMENT;
    if (r == NVML_SUCCESS)
        *index = (unsigned)device->index;
    return r;
}

NVML_API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor);
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor)
{
    nvmlReturn_t r = device_check(device);

    if (r == NVML_SUCCESS && !minor)
        r = NVML_INVALID_ARGUMENT;
    if (r == NVML_SUCCESS)
        *minor = (unsigned)device->index;
    return r;
}

NVML_API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length);
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
    nvmlReturn_t r = device_check(device);

    return r == NVML_SUCCESS ? text(name, length, STANDIN_NAME) : r;
}

NVML_API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length);
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
    char own[SHARED_UUID_SIZE];
    nvmlReturn_t r = device_check(device);

    if (r != NVML_SUCCESS)
        return r;
    shared_uuid(device->index, own);
    return text(uuid, length, own);
}

NVML_API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci);
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    nvmlReturn_t r = device_check(device);

    if (r == NVML_SUCCESS && !pci)
        r = NVML_INVALID_ARGUMENT;
    if (r != NVML_SUCCESS)
        return r;
    memset(pci, 0, sizeof(*pci));
    pci->bus = (unsigned)device->index + 1;
    shared_bus(device->index, false, pci->busIdLegacy, sizeof(pci->busIdLegacy));
    shared_bus(device->index, true, pci->busId, sizeof(pci->busId));
    return NVML_SUCCESS;
}

/* ---- figures ---- */

struct sum {
    int index;
    uint64_t used;
    unsigned count;
    nvmlProcessInfo_t processes[PROCESSES_MAX];
};

static void sum_add(const struct shared_file *f, void *arg)
{
    struct sum *s = arg;
    uint64_t used = f->used[s->index];

    if (used == 0)
        return;
    s->used += used;
    if (s->count < PROCESSES_MAX)
        s->processes[s->count++] = (nvmlProcessInfo_t){(unsigned)f->pid, used, ~0u, ~0u};
}

static void sum_of(nvmlDevice_t device, struct sum *ret)
{
    ret->index = device->index;
    ret->used = 0;
    ret->count = 0;
    shared_walk(sum_add, ret);
}

static nvmlReturn_t memory(nvmlDevice_t device, nvmlMemory_v2_t *ret)
{
    static __thread struct sum s;
    nvmlReturn_t r = device_check(device);

    if (r != NVML_SUCCESS)
        return r;
    sum_of(device, &s);
    ret->total = shared_memory() + DEVICE_RESERVED;
    ret->reserved = DEVICE_RESERVED;
    ret->used = s.used < shared_memory() ? s.used : shared_memory();
    ret->free = ret->total - ret->reserved - ret->used;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *info);
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *info)
{
    nvmlMemory_v2_t m;
    nvmlReturn_t r = info ? memory(device, &m) : NVML_INVALID_ARGUMENT;

    /* The first form has no field for it: what the system takes counts as used. */
    if (r == NVML_SUCCESS)
        *info = (nvmlMemory_t){m.total, m.free, m.used + m.reserved};
    return r;
}

NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *info);
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *info)
{
    if (!info || info->version != (sizeof(*info) | 2u << 24))
        return NVML_INVALID_ARGUMENT;
    return memory(device, info);
}

/* `infos`: of the first form if `first`. A NULL or short list answers how long it must be. */
static nvmlReturn_t processes(nvmlDevice_t device, unsigned *count, void *infos, bool first)
{
    static __thread struct sum s;
    nvmlReturn_t r = device_check(device);

    if (r == NVML_SUCCESS && (!count || (*count && !infos)))
        r = NVML_INVALID_ARGUMENT;
    if (r != NVML_SUCCESS)
        return r;
    sum_of(device, &s);
    unsigned room = *count;
    *count = s.count;
    if (s.count > room)
        return NVML_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < s.count; i++) {
        if (first)
            ((nvmlProcessInfo_v1_t *)infos)[i] =
                (nvmlProcessInfo_v1_t){s.processes[i].pid, s.processes[i].usedGpuMemory};
        else
            ((nvmlProcessInfo_t *)infos)[i] = s.processes[i];
    }
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                           nvmlProcessInfo_v1_t *infos);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                  nvmlProcessInfo_v1_t *infos)
{
    return processes(device, count, infos, true);
}

NVML_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                              nvmlProcessInfo_t *infos);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                     nvmlProcessInfo_t *infos)
{
    return processes(device, count, infos, false);
}

NVML_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                              nvmlProcessInfo_t *infos);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                     nvmlProcessInfo_t *infos)
{
    return processes(device, count, infos, false);
}

/* No process draws here. */
NVML_API nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                               nvmlProcessInfo_t *infos);
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                      nvmlProcessInfo_t *infos)
{
    nvmlReturn_t r = device_check(device);

    if (r == NVML_SUCCESS && !count)
        r = NVML_INVALID_ARGUMENT;
    if (r == NVML_SUCCESS)
        *count = 0;
    return r;
}

/* Nothing runs on a device that is not there. */
NVML_API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates);
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    nvmlReturn_t r = device_check(device);

    if (r == NVML_SUCCESS && !rates)
        r = NVML_INVALID_ARGUMENT;
    if (r == NVML_SUCCESS)
        *rates = (nvmlUtilization_t){0, 0};
    return r;
}

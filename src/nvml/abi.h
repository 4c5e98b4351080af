/* The part of NVML's binary interface that Memoir uses, declared from NVIDIA's public API reference: the library is loaded
 * at run time, and its header is not needed to build. Layouts never change; a new one gets a new entry point or version. */
#pragma once

#include <assert.h>
#include <stdint.h>

#define NVML_LIBRARY "libnvidia-ml.so.1"

typedef struct nvml_handle *nvml_handle; /* nvmlDevice_t */

/* nvmlReturn_t */
enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
};

enum { NVML_CLOCK_SM = 1 }; /* nvmlClockType_t */

#define NVML_VALUE_NOT_AVAILABLE UINT64_MAX

struct nvml_memory { /* nvmlMemory_t: `used` with what the driver reserves */
    uint64_t total, free, used;
};
static_assert(sizeof(struct nvml_memory) == 24, "as nvmlDeviceGetMemoryInfo fills it");

struct nvml_memory_v2 { /* nvmlMemory_v2_t */
    uint32_t version;
    uint64_t total, reserved, free, used;
};
static_assert(sizeof(struct nvml_memory_v2) == 40, "as nvmlDeviceGetMemoryInfo_v2 fills it");
#define NVML_MEMORY_V2 (sizeof(struct nvml_memory_v2) | 2u << 24)

struct nvml_process_v1 { /* nvmlProcessInfo_v1_t */
    uint32_t pid;
    uint64_t used;
};
static_assert(sizeof(struct nvml_process_v1) == 16, "of entry points without a version");

struct nvml_process_v2 { /* nvmlProcessInfo_v2_t */
    uint32_t pid;
    uint64_t used;
    uint32_t gpu_instance, compute_instance;
};
static_assert(sizeof(struct nvml_process_v2) == 24, "of entry points _v2 and _v3");

/* Some drivers of the 535 series append the protected memory of confidential computing (8 bytes) in _v3. */
enum { NVML_PROCESS_LONG = 32 };

struct nvml_pci { /* nvmlPciInfo_t of nvmlDeviceGetPciInfo_v3 */
    char bus_legacy[16];
    uint32_t domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
};
static_assert(sizeof(struct nvml_pci) == 68, "as nvmlDeviceGetPciInfo_v3 fills it");

typedef int nvml_processes_fn(nvml_handle device, unsigned *count, void *infos);

/* Every entry point; NULL where the library has none. */
struct nvml_calls {
    int (*init)(void);
    const char *(*error_string)(int result);
    int (*driver_version)(char *version, unsigned length);
    int (*count)(unsigned *count);
    int (*handle)(unsigned index, nvml_handle *device);
    int (*name)(nvml_handle device, char *name, unsigned length);
    int (*uuid)(nvml_handle device, char *uuid, unsigned length);
    int (*pci)(nvml_handle device, struct nvml_pci *pci);
    int (*memory)(nvml_handle device, struct nvml_memory *memory);
    int (*memory_v2)(nvml_handle device, struct nvml_memory_v2 *memory);
    nvml_processes_fn *compute_v3, *compute_v2, *compute_v1;
    nvml_processes_fn *graphics_v3, *graphics_v2, *graphics_v1;
    int (*mig_mode)(nvml_handle device, unsigned *current, unsigned *pending);
    int (*mig_max)(nvml_handle device, unsigned *count);
    int (*mig_handle)(nvml_handle device, unsigned index, nvml_handle *instance);
    int (*cores)(nvml_handle device, unsigned *cores);
    int (*clock_max)(nvml_handle device, int clock, unsigned *mhz);
};

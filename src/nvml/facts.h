/* What NVML says of the NVIDIA devices of this machine, as one plain value: devices, and the processes that use them.
 *
 * A figure that the driver does not give is absent (its bit in `valid` is not set), never 0. MIG instances are devices of
 * their own, which name the GPU that they are a part of; the processes of a GPU in MIG mode are listed at its instances. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    NVML_DEVICES_MAX = 256,    /* MIG instances included; further ones are counted only */
    NVML_PROCESSES_MAX = 4096, /* on all devices; further ones are counted only */
    NVML_UUID_MAX = 64,
    NVML_BUS_MAX = 32,
    NVML_NAME_MAX = 96,
    NVML_VERSION_MAX = 80,
};

/* Bits of nvml_device.valid. */
enum nvml_field {
    NVML_HAS_TOTAL = 1u << 0,
    NVML_HAS_USED = 1u << 1,
    NVML_HAS_RESERVED = 1u << 2,  /* `used` is then without it */
    NVML_HAS_PROCESSES = 1u << 3, /* the list of its processes is complete */
    NVML_HAS_SPEED = 1u << 4,
};

struct nvml_device {
    uint32_t index;    /* as NVML counts GPUs: by PCI address; that of the GPU for a MIG instance */
    int32_t mig_index; /* number of a MIG instance on its GPU; -1: a whole GPU */
    uint32_t valid;    /* enum nvml_field */
    uint32_t mig_count; /* instances of a GPU in MIG mode; 0: not in MIG mode */
    uint64_t total_bytes, used_bytes, reserved_bytes;
    uint64_t speed;           /* cores x clock: only to compare devices of one machine */
    char uuid[NVML_UUID_MAX]; /* "GPU-..." or "MIG-..."; "": not told */
    char bus[NVML_BUS_MAX];   /* "0000:1b:00.0", as Linux writes it; "": not told */
    char name[NVML_NAME_MAX];
};

/* Bits of nvml_process.uses. */
enum nvml_use { NVML_COMPUTE = 1u << 0, NVML_GRAPHICS = 1u << 1 };

/* A process on one device. Drivers give PIDs of the initial PID namespace, newer ones those of the namespace that asks. */
struct nvml_process {
    uint32_t device; /* place in nvml_facts.devices */
    uint32_t pid;
    uint64_t used_bytes;
    uint32_t has_used; /* 1 or 0 */
    uint32_t uses;     /* enum nvml_use */
    uint32_t
        is_here; /* 1: `pid` is certainly this process in our own PID namespace, and the next two are known */
    uint32_t uid;  /* real */
    char comm[16]; /* as the kernel names it */
};

struct nvml_facts {
    struct nvml_device *devices;
    struct nvml_process *processes; /* sorted by device, then PID; no pair twice */
    size_t n_devices, n_processes;
    size_t devices_left_out, processes_left_out; /* past the limits */
    char driver[NVML_VERSION_MAX];               /* "580.159.04"; "": not told */
    uint64_t cost_ns;                            /* CPU time that this reading took */
    void *memory;                                /* owned */
};

void nvml_facts_release(struct nvml_facts *facts);

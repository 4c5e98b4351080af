/* A reading as the worker sends it: a head, then devices, then processes. Both ends are the same program. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "nvml/facts.h"
#include "nvml/library.h"

#define NVML_WIRE_MAGIC UINT64_C(0x31666d6c766e6d6d)

struct nvml_wire_head {
    uint64_t magic;
    int64_t result; /* 0, or -errno with `why` and nothing after it */
    uint64_t n_devices, n_processes, devices_left_out, processes_left_out, cost_ns;
    char driver[NVML_VERSION_MAX];
    char why[NVML_WHY_MAX];
};

/* The most that one reading has. */
#define NVML_WIRE_MAX                                                                \
    (sizeof(struct nvml_wire_head) + NVML_DEVICES_MAX * sizeof(struct nvml_device) + \
     NVML_PROCESSES_MAX * sizeof(struct nvml_process))

/* How many bytes follow the head. -EBADMSG for one that cannot be. */
int nvml_wire_rest(const struct nvml_wire_head *head, size_t *ret_bytes);

/* Head and `len` bytes after it as facts, which own copies. Everything is checked: texts end, places exist, order holds.
 * -EBADMSG, -ENOMEM. */
int nvml_facts_read(const struct nvml_wire_head *head, const void *rest, size_t len,
                    struct nvml_facts *ret_facts);

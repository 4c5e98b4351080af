/* Which device a process means by its CUDA ordinal: what CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER of its environment make
 * of the machine's devices. Pure functions. The rules are NVIDIA's documented ones; where the documentation is silent, what
 * driver 580 does with the variable is followed (test_nvml_visible has the cases). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nvml/facts.h"

struct visible {
    uint32_t devices[NVML_DEVICES_MAX]; /* by ordinal: places in the list that was given */
    size_t n;
    /* False: CUDA's own order is a guess. FASTEST_FIRST puts the fastest of unequal GPUs first by a rule that is not
     * documented, and leaves the order of the others open. */
    bool certain;
};

/* `visible` and `order` are the values of the two variables, NULL where unset. `devices` as in nvml_facts. */
void visible_devices(const char *visible, const char *order, const struct nvml_device *devices,
                     size_t n, struct visible *ret_visible);

/* The value of `name` in the bytes of /proc/PID/environ, which end with NUL; NULL: unset. Like getenv(), the first counts. */
const char *visible_environ(const char *environ_bytes, size_t len, const char *name);

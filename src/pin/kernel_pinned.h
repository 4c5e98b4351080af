/*
 * kernel_pinned.h: how much memory of the machine the kernel holds pinned for devices.
 *
 * An independent check of what programs and books say: the kernel counts pages that drivers pin
 * (nr_foll_pin_acquired less nr_foll_pin_released in /proc/vmstat), those of cudaHostAlloc() and of
 * cudaHostRegister() alike. For the whole machine, with other users of such pages (io_uring, RDMA,
 * direct I/O), and off by up to 125 pages for each processor.
 */
#pragma once

#include <stdint.h>

/* `vmstat`: normally "/proc/vmstat". -ENOENT: the kernel does not count it; -errno. */
int pin_kernel_pinned(const char *vmstat, uint64_t *ret_bytes);

/* heap_kernel.h: the probes on the allocator of one process, and their maps (heap.bpf.c).
 *
 * Nothing is pinned: links and maps are descriptors of this process, and the kernel removes the probes
 * when they are closed, be it by SIGKILL. Needs what kernel.h needs, but no bpffs. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "observe/heap_wire.h"

struct heap_kernel;

enum { HEAP_KERNEL_WHY_MAX = 256 };

struct heap_kernel_options {
    pid_t pid;
    uint32_t blocks_max; /* 0: HEAP_BLOCKS_MAX */
    bool two_links;      /* as kernels before 6.13 need */
    bool children;       /* tell of processes that it forks */
};

/* A function of an allocator's file. */
struct heap_function {
    uint64_t offset; /* in the file, of the instruction to probe */
    uint32_t cookie; /* HEAP_COOKIE() */
};

/* Load. About 20 ms. On failure -errno and, for people, `why`. */
int heap_kernel_open(const struct heap_kernel_options *options, struct heap_kernel **ret_kernel,
                     char why[static HEAP_KERNEL_WHY_MAX]);
void heap_kernel_close(struct heap_kernel *kernel); /* NULL is fine */

/* Put probes into the process: 10 to 50 ms, each file. It runs on meanwhile. */
int heap_kernel_attach(struct heap_kernel *kernel, int fd, const struct heap_function *functions,
                       size_t n, char why[static HEAP_KERNEL_WHY_MAX]);

/* Remove all of them: 60 to 120 ms. Tables and counters stay. */
void heap_kernel_detach(struct heap_kernel *kernel);

/* Shared with the kernel, while it is open. */
struct heap_state *heap_kernel_state(struct heap_kernel *kernel);
struct heap_node *heap_kernel_nodes(struct heap_kernel *kernel); /* HEAP_NODES_MAX */

/* A live block: false: it is gone. */
bool heap_kernel_block(struct heap_kernel *kernel, uint64_t address, struct heap_block *ret_block);

/* Calls `each` for live blocks. The table changes meanwhile: what it tells is of about one moment. */
int heap_kernel_blocks(struct heap_kernel *kernel,
                       void (*each)(void *context, uint64_t address,
                                    const struct heap_block *block),
                       void *context);

void heap_kernel_block_remove(struct heap_kernel *kernel, uint64_t address);

int heap_kernel_fd(const struct heap_kernel *kernel); /* readable when there are records */
void heap_kernel_read(struct heap_kernel *kernel,
                      void (*each)(void *context, const void *record, size_t bytes), void *context);

/* Mean run time of the programs of an allocation (entry and return) and of a free, where the machine measures that
 * (kernel.bpf_stats_enabled); else 0. */
void heap_kernel_costs(struct heap_kernel *kernel, double *ret_alloc_ns, double *ret_free_ns);

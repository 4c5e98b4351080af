/* Who owns the device memory that the driver counts for a process: allocations by library and line, what rounding adds,
 * the CUDA context, what is older than the observation, and the rest. The rows sum to the driver's figure exactly.
 *
 * Pure: the figures come from the observer and from NVML. What a block takes was measured on an H200 with driver 580:
 * blocks of up to 1 MiB share pieces of 2 MiB, larger ones are multiples of 2 MiB, a pool and the memory of graphs grow by 32 MiB. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OWNERS_GRANULE      (UINT64_C(2) << 20)  /* default of owners_process.granule */
#define OWNERS_SMALL_MAX    (UINT64_C(1) << 20)  /* blocks up to this size share granules */
#define OWNERS_SMALL_ALIGN  UINT64_C(512)        /* each a multiple of this */
#define OWNERS_POOL_GRANULE (UINT64_C(32) << 20) /* default of owners_process.pool_granule */

enum owners_memory {
    OWNERS_DEVICE,  /* cuMemAlloc and its kind */
    OWNERS_POOL,    /* cuMemAllocAsync: part of a pool */
    OWNERS_VIRTUAL, /* cuMemCreate: a multiple of the granule already */
    OWNERS_MANAGED, /* cuMemAllocManaged: on the device only while it is used there */
    OWNERS_RECORDED, /* of nodes of graphs: on the device from their launch on, until it is trimmed */
};

/* `count` live blocks of `size` bytes each from one place. Texts are borrowed. */
struct owners_block {
    const char *module; /* path of the file that called: owners_caller(); "": unknown */
    const char *site;   /* the line, as people read it; "": unknown */
    enum owners_memory memory;
    uint64_t size, count;
};

struct owners_process {
    uint64_t driver_bytes;          /* the driver's figure of the process on the device */
    const char *program;            /* path of its program */
    uint64_t granule, pool_granule; /* 0: the defaults */
    bool has_context, has_before;
    bool context_estimate;  /* context_bytes is another process's on such a device */
    uint64_t context_bytes; /* the driver's figure before the first allocation */
    uint64_t
        before_bytes; /* allocated before the observation began and not freed since; the context not included */
    uint64_t
        graph_peak_bytes; /* the most that graphs had recorded at a time: the driver keeps such memory when they are gone */
};

enum owners_kind {
    OWNERS_LINE,     /* a library and line; the only kind of which there are several */
    OWNERS_ROUNDING, /* what granules and pools take beyond their blocks */
    OWNERS_CONTEXT,
    OWNERS_ON_DEVICE, /* of managed memory, at most what is left */
    OWNERS_BEFORE,
    OWNERS_GRAPHS, /* of memory that graphs recorded, at most what is left: launches are not observed */
    OWNERS_UNKNOWN,
    OWNERS_EXCESS, /* negative: accounted, but not in the driver's figure, which is older or lacks it */
};

enum { OWNERS_LIBRARY_MAX = 64 };

struct owners_row {
    enum owners_kind kind;
    char library[OWNERS_LIBRARY_MAX]; /* OWNERS_LINE: "torch"; else "" */
    const char *site;                 /* OWNERS_LINE: borrowed from the blocks; else "" */
    enum owners_memory memory;        /* OWNERS_LINE */
    int64_t bytes;
    uint64_t blocks; /* OWNERS_LINE */
    bool estimate;
};

/* Rows for free(): lines by size, then the other kinds in their order, those of 0 bytes left out. -ENOMEM; -EOVERFLOW for
 * figures beyond 8 EiB. */
int owners_compute(const struct owners_process *process, const struct owners_block *blocks,
                   size_t n, struct owners_row **ret_rows, size_t *ret_n);

/* "rounding", "CUDA context" ...: how people read a kind. */
const char *owners_kind_name(enum owners_kind kind);

/* The name of the library for people: "torch" for .../libtorch_cuda.so and .../libc10_cuda.so, "cuBLAS" for
 * libcublasLt.so.13, the file's name for others; the program's own name for `program`. Returns `text`. */
const char *owners_library(char text[static OWNERS_LIBRARY_MAX], const char *module,
                           const char *program);

/* The first of these modules, from the called function outwards, that is not the CUDA runtime or driver: who asked for the
 * memory. "" when there is none. */
const char *owners_caller(const char *const *modules, size_t n);

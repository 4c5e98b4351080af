/* counts.h: what the stand-in driver itself counted, exactly, for tests to compare with.
 *
 * A program finds the two symbols with dlsym() in libcuda.so.1; a real driver has neither. */
#pragma once

#include <assert.h>
#include <stdint.h>

#define STANDIN_DEVICES_MAX    16
#define STANDIN_COUNTS_VERSION 1

enum standin_kind {
    STANDIN_DEVICE = 0,     /* cuMemAlloc, cuMemAllocPitch */
    STANDIN_POOL = 1,       /* cuMemAllocAsync, cuMemAllocFromPoolAsync */
    STANDIN_MANAGED = 2,    /* cuMemAllocManaged */
    STANDIN_ARRAY = 3,      /* arrays and mipmapped arrays */
    STANDIN_PHYSICAL = 4,   /* cuMemCreate: handles of physical memory */
    STANDIN_GRAPH = 5,      /* allocated by a node of a graph that was launched */
    STANDIN_HOST = 6,       /* pinned host memory */
    STANDIN_REGISTERED = 7, /* host memory that was registered */
    STANDIN_MAPPED = 8,     /* cuMemMap: addresses of physical memory counted above */
    STANDIN_RESERVED = 9,   /* cuMemAddressReserve: addresses without memory */
    STANDIN_IMPORTED = 10,  /* memory of another process: IPC, external memory */
    STANDIN_KINDS = 11,
};

enum standin_direction {
    STANDIN_TO_DEVICE = 0,
    STANDIN_FROM_DEVICE = 1,
    STANDIN_ON_DEVICE = 2,
    STANDIN_ON_HOST = 3,
    STANDIN_DIRECTIONS = 4,
};

struct standin_live {
    uint64_t bytes; /* as requested; of pitched memory: pitch times height */
    uint64_t blocks;
};

struct standin_counts {
    uint32_t version; /* STANDIN_COUNTS_VERSION */
    uint32_t devices; /* visible to the process */
    struct standin_live live[STANDIN_DEVICES_MAX][STANDIN_KINDS];
    uint64_t allocations; /* blocks that became live, of any kind */
    uint64_t frees;       /* blocks that are gone, of any kind */
    uint64_t failed;      /* calls that returned an error */
    uint64_t calls;
    uint64_t copies[STANDIN_DIRECTIONS];
    uint64_t copied_bytes[STANDIN_DIRECTIONS];
    uint64_t sets, set_bytes;
    uint64_t injected; /* failures that MEMOIR_STANDIN_FAIL asked for */
};
static_assert(sizeof(struct standin_counts) == 8 + 16 * 11 * 16 + 8 * (4 + 8 + 3),
              "callers find it by dlsym()");

/* Fill `ret` with the counts of this process. Thread-safe: all figures are of one moment, apart from `calls` and `failed`. */
void standin_counts(struct standin_counts *ret);

/* 1. Only the stand-in has this symbol. */
extern const int memoir_standin;

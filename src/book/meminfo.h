/*
 * meminfo.h: the one reader of /proc/meminfo, for memoird, the views and the allocator; see lines.h for what that means for
 * the code here.
 */
#pragma once

#include <stdint.h>

struct lines; /* lines.h */

enum meminfo_field {
    MEMINFO_TOTAL,
    MEMINFO_FREE,
    MEMINFO_AVAILABLE,
    MEMINFO_BUFFERS,
    MEMINFO_CACHED, /* with SHMEM */
    MEMINFO_SWAP_CACHED,
    MEMINFO_ACTIVE,
    MEMINFO_INACTIVE,
    MEMINFO_SWAP_TOTAL,
    MEMINFO_SWAP_FREE,
    MEMINFO_DIRTY,
    MEMINFO_ANON,
    MEMINFO_SHMEM,
    MEMINFO_SLAB,
    MEMINFO_SLAB_RECLAIMABLE,
    MEMINFO_SLAB_UNRECLAIMABLE,
    MEMINFO_KERNEL_STACKS,
    MEMINFO_PAGE_TABLES,
    MEMINFO_SECOND_PAGE_TABLES, /* of virtual machines and IOMMUs */
    MEMINFO_PERCPU,
    MEMINFO_HUGETLB,
    MEMINFO_FIELDS
};

#define MEMINFO_BIT(field) (UINT32_C(1) << (field))
#define MEMINFO_ALL        (MEMINFO_BIT(MEMINFO_FIELDS) - 1)

struct meminfo {
    uint32_t valid; /* MEMINFO_BIT()s: the kernel told it */
    uint64_t bytes[MEMINFO_FIELDS];
};

/* Read until all fields of `wanted` (MEMINFO_BIT()s) were found, or to the end. Others are left out. */
void meminfo_parse(struct lines *text, uint32_t wanted, struct meminfo *ret_meminfo);

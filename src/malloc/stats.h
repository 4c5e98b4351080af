/*
 * stats.h: what the heap is made of, counted.
 *
 * Slabs of other threads change while they are counted: each figure was true, the sums need not be of one moment.
 */
#pragma once

#include <stdint.h>

#include "malloc/macro.h"

struct stats_class {
    uint64_t slabs, slices;
    uint64_t used; /* blocks */
    uint64_t made; /* blocks that have been carved; of large blocks: bytes asked for */
};

struct stats_counts {
    struct stats_class small[SIZE_CLASSES], large;
};

/* Add what one macro-block has. With the lock of its source. */
void stats_count(struct macro *m, struct stats_counts *n);

struct stats {
    struct stats_counts counts;
    uint64_t mapped_bytes; /* macro-blocks and kept mappings, without huge blocks in use */
    uint64_t small_bytes, large_bytes, huge_bytes; /* in use, as large as they are served */
    uint64_t small_blocks, large_blocks, huge_blocks;
    uint64_t first_bytes, first_blocks; /* of the small ones: those in the nursery */
    uint64_t kept_bytes;                /* free, with memory: what malloc_trim() would give back */
};

/* Of the whole process. Takes each source's lock for a while. */
void stats_take(struct stats *ret);

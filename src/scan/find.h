/* Inside scan: the live blocks, found by their trailers and words, and the way from an address to its block. */
#pragma once

#include "scan/maps.h"
#include "scan/memory.h"
#include "scan/scan.h"

struct scan_heap;

/* Fill scan->blocks, and make the runs. Each region is told which blocks lie in it. `heap`: of our own allocator, whose blocks have words; else NULL. */
int scan_find(struct scan *scan, const struct scan_options *options, struct scan_memory *memory,
              struct scan_regions *regions, const struct scan_heap *heap);

/* The heap of our allocator in that process, for scan_find(); NULL: it has none. */
int scan_find_heap(const struct scan_options *options, struct scan_memory *memory,
                   const struct scan_regions *regions, struct scan_heap **ret_heap);

/* The number of the block around an address, or SIZE_MAX. `hint` is the run of the last hit. */
size_t scan_block_around(const struct scan *scan, const struct scan_regions *regions,
                         uint64_t address, struct scan_run **hint);

/* Inside scan: the live blocks, found by their trailers, and the way from an address to its block. */
#pragma once

#include "scan/maps.h"
#include "scan/memory.h"
#include "scan/scan.h"

/* Fill scan->blocks and the blocks of each region. */
int scan_find(struct scan *scan, const struct scan_options *options, struct scan_memory *memory,
              struct scan_regions *regions);

/* The number of the block around an address, or SIZE_MAX. `hint` is the region of the last hit. */
size_t scan_block_around(const struct scan *scan, const struct scan_regions *regions,
                         uint64_t address, struct scan_region **hint);

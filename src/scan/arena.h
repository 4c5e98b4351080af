/* Inside scan: where glibc's malloc keeps its own pointers into the heap, among the data of the C library.
 *
 * The main arena (struct malloc_state) names free pieces of the heap by an address 16 bytes before them, which is the last word of the live
 * block that ends there. Such a pointer must not keep that block reachable. All other data of the C library is data as any program's: what it
 * points to is in use. So the arena is located by what no other data looks like: 127 list heads in a row, each of which is empty and names
 * itself, or names pieces that name it. */
#pragma once

#include <stdint.h>

#include "scan/maps.h"
#include "scan/memory.h"

/* Addresses of the arena's pointers; both 0: not found, and then all pointers count. */
struct scan_arena {
    uint64_t start, end;
};

/* Look for it in the data of the C library. Costs a read of that data, and of two words for each list that is not empty. While a thread changes
 * a list its arena may not be found. */
struct scan_arena scan_arena_find(struct scan_memory *memory, const struct scan_regions *regions);

/* Regions that are no arenas of threads, although their addresses are like those of one, are no heaps: what lies between their blocks may be the
 * program's. An arena is known by the record that it begins with (struct _heap_info). */
void scan_arena_heaps(struct scan_memory *memory, struct scan_regions *regions);

/* link_map.h: the libraries of a process, in the order in which its loader searches them. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "observe/remote_memory.h"

enum {
    LINK_MAP_MAX = 1024,
    LINK_MAP_SEGMENTS_MAX = 64,
    LINK_MAP_DYNAMIC_MAX = 256,
    LINK_MAP_ENTRY_BYTES = 40, /* of one library that are read */
    /* What a walk reads at most. */
    LINK_MAP_PIECES = LINK_MAP_MAX + 3,
    LINK_MAP_BYTES = (LINK_MAP_MAX + 1) * LINK_MAP_ENTRY_BYTES + LINK_MAP_SEGMENTS_MAX * 56 +
                     LINK_MAP_DYNAMIC_MAX * 16,
};

struct elf_parser;

/* Calls `each` with the difference between addresses of the process and of the file, the program first. The list lies in memory of
 * the process and may be anything. It is followed by the parser, which has no rights; NULL: by this process, for tests. Memory that
 * hangs is given up after DEADLINE_MS. Returns how many libraries there were: 0 for a static program, or if the parser died. */
size_t link_map_each(pid_t pid, struct elf_parser *parser,
                     void (*each)(void *context, uint64_t base, size_t order), void *context);

/* ---- for link_map.c and the child ---- */

/* Follow the list from an auxiliary vector as /proc/PID/auxv has it. */
size_t link_map_walk(const void *auxv, size_t auxv_bytes, remote_read_fn *read, void *context,
                     uint64_t ret_bases[static LINK_MAP_MAX]);

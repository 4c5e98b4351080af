/* link_map.h: the libraries of a process, in the order in which its loader searches them. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { LINK_MAP_MAX = 1024 };

/* Calls `each` with the difference between addresses of the process and of the file, the program first. The list lies in memory of
 * the process: it is read, bounded, and may be anything. Returns how many there were: 0 for a static program. */
size_t link_map_each(pid_t pid, void (*each)(void *context, uint64_t base, size_t order),
                     void *context);

/* From a pid in somebody's pid namespace to the pid that we see. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct pidns_map;

int pidns_map_new(struct pidns_map **ret_map);
void pidns_map_free(struct pidns_map *map); /* NULL is fine */

/* The process that is `pid` in the namespace with that inode and began at `start_ticks`; 0 when there is
 * none that we can see. Answers from a picture of /proc, which is taken again (about 15 µs a process)
 * when it does not know, at most once in PIDNS_INTERVAL_MS and for a PIDNS_SHARE-th of the time. */
enum { PIDNS_INTERVAL_MS = 1000, PIDNS_SHARE = 20 };
pid_t pidns_find(struct pidns_map *map, uint64_t ns, pid_t pid, uint64_t start_ticks);

/* The same of whoever has that pid now, or had it when the picture was taken. -EAGAIN: nobody known, and it is
 * too early to take it again. */
int pidns_find_any(struct pidns_map *map, uint64_t ns, pid_t pid, pid_t *ret_outer);

/* Is there a process of any other namespace that is `pid` to itself? From the same picture. */
bool pidns_has_inner(struct pidns_map *map, pid_t pid);

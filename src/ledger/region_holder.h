/* Whose a slot of a region is. A pid alone proves nothing: it may be a dead process's, be somebody else's
 * by now, or mean another process in another pid namespace. tt-metal keeps the region mapped for as long as
 * it has a slot there, so the proof is that the process with that pid maps this very file. Where
 * /proc/PID/maps cannot be read, its owner, its name and a start before the slot's last change have to do. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ledger/pidns.h"
#include "ledger/region.h"

enum {
    REGION_MAPS_MAX = 256,      /* regions that one process maps; further ones are not looked at */
    REGION_MAPS_AGE_MS = 10000, /* exec takes the mapping away and nothing else */
    /* A user can make a list of mappings as long as the kernel lets him: so much is read of his in a poll. */
    REGION_MAPS_BYTES_MAX = 8 << 20,
};

/* The regions that one process maps, as of some moment. */
struct region_maps {
    uint64_t taken_ns;      /* 0: never */
    uint64_t taken_real_ns; /* the same as time since 1970, as slots have it */
    int error;              /* -errno where /proc/PID/maps cannot be read */
    size_t n;
    struct {
        uint64_t dev, ino;
    } files[REGION_MAPS_MAX];
};

enum region_verdict {
    REGION_HOLDER,  /* the process lives, and the slot is its own */
    REGION_GHOST,   /* nobody's: the process is gone, or its pid another one's */
    REGION_UNKNOWN, /* perhaps a process of another pid namespace, or one that we may not look at */
};

struct region_owner {
    pid_t pid;
    uint32_t uid;
    uint64_t start_ticks;
};

/* Who has that pid, as far as /proc tells; with REGION_HOLDER the slot may be his. `ret_absent`: nobody here
 * is the slot's process, so region_absent() decides. */
enum region_verdict region_owner_find(const struct region_slot *slot,
                                      const struct region_file *file,
                                      struct region_owner *ret_owner, bool *ret_absent);

/* Is the slot his? Takes the picture of his mappings again where it is too old or may not know, within
 * `maps_left` bytes, which are then less. With `ret_absent` it is not. */
enum region_verdict region_owner_proof(const struct region_owner *owner,
                                       const struct region_slot *slot,
                                       const struct region_file *file, struct region_maps *maps,
                                       size_t *maps_left, bool *ret_absent);

/* Nobody here is the slot's process: a ghost, unless a process of another namespace may be it. */
enum region_verdict region_absent(pid_t pid, uint64_t own_pid_ns, struct pidns_map *pidns);

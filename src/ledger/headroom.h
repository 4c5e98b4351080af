/* How much more a process can take before something gives: the memory limit of its cgroup or of one above it
 * (versions 1 and 2), or what the machine has left. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

enum headroom_kind {
    HEADROOM_UNKNOWN,
    HEADROOM_CGROUP,
    HEADROOM_MACHINE,
    HEADROOM_DEVICE, /* of a memory of a device; others than these functions find it */
};
const char *headroom_word(enum headroom_kind kind); /* "cgroup", "machine", "device"; NULL */

struct headroom {
    enum headroom_kind kind;
    uint64_t bytes;       /* left; file pages that the kernel would give up count as free */
    uint64_t limit_bytes; /* the cgroup's limit, or the machine's memory */
};

/* The smallest one. HEADROOM_UNKNOWN when nothing can be read. About 50 µs; reads a few files. */
struct headroom headroom_of(pid_t pid);

/* The same below other roots than /proc and /sys/fs/cgroup, for tests. */
struct headroom headroom_below(const char *proc, const char *cgroups, pid_t pid);

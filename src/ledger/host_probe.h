/* A costly look at one process. It may wait for the memory of that process (a file of a user's own file system
 * that never answers), so a daemon lets a helper process look: the result has no pointers and can be sent. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "ledger/host.h"

enum host_probe_kind {
    HOST_PROBE_SIZES = 1u << 0,   /* PSS, USS, dirty, oom score */
    HOST_PROBE_COMMAND = 1u << 1, /* the command line */
    HOST_PROBE_ORIGIN = 1u << 2,  /* program and environment */
    HOST_PROBE_CGROUP = 1u << 3,
};

struct host_probe {
    uint32_t valid; /* enum host_field of what could be read */
    uint32_t oom_score;
    uint64_t pss_bytes, uss_bytes, dirty_bytes;
    uint64_t cpu_ns; /* what the look took */
    uint32_t rank;
    uint32_t tracked; /* enum host_tracked */
    char job[HOST_WORD_MAX];
    char command[HOST_COMMAND_MAX];
    char exe[HOST_PATH_MAX];
    char cgroup[HOST_PATH_MAX];
    bool cgroup_v1;
};

/* Look. `proc`: NULL for "/proc". 0, or -ESRCH when the process is gone. */
int host_probe_read(const char *proc, pid_t pid, uint32_t kinds, struct host_probe *ret_probe);

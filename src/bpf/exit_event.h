/* What os.bpf.c tells of a process that ended. Both sides compile this, so it has fixed-width fields only. */
#pragma once

#ifdef __bpf__
#include "bpf/kernel.h"
#else
#include <stdint.h>
#endif

enum { EXIT_COMM_MAX = 16, EXIT_CGROUP_MAX = 64 };

enum exit_flags {
    EXIT_OOM = 1u << 0,       /* the OOM killer had chosen it */
    EXIT_PEAK_MM = 1u << 1,   /* the peak is of its last program alone; else of all since fork */
    EXIT_CGROUP_V1 = 1u << 2, /* the cgroup is one of the memory controller's own hierarchy */
};

struct exit_event {
    uint64_t end_ns, start_ns; /* since boot, sleep included */
    uint64_t cpu_ns;           /* of all its threads, up to the kernel's last tick */
    uint64_t peak_pages;       /* resident */
    uint64_t cgroup_id; /* inode of its cgroup: the memory controller's, else the unified one */
    int32_t pid;        /* as memoird sees it */
    int32_t inner_pid;  /* in its own namespace */
    int32_t parent;     /* as the initial namespace has it */
    uint32_t uid;
    int32_t status; /* as wait() gives it */
    uint32_t flags; /* enum exit_flags */
    char comm[EXIT_COMM_MAX];
    char cgroup[EXIT_CGROUP_MAX]; /* last part of its path */
};

/* Set before the program is loaded. */
struct exit_settings {
    uint32_t pid_ns, user_ns; /* inodes of memoird's own */
};

struct exit_counters {
    uint64_t lost; /* the ring was full */
};

_Static_assert(sizeof(struct exit_event) == 144, "the layout is shared by two compilers");
_Static_assert(sizeof(struct exit_settings) == 8, "the layout is shared by two compilers");

/* heap.h: the observer of one process's heap: `memoir attach`.
 *
 * Puts probes on the allocator of a process that runs (heap_target.h), keeps its live blocks in the kernel (heap.bpf.c), and writes
 * a book on its behalf (source ATTACH), which all views read. Blocks that are older than the attach are in no figure: the account is
 * marked BOOK_ACCOUNT_PARTIAL. It ends with the process, at its exec, when it is told to, or by any signal; the kernel removes
 * the probes in each case. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct heap_options {
    pid_t pid;
    const char *dir;    /* of books; NULL: the usual places */
    const char *socket; /* to answer at (control.h); NULL: nowhere */
    int ready_fd;       /* "ready\n" is written there once the probes are in; -1: not */
    uint32_t uid; /* on behalf of this user, who must be allowed to trace the process; 0: root */
    unsigned linger_s;     /* end so long after the last holder went; 0: never */
    bool keep_ended;       /* leave the book of an ended process for the daemon */
    uint32_t blocks_max;   /* 0: HEAP_BLOCKS_MAX */
    uint32_t sample_bytes; /* mean distance of sampled stacks; 0: HEAP_SAMPLE_BYTES */
    unsigned budget;       /* percent of the process's CPU that probes may take; 0: no limit */
    bool two_links;        /* as kernels before 6.13 need */
    unsigned children;     /* attach to so many processes that it forks, too */
};

enum {
    HEAP_SAMPLE_BYTES = 512 << 10,
    HEAP_TICK_MS = 250,      /* between two looks at the counters, */
    HEAP_TICK_EARLY_MS = 10, /* and in the first seconds, when all callers are new */
    HEAP_EARLY_MS = 2000,
    HEAP_BUDGET = 5,
    HEAP_CHILDREN_MAX = 16, /* at a time; each of them may have a quarter as many */
};

/* Runs until it is told to end or the process does: an exit status. */
int heap_run(const struct heap_options *options);

/* Inside explain: where the threads of a process have their stacks. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "explain/smaps.h"

enum { STACKS_THREADS_MAX = 4096 }; /* whose stack pointers are read; 10 µs each */

struct thread_stacks {
    uint64_t *pointers; /* of threads that wait in the kernel, sorted */
    size_t n;
    uint32_t n_threads;
};

/* From /proc/PID/task: what cannot be read is missing. -ENOMEM. */
int thread_stacks_read(pid_t pid, struct thread_stacks *ret_stacks);
void thread_stacks_release(struct thread_stacks *stacks);

/* Does a stack pointer lie in it? */
bool thread_stacks_in(const struct thread_stacks *stacks, const struct smaps_mapping *m);

/* Has it the shape of a thread's stack: writable, right above a small guard that cannot be touched? `before`: the mapping before it,
 * or NULL. */
bool thread_stacks_shaped(const struct smaps_mapping *before, const struct smaps_mapping *m);

/* A process and a number that changes whenever its memory does, as tasks.bpf.c tells it. Both sides compile this. */
#pragma once

#ifdef __bpf__
#include "bpf/kernel.h"
#else
#include <stdint.h>
#endif

enum { TASK_CPUS_MAX = 16 };

struct task_mark {
    int32_t pid; /* as the initial namespace has it */
    uint32_t reserved;
    uint64_t mark; /* 0: it has no memory of its own */
};

/* Set before the program is loaded. */
struct task_settings {
    uint32_t cpus; /* that the kernel may ever have */
};

/* Variables of the program. `sample_id` is set before the offsets are looked for. */
struct task_state {
    uint64_t offsets[TASK_CPUS_MAX];
    uint32_t sample_id;
};

_Static_assert(sizeof(struct task_mark) == 16, "the layout is shared by two compilers");

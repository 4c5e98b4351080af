/* kernel_internal.h: what kernel.c and attach.c share. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "observe/kernel.h"
#include "observe/pins.h"

enum {
    LIBRARIES_MAX = 64,
    LIBRARIES_OWNER_MAX = 8,                 /* files of one user, not root */
    LIBRARIES_USERS_MAX = LIBRARIES_MAX / 2, /* files of all users but root */
    LIBRARIES_EVICTED_MAX = 8,               /* at a time: removing probes takes a while */
    LIBRARIES_IDLE_ROUNDS = 2,
    REFUSED_MAX = 256,
};

/* A file without anything to probe, so that it is not looked at again. */
struct refused {
    dev_t device;
    ino_t inode;
    struct timespec changed;
};

struct bpf_object;
struct bpf_program;
struct ring_buffer;

/* A library file that has probes. */
struct attached {
    dev_t device;
    ino_t inode;
    int enter, leave; /* links; -1: adopted, the pins keep them; a session has the first alone */
    int functions;
    uid_t owner;
    bool used;    /* by a process that runs */
    bool keep;    /* installed: probes stay while no process uses it */
    uint8_t idle; /* rounds of kernel_attached_age() in which no process used it */
};

/* What was read of a process's records and the kernel has not been told. */
struct share {
    uint32_t pid;
    struct wire_consumed bytes;
};

enum { SHARES_MAX = 64 };

struct kernel {
    char pins[PINS_PATH_MAX];
    int lock;
    struct bpf_object *object;
    struct bpf_program *enter, *leave, *session; /* the last one alone, or the others */
    bool has_session;
    struct ring_buffer *ring, *stack_ring;
    struct wire_settings setting; /* as the kernel has them */
    struct wire_ranges subordinates;
    int settings, processes, contexts, blocks, known, consumed, python, machine, faults, users,
        graphs; /* maps */
    struct elf_parser *parser;
    struct attached attached[LIBRARIES_MAX];
    size_t n_attached;
    struct refused refused[REFUSED_MAX]; /* in turn */
    size_t n_refused;
    uint64_t attach_ns; /* that attaching took, all libraries together */
    struct wire_context_key
        last; /* the context that kernel_block_stale() looked up last, in this walk */
    uint32_t last_generation;
    uint32_t variants; /* which one makes room next for a stack with many */

    /* Of one kernel_read(): */
    void (*each)(void *context, const void *record, size_t bytes);
    void *each_context;
    size_t left, done;
    struct share shares[SHARES_MAX];
    size_t n_shares;
};

/* Find the links that an earlier observer pinned. */
void attach_adopt(struct kernel *kernel);
void attach_release(struct kernel *kernel);

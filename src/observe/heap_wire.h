/* heap_wire.h: what the probes on a process's allocator and the observer share.
 *
 * Both compilers read this file. Nothing of it outlives the observer: links and maps are not
 * pinned, so that the kernel removes the probes however the observer ends. */
#pragma once

#ifdef __bpf__
#include "bpf/kernel.h"
#else
#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#endif

#include "observe/python_capture.h"

enum {
    HEAP_NODES_MAX = 1 << 16,  /* callers; number 0 stands for those that do not fit */
    HEAP_LEVELS_MAX = 8,       /* callers that one call is followed through */
    HEAP_BLOCKS_MAX = 1 << 20, /* live blocks, unless the observer says otherwise */
    HEAP_PAGE = 4096,
    HEAP_STACK_PAGES = 4, /* of a sampled stack that are copied */
    HEAP_STACK_BYTES = (HEAP_STACK_PAGES + 1) * HEAP_PAGE,
    HEAP_RING_BYTES = 1 << 22,
    HEAP_FUNCTIONS_MAX = 160, /* of one allocator, with the places where operator new returns */
    HEAP_EXTRA_MAX = 32,      /* blocks that one may stand for, by its age in a window */
};

/* The cookie of a probe: what the function does, and the registers (by the processor's numbers) that its arguments are in. */
#define HEAP_COOKIE(role, first, second, third) \
    ((uint32_t)(role) | (uint32_t)(first) << 8 | (uint32_t)(second) << 12 | (uint32_t)(third) << 16)
#define HEAP_COOKIE_ROLE(cookie)  ((cookie)&0xff)
#define HEAP_COOKIE_AT(cookie, n) ((cookie) >> (8 + 4 * (n)) & 15)
#define HEAP_COOKIE_USUAL         HEAP_COOKIE(0, 7, 6, 2) /* rdi, rsi, rdx: as they come */

/* The cookie of a place from which operator new returns (code_returns.h). */
#define HEAP_RETURN_COOKIE(result, condition, conditional, taken, up, slow)               \
    (HEAP_NEW_RETURN | (uint32_t)(result) << 8 | (uint32_t)(condition) << 12 |            \
     (uint32_t)(conditional) << 16 | (uint32_t)(taken) << 17 | (uint32_t)(up) / 8 << 18 | \
     (uint32_t)(slow) << 31)
#define HEAP_RETURN_UP(cookie)        (((cookie) >> 18 & 255) * 8)
#define HEAP_RETURN_CONDITION(cookie) ((cookie) >> 12 & 15)
#define HEAP_RETURN_CONDITIONAL       (1u << 16)
#define HEAP_RETURN_TAKEN             (1u << 17)
#define HEAP_RETURN_SLOW              (1u << 31)

/* What a probed function does. */
enum heap_role {
    HEAP_NONE = 0,
    HEAP_MALLOC = 1,         /* (size) returns a block */
    HEAP_CALLOC = 2,         /* (count, size) returns a block */
    HEAP_REALLOC = 3,        /* (block, size) returns a block */
    HEAP_ALIGNED = 4,        /* (alignment, size) returns a block */
    HEAP_POSIX_MEMALIGN = 5, /* (&block, alignment, size) returns 0 */
    HEAP_FREE = 6,           /* (block) */
    HEAP_REALLOCARRAY = 7,   /* (block, count, size) returns a block */
    HEAP_NEW = 8,            /* (size) returns a block, or throws: has no return probe */
    HEAP_NEW_RETURN = 9,     /* a place from which it returns */
};

/* A block is known by its address. `time` is in units of 2^22 ns (4 ms) of CLOCK_MONOTONIC. */
enum { HEAP_TIME_SHIFT = 22, HEAP_SIZE_BITS = 48 };
#define HEAP_SIZE_MASK ((1ull << HEAP_SIZE_BITS) - 1)
#define HEAP_SAMPLED   (1ull << HEAP_SIZE_BITS) /* its stack was told */

/* It was allocated while probes were in for part of the time, and stands for other blocks that were not seen. */
#define HEAP_WINDOWED (1ull << (HEAP_SIZE_BITS + 1))

struct heap_block {
    uint64_t size_flags;
    uint32_t node, time;
};

/* A caller: a return address, and the callee's caller that led to it. Most calls end at the first
 * one. Where the observer knows that this one only forwards (operator new, zmalloc), it stores in
 * `hop` where the next return address lies, in bytes from the stack pointer after the return. */
struct heap_node {
    uint64_t pc;
    uint32_t parent; /* the node further in; 0: called the allocator itself */
    uint32_t hop;    /* 0: ends here; the observer writes it */
    uint32_t mean;   /* bytes between two stacks; 0: as usual; the observer writes it */
    uint32_t spare;
    uint64_t freed_bytes, freed_blocks;
    uint64_t alloc_bytes, alloc_blocks;
    /* While probes are in for part of the time (heap_estimate.c): blocks from before the window that were freed, which are not among the
     * freed ones above; and what those of the same window stand for beyond themselves, blocks in 256ths. */
    uint64_t old_bytes, old_blocks;
    uint64_t extra_bytes, extra_blocks;
    uint64_t spare_end[5];
};

struct heap_key {
    uint64_t pc;
    uint32_t parent, spare;
};

/* One for all, in memory that kernel and observer share. Counters only grow. */
struct heap_state {
    uint32_t pid;   /* the process, in the initial namespace */
    uint32_t on;    /* the observer writes it: 0 counts nothing, for links that come and go */
    uint32_t ended; /* the process goes on with another program */
    uint32_t mean;  /* bytes between two stacks; 0: none are taken */
    uint32_t has_python;
    uint32_t n_nodes; /* that were given out; may be more than there are */
    /* Probes are in for part of the time (heap_budget.c): when this part began and how long it is, in units of a block's time. The
     * observer writes them. */
    uint32_t windowed, window_start, window_units;
    uint32_t has_news;      /* operator new and delete are probed: a delete may call free() */
    uint64_t unknown_frees; /* blocks that are older than the attach, or were not kept */
    uint64_t replaced;      /* an address was given out again, and no free had been seen */
    uint64_t lost_blocks, lost_bytes; /* the table was full: in no total */
    uint64_t lost_nodes;              /* callers that did not fit; their blocks count at node 0 */
    uint64_t lost_samples;            /* stacks or their ends: the ring was full */
    uint64_t failed;                  /* calls that returned no block */
    uint64_t unseen_news;             /* calls of operator new that threw, or returned unseen */
    uint64_t slow_calls;              /* probes that were single-stepped */
    struct python_kernel_facts python;
};

/* ---- the ring ---- */

enum heap_record {
    HEAP_RECORD_STACK = 1, /* struct heap_stack */
    HEAP_RECORD_GONE = 2,  /* struct heap_gone: a sampled block was freed */
    HEAP_RECORD_EXEC = 3,  /* struct heap_gone */
    HEAP_RECORD_FORK = 4,  /* struct heap_gone: `address` is the PID of the new process */
};

struct heap_gone {
    uint32_t record, tid;
    uint64_t address;
};

struct heap_stack {
    uint32_t record, tid;
    uint64_t address, size;
    uint64_t time_ns; /* CLOCK_MONOTONIC */
    uint32_t node, mean;
    uint64_t ip, sp, bp, bx, r12, r13, r14, r15; /* in the caller, after the return */
    uint32_t n_bytes, spare;
    struct python_capture python;
    uint8_t bytes[HEAP_STACK_BYTES]; /* from sp on */
};

#ifndef __bpf__
static_assert(sizeof(struct heap_block) == 16, "two compilers");
static_assert(sizeof(struct heap_node) == 128, "two compilers");
static_assert(sizeof(struct heap_key) == 16, "two compilers");
#endif

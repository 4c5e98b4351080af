/* wire.h: what the probes in the kernel and the observer share.
 *
 * Both compilers read this file, so it has fixed-width fields only. Maps outlive the observer
 * that made them (they are pinned in bpffs): change WIRE_LAYOUT whenever a layout or the meaning
 * of a field changes, and older pins are cleared instead of being read wrongly. */
#pragma once

#ifdef __bpf__
#include "bpf/kernel.h"
#else
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#endif

#include "observe/python_capture.h"

enum {
    WIRE_LAYOUT = 8,
    WIRE_FUNCTIONS_MAX = 512, /* of all probe tables together; number 0 stays empty */
    WIRE_ARGUMENTS_MAX = 9,
    WIRE_CALLS_MAX = 4,        /* probed calls inside each other, of one thread */
    WIRE_PROCESSES_MAX = 4096, /* that are traced at a time */
    WIRE_CONTEXTS_MAX = 16384,
    WIRE_CONTEXTS_QUOTA = 64,  /* of one process; memory of further ones counts without a context */
    WIRE_CONTEXT_STACK = 8,    /* contexts that one thread has pushed */
    WIRE_GRAPHS_MAX = 1 << 15, /* captures, graphs with memory, executable ones: all processes */
    WIRE_GRAPHS_QUOTA = 4096,  /* of one process; memory of further ones is counted as lost */
    WIRE_BLOCKS_MAX = 1 << 20, /* live blocks of all processes */
    WIRE_BLOCKS_QUOTA = 1 << 18, /* live blocks of one process, unless settings say otherwise */
    WIRE_USER_QUOTA = 1 << 19,   /* live blocks of all processes of one user but root, likewise */
    WIRE_USERS_MAX = 4096,       /* users with traced processes */
    WIRE_RANGES_MAX = 128,    /* of subordinate uids; those in further ones stand for themselves */
    WIRE_KNOWN_MAX = 1 << 16, /* stacks that the kernel recognises */
    WIRE_KNOWN_WORDS = 12,    /* return addresses that must match */
    WIRE_KNOWN_VARIANTS = 4,  /* stacks with the same key that differ in these words */
    WIRE_UNCHECKED_BYTES = 1 << 22, /* larger copies are always checked at their return */
    WIRE_UNCHECKED_MAX = 32,        /* copies of one thread in a row that are not checked */
    WIRE_PROVED_RANGES = 8,         /* ranges that a thread is known to copy without error */
    WIRE_RING_CREDIT =
        2048, /* bytes of the ring that a process may take without a look at the rest */
    /* Small, so that it stays in a processor's cache: a record in memory that it has not touched
     * lately costs the program half a microsecond more. Copied stacks have a ring of their own. */
    WIRE_RING_BYTES = 1 << 20,
    WIRE_STACK_RING_BYTES = 1 << 24,
    WIRE_STACK_QUOTA = 1 << 22, /* bytes of one process that wait in it */
    WIRE_RING_QUOTA =
        1 << 19, /* bytes of one process that wait in the first, unless settings say otherwise */
    WIRE_PAGE = 4096,
    WIRE_STACK_PAGES = 4,             /* of a stack that are copied */
    WIRE_BATCH_MAX = 64,              /* copies of one batched call that are told one by one */
    WIRE_BATCH_COUNTED_MAX = 1 << 16, /* and that are counted */
    WIRE_MAPPINGS_MAX = 4096,         /* that one call unmaps */
    WIRE_GRANULE_SHIFT = 21,          /* page faults are counted by 2 MiB of address space */
    WIRE_GRANULES_MAX = 1 << 16,
    WIRE_SYSTEM_BYTES_MIN = 1 << 20, /* mappings of host memory that are told */
    WIRE_LIBRARIES_MAX = 4,
    WIRE_LIBRARY_NAME = 16,
};

/* What a probed function does, and so what its arguments mean. */
enum wire_op {
    WIRE_OP_NONE = 0,
    WIRE_OP_ALLOC = 1, /* *address gets a block of `size` bytes */
    WIRE_OP_ALLOC_PITCH =
        2, /* *address gets a block of *source (the pitch) times `extra` (the height) bytes */
    WIRE_OP_ALLOC_ARRAY = 3, /* *address gets an array described at `size` */
    WIRE_OP_FREE = 4,        /* the block at `address` goes */
    WIRE_OP_REGISTER = 5,    /* [address, +size) is pinned in place */
    WIRE_OP_UNREGISTER = 6,
    WIRE_OP_COPY = 7,          /* `size` bytes from `source` to `address` */
    WIRE_OP_COPY_2D = 8,       /* as the CUDA_MEMCPY2D at `address` says */
    WIRE_OP_COPY_3D = 9,       /* as the CUDA_MEMCPY3D at `address` says */
    WIRE_OP_COPY_BATCH = 10,   /* `extra` copies: arrays of destinations, sources and sizes */
    WIRE_OP_SET = 11,          /* `size` elements of `unit` bytes, `extra` rows of them */
    WIRE_OP_PREFETCH = 12,     /* [address, +size) is asked to move */
    WIRE_OP_CONTEXT_SET = 13,  /* `address` is the thread's context now */
    WIRE_OP_CONTEXT_POP = 14,  /* the thread's context is the one before again */
    WIRE_OP_CONTEXT_MAKE = 15, /* *address is a context of device `extra` */
    WIRE_OP_CONTEXT_END = 16,  /* context `address` and all its memory go */
    WIRE_OP_DEVICE_RESET = 17, /* the contexts of device `extra` and all their memory go */
    WIRE_OP_HANDLE_MAKE = 18,  /* *address is a handle of `size` bytes of physical memory */
    WIRE_OP_HANDLE_FREE = 19,  /* handle `address` goes; its memory when nothing maps it any more */
    WIRE_OP_HANDLE_KEEP =
        20,             /* *address is one more reference to the handle of the memory at `source` */
    WIRE_OP_MAP = 21,   /* [address, +size) is memory of handle `source` now */
    WIRE_OP_UNMAP = 22, /* all mappings in [address, +size) go */
    WIRE_OP_DEVICE_UUID = 23,     /* *address is the UUID of device `extra` */
    WIRE_OP_NOTE = 24,            /* nothing but that the process is there */
    WIRE_OP_PRIMARY_RELEASE = 25, /* a reference to the primary context of device `extra` goes */
    WIRE_OP_CONTEXT_PUSH = 26,    /* `address` is the thread's context until it is popped */
    WIRE_OP_COPY_3D_BATCH = 27, /* `extra` copies as the CUDA_MEMCPY3D_BATCH_OPs at `address` say */
    WIRE_OP_CAPTURE_BEGIN = 28, /* work submitted to `stream` is recorded, not done, from now on; in
                                   graph `source`, or a new one if there is no such argument */
    WIRE_OP_CAPTURE_END = 29,   /* `stream` does its work again; *address is the graph */
    WIRE_OP_GRAPH_NODE = 30,    /* a node is added to graph `source`: enum wire_node in `unit` says
                                   what lies at `address` */
    WIRE_OP_GRAPH_EXEC = 31,    /* *address is an executable graph made from graph `source` */
    WIRE_OP_GRAPH_END = 32,     /* graph `address` goes; an executable one with `unit` 1 */
    WIRE_OP_GREEN_MAKE = 33,    /* *address is a green context of device `extra` */
    WIRE_OP_GREEN_CONTEXT = 34, /* *address is a context that stands for green context `source` */
    WIRE_OP_GREEN_END = 35,     /* green context `address` goes */
    WIRE_OP_PREFETCH_BATCH = 36, /* `extra` ranges are asked to move: arrays of starts and sizes */
    WIRE_OPS = 37,
};

enum wire_function_flags {
    WIRE_FUNCTION_NARROW = 1u << 0, /* sizes and addresses have 32 bits: forms of before CUDA 3.2 */
    WIRE_FUNCTION_ASYNC = 1u << 1,
    WIRE_FUNCTION_POOL = 1u << 2,
    WIRE_FUNCTION_SHARED = 1u << 3,      /* memory that another process has allocated */
    WIRE_FUNCTION_SITE = 1u << 4,        /* tell the call site */
    WIRE_FUNCTION_ARRAY = 1u << 5,       /* addresses are handles of arrays */
    WIRE_FUNCTION_NARROW_SIZE = 1u << 6, /* the size has 32 bits, addresses have all */
};

/* What describes a node of a graph. */
enum wire_node {
    WIRE_NODE_ALLOC = 0, /* CUDA_MEM_ALLOC_NODE_PARAMS */
    WIRE_NODE_COPY = 1,  /* CUDA_MEMCPY3D */
    WIRE_NODE_ANY = 2,   /* CUgraphNodeParams */
};

/* The row of a probe table, as the kernel needs it. Arguments have numbers from 1, so that
 * 0 is none; from 7 on they lie on the stack. */
struct wire_function {
    uint8_t op;                           /* enum wire_op */
    uint8_t space;                        /* enum memoir_space */
    uint8_t direction;                    /* enum trace_direction */
    uint8_t flags;                        /* enum wire_function_flags */
    uint8_t address, size, source, extra; /* numbers of arguments */
    uint32_t unit;                        /* bytes of an element */
    uint8_t stream; /* number of the argument that says which stream does the work */
    uint8_t spare[3];
};

/* Does its return matter? A call that only says where a thread is, or sets bytes, is taken to
 * succeed: that spares it one of two interruptions. */
static inline bool wire_op_returns(uint8_t op)
{
    return op != WIRE_OP_SET && op != WIRE_OP_PREFETCH && op != WIRE_OP_PREFETCH_BATCH &&
           op != WIRE_OP_CONTEXT_SET && op != WIRE_OP_CONTEXT_POP && op != WIRE_OP_CONTEXT_PUSH &&
           op != WIRE_OP_NOTE && op != WIRE_OP_GRAPH_END;
}

/* Names of blocks: addresses, and handles, which may have the same values. */
enum wire_class {
    WIRE_MEMORY = 0,
    WIRE_ARRAY = 1,
    WIRE_HANDLE = 2,
    WIRE_MAPPING = 3,
    WIRE_REGISTERED = 4,
    WIRE_SYSTEM = 5, /* a mapping that the operating system made; only in events */
    WIRE_GRAPH = 6,  /* memory of a node of a graph: `context` of the block is its group */
};

/* Blocks of earlier processes with the same PID have another generation and are never found. */
struct wire_key {
    uint32_t pid;
    uint32_t class_generation; /* enum wire_class in the lowest 8 bits */
    uint64_t address;
};

struct wire_block {
    uint64_t size;
    uint64_t time_ns; /* CLOCK_MONOTONIC */
    uint64_t call;
    uint64_t context; /* of a mapping: its handle; of memory of a graph: its group */
    uint32_t context_generation;
    uint32_t site; /* of a stack that the kernel recognised; 0: see the ring */
    uint16_t function;
    uint8_t space;
    uint8_t flags;       /* enum wire_function_flags of its function */
    uint32_t references; /* of a handle: itself and mappings */
};

struct wire_counters {
    uint64_t freed_bytes, freed_blocks;
    uint64_t alloc_bytes, alloc_blocks;
};

/* By enum memoir_space; registered bytes, which are host memory that counts elsewhere, in the
 * last one. */
enum { WIRE_SPACES = 32, WIRE_SPACE_REGISTERED = WIRE_SPACES - 1 };

struct wire_context_key {
    uint32_t pid, generation; /* of the process */
    uint64_t context;         /* 0: not known */
};

enum wire_context_flags {
    WIRE_CONTEXT_PRIMARY = 1u << 0,
    /* A green context, or the handle that stands for it: its memory is the primary context's and
     * goes with that. */
    WIRE_CONTEXT_GREEN = 1u << 1,
};

/* Totals are those of all contexts of a process. */
struct wire_context {
    int32_t device;      /* the process's own number; -1: not known */
    uint32_t generation; /* grows when all its memory goes at once */
    uint32_t retained;   /* references to the primary context of the device that it stands for */
    uint32_t flags;      /* enum wire_context_flags */
    struct wire_counters space[WIRE_SPACES];
};

/* ---- graphs ----
 *
 * Memory of a graph has an address from the moment when its node is added; the driver gives it
 * bytes when the graph is launched, which is not observed. So it is counted as recorded, never
 * as live. A *group* is the memory of one graph and of the executable graphs made from it: it
 * goes with the last of them. */
enum wire_graph_kind {
    WIRE_GRAPH_GROUP = 0,   /* by number */
    WIRE_GRAPH_HANDLE = 1,  /* a graph */
    WIRE_GRAPH_EXEC = 2,    /* an executable graph */
    WIRE_GRAPH_CAPTURE = 3, /* a stream that records */
    WIRE_GRAPH_THREAD = 4,  /* a thread that began a recording */
};

struct wire_graph_key {
    uint32_t pid, generation; /* of the process */
    uint32_t kind;            /* enum wire_graph_kind */
    uint32_t tid;             /* of a default stream, which each thread has for itself; else 0 */
    uint64_t handle;          /* or number */
};

struct wire_graph {
    uint64_t group; /* number; 0: none yet */
    uint64_t bytes; /* of a group */
    uint32_t blocks;
    uint32_t references; /* of a group: handles; of a thread: its recordings */
    uint32_t tid;        /* of a recording: the thread that began it */
    uint32_t spare;
};

/* Set in numbers of groups, so that none is the handle of a context. */
#define WIRE_GROUP_BIT (1ull << 63)

/* What a process has put into a ring. */
struct wire_share {
    uint64_t produced; /* bytes */
    uint64_t consumed; /* bytes that the observer had read of them at some time */
    uint64_t
        amended; /* to be added to what it says: an observer that was killed could not tell all */
};

/* What the observer has read of a process, in bytes. */
struct wire_consumed {
    uint64_t events, stacks;
};

struct wire_flow {
    uint64_t copies, bytes;
};

struct wire_process {
    /* What every copy needs comes first, in two lines of a cache: a program that comes from the
     * driver has evicted most of it. */
    uint32_t
        generation; /* another for each exec and each process that gets this PID; later ones are larger, modulo 2^32 */
    uint32_t epoch; /* grows when memory goes or a call fails: proved ranges are void then */
    uint64_t calls;
    uint64_t default_context; /* of threads that have set none */
    uint64_t credit;          /* bytes of the ring that are granted and not used */
    struct wire_share events; /* of the ring of events */
    uint32_t captures;        /* streams that record at this moment */
    uint32_t off;             /* tracing of it is switched off: probes of it do nothing */
    struct wire_flow flow[5]; /* by enum trace_direction */
    struct wire_share stacks; /* of the other ring */

    uint64_t start_ns; /* since boot: tells processes with the same PID apart */
    uint32_t uid;      /* 0 for a set-uid process: only root may see what it does */
    uint32_t payer;    /* the user whose quota its blocks are counted in; 0: none, it is root's */
    uint32_t n_contexts;
    uint32_t n_graphs;   /* entries in the table of graphs */
    uint32_t from_start; /* its first call into the driver was seen */
    uint32_t reserved;
    uint64_t live_blocks;
    uint64_t
        unchecked; /* copies that were counted at their entry: their result was not looked at */
    uint64_t
        doubtful; /* of those, the ones between a checked copy and the next one, which failed */
    uint64_t graph_blocks, graph_bytes; /* memory that graphs recorded and that they have still */
    struct wire_flow graph_flow;        /* copies that were recorded, and are done by launches */
    /* What was not kept, and why: */
    uint64_t lost_events;             /* the ring or the process's share of it was full */
    uint64_t lost_stacks;             /* of those, call sites only */
    uint64_t lost_blocks, lost_bytes; /* the table or the process's quota was full: in no total */
    uint64_t unknown_frees;           /* allocated before tracing began, or not kept */
    uint64_t replaced;   /* an address was given out again, and no free had been seen */
    uint64_t unreadable; /* arguments that could not be read */
    uint64_t unpaired;   /* calls whose entry or return was not seen */
    uint64_t faults;     /* page faults */
};

/* A generation that no earlier process with the same PID had: `start_ns` in ms since boot. */
static inline uint32_t wire_generation(uint64_t start_ns)
{
    return (uint32_t)(start_ns >> 20) | 1;
}

enum { WIRE_START_SLACK_NS = 20000000 }; /* start times of /proc have ticks of 10 ms */

/* By processors: added up by readers. */
struct wire_machine {
    uint64_t lost_processes; /* there was no room for another process */
    uint64_t unpaired;
};

/* Subordinate uids and the users that answer for them: see accountable_ranges(). */
struct wire_ranges {
    uint32_t n;
    struct {
        uint32_t first, last, owner;
    } range[WIRE_RANGES_MAX];
};

struct wire_settings {
    uint32_t layout;       /* WIRE_LAYOUT */
    uint32_t epoch;        /* of the observer: sites that an earlier one numbered have another */
    uint32_t all;          /* trace every process, not only those in the table */
    uint32_t blocks_quota; /* live blocks of one process */
    uint32_t user_quota;   /* live blocks of one user */
    uint32_t ring_quota;   /* bytes of one process that wait in the ring */
    uint32_t ring_bytes;   /* its size */
    /* The observer sleeps: wake it for the next record. While there are records it looks by
     * itself every few milliseconds, since waking it costs the traced program 2 to 4 us. */
    uint32_t wake;
    uint32_t wake_bytes; /* wake it also when so much waits */
    uint32_t pythons;    /* how often the observer changed the map python_facts */
    char libraries[WIRE_LIBRARIES_MAX]
                  [WIRE_LIBRARY_NAME]; /* how names of files begin that there are probes for */
};

/* ---- stacks ---- */

struct wire_known_key {
    uint32_t pid, generation;
    uint16_t function;
    uint16_t variant;
    uint32_t epoch; /* of the observer that added it */
    uint64_t caller, sp;
    uint64_t python; /* hash of the Python frames; 0: none */
};

/* A site's number in the kernel has the epoch of the observer that gave it, so that the next
 * observer does not take it for one of its own. 0 is none. */
enum { WIRE_SITE_EPOCH_SHIFT = 24, WIRE_SITE_NUMBER_MASK = (1 << WIRE_SITE_EPOCH_SHIFT) - 1 };

struct wire_known {
    uint32_t site; /* with its epoch */
    uint32_t n;
    uint64_t value[WIRE_KNOWN_WORDS];
    uint32_t offset[WIRE_KNOWN_WORDS]; /* from the stack pointer at entry */
};

/* ---- the ring ---- */

enum wire_record {
    WIRE_RECORD_EVENT = 1, /* struct wire_event */
    WIRE_RECORD_STACK = 2, /* struct wire_stack: of the call that it names, told before its event */
    WIRE_RECORD_MORE = 3,  /* struct wire_more: the stack goes on */
    WIRE_RECORD_LIBRARY =
        4, /* struct wire_event: the process mapped a library that there are probes for */
    WIRE_RECORD_COPY = 5, /* struct wire_copy */
};

struct wire_event {
    uint32_t record; /* enum wire_record */
    uint32_t pid, tid;
    uint32_t generation; /* of the process */
    uint64_t time_ns;
    uint64_t address, size, source;
    uint64_t call, context;
    uint32_t site;
    uint16_t kind; /* enum trace_kind */
    uint16_t function;
    int32_t result;
    int32_t device;
    uint8_t space, direction, class;
    uint8_t flags;     /* enum wire_event_flags; of TRACE_SYSTEM: enum trace_system */
    uint8_t has_stack; /* a record WIRE_RECORD_STACK with this call came before */
    uint8_t async;
    uint16_t spare;
    uint8_t uuid[16];
};

/* Most records are of copies. */
struct wire_copy {
    uint32_t record; /* WIRE_RECORD_COPY */
    uint32_t pid, tid, generation;
    uint64_t time_ns;
    uint64_t address, size, source;
    uint64_t call, context;
    uint32_t site;
    uint16_t function;
    uint8_t direction;
    uint8_t async : 1, has_stack : 1;
};

enum wire_event_flags {
    WIRE_EVENT_UNKNOWN = 1u << 0, /* the kernel does not know the block */
    WIRE_EVENT_UUID = 1u << 1,
    WIRE_EVENT_EXEC = 1u << 2,   /* with TRACE_EXIT: the process goes on with another program */
    WIRE_EVENT_UNKEPT = 1u << 3, /* an allocation that is in no total: the quota was full */
};

enum { WIRE_REGISTERS = 9 };

struct wire_stack {
    uint32_t record, pid, tid, generation;
    uint64_t call;
    uint64_t caller; /* return address of the probed function */
    uint64_t sp;     /* at its entry: where `caller` lies */
    uint64_t ip, bp, bx, r12, r13, r14, r15;
    uint16_t function, spare;
    uint32_t n_bytes; /* from sp on; more follow in other records */
    struct python_capture python;
    uint8_t bytes[WIRE_PAGE];
};

struct wire_more {
    uint32_t record, pid, tid, n_bytes;
    uint64_t call;
    uint64_t address; /* of the first byte */
    uint8_t bytes[WIRE_PAGE];
};

/* ---- page faults ---- */

struct wire_granule_key {
    uint32_t pid, generation;
    uint64_t granule; /* address >> WIRE_GRANULE_SHIFT */
};

#ifndef __bpf__
static_assert(sizeof(struct wire_function) == 16, "two compilers");
static_assert(sizeof(struct wire_key) == 16, "two compilers");
static_assert(sizeof(struct wire_block) == 48, "two compilers");
static_assert(sizeof(struct wire_event) == 104, "two compilers");
static_assert(sizeof(struct wire_copy) == 72, "two compilers");
static_assert(sizeof(struct wire_known_key) == 40, "two compilers");
static_assert(sizeof(struct wire_graph_key) == 24, "two compilers");
static_assert(sizeof(struct wire_graph) == 32, "two compilers");
static_assert(sizeof(struct wire_known) == 152, "two compilers");
static_assert(offsetof(struct wire_process, flow) == 64, "one line of a cache");
#endif

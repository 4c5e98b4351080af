/* event.h: one thing that happened to memory of a traced process.
 *
 * The observer makes these from what the probes tell; libmemoir-tracer, histories and dumps consume them; tests inject
 * them. An event is a value: it owns nothing. Events of one process arrive in an order in which each address has one owner
 * at a time: a free is told when the call begins, an allocation when it has returned. */
#pragma once

#ifndef __bpf__ /* the probes use the names of kinds and directions, and have the types already */
#include <assert.h>
#include <stdint.h>
#endif

enum trace_kind {
    TRACE_NONE = 0,
    TRACE_ALLOC = 1,    /* [address, +size) became live. `space` says what memory it is */
    TRACE_FREE = 2,     /* the block that begins at `address` is gone */
    TRACE_RESTORE = 3,  /* a free that was told turned out to have failed: the block lives on */
    TRACE_FAILED = 4,   /* an allocation of `size` bytes failed with `result` */
    TRACE_COPY = 5,     /* `size` bytes were copied from `source` to `address` */
    TRACE_SET = 6,      /* [address, +size) was set to a value */
    TRACE_PREFETCH = 7, /* managed memory was asked to move: `direction` says where to */
    TRACE_RESET = 8,    /* all blocks of `context` are gone: destroyed, or its device was reset */
    TRACE_SYSTEM =
        9, /* the operating system did something: enum trace_system in `detail`, `size` times */
    TRACE_GAP = 10,  /* `size` events were lost before this one */
    TRACE_EXIT = 11, /* the process ended; all its blocks are gone */
    TRACE_FOUND =
        12, /* as TRACE_ALLOC, for a block that was live before tracing began or after a gap */
};

enum trace_direction {
    TRACE_DIRECTION_UNKNOWN = 0,
    TRACE_TO_DEVICE = 1,
    TRACE_FROM_DEVICE = 2,
    TRACE_ON_DEVICE = 3, /* between devices, too */
    TRACE_ON_HOST = 4,
};

/* What the operating system did to a range of host memory, or to the process as a whole (address 0). */
enum trace_system {
    TRACE_SYSTEM_NONE = 0,
    TRACE_SYSTEM_FAULT = 1,   /* page faults */
    TRACE_SYSTEM_RECLAIM = 2, /* pages reclaimed or swapped out */
    TRACE_SYSTEM_MIGRATE = 3, /* pages moved to another node or compacted */
    TRACE_SYSTEM_HUGE = 4,    /* became a huge page */
    TRACE_SYSTEM_SPLIT = 5,   /* a huge page was split */
    TRACE_SYSTEM_ADVISE = 6,  /* madvise() */
    TRACE_SYSTEM_LOCK = 7,    /* mlock() */
    TRACE_SYSTEM_UNLOCK = 8,  /* munlock() */
    TRACE_SYSTEM_OOM = 9,     /* the OOM killer chose the process */
    TRACE_SYSTEM_KINDS = 10,
};

enum trace_flags {
    TRACE_FLAG_ASYNC = 1u << 0,    /* the call returned before the work was done */
    TRACE_FLAG_PAGEABLE = 1u << 1, /* the host side of a copy was neither pinned nor registered */
    TRACE_FLAG_SHARED = 1u << 2, /* memory of another process (IPC, imported handles): in no sum */
    TRACE_FLAG_REGISTERED =
        1u << 3, /* host memory that was there before and is pinned in place: in no sum */
    TRACE_FLAG_POOL = 1u << 4, /* from a memory pool */
    TRACE_FLAG_VIRTUAL =
        1u << 5, /* address space mapped to physical memory that is counted by its handle */
    TRACE_FLAG_HANDLE = 1u << 6, /* `address` is a handle (cuMemCreate, arrays), not a place in the
                                    address space: only this exact value names the block */
    TRACE_FLAG_SYSTEM = 1u << 7, /* a mapping of host memory that the operating system told of: CUDA
                                    allocations may lie inside it, and copies belong to those first */
    TRACE_FLAG_GRAPH = 1u << 8,  /* memory of a node of a graph: it has bytes on the device when the
                                    graph was launched, which is not observed: in no sum */
};

/* CUDA_ERROR_OUT_OF_MEMORY, in `result` of TRACE_FAILED. Other drivers' values are translated to it. */
enum { TRACE_RESULT_OUT_OF_MEMORY = 2 };

struct trace_event {
    uint64_t time_ns; /* CLOCK_MONOTONIC */
    uint64_t address; /* of a copy: the destination; 0: none */
    uint64_t size;
    uint64_t source;  /* of a copy */
    uint64_t call;    /* number of the probed call in its process, from 1; 0: no call */
    uint64_t context; /* the driver's handle; 0: not known */
    int32_t pid, tid;
    uint32_t site; /* number of the call site, given by whoever feeds the history; 0: not known */
    uint16_t kind; /* enum trace_kind */
    uint16_t function; /* index into the probe table; 0: none */
    int32_t result;    /* what the call returned */
    int32_t device;    /* the process's own number of the device; -1: not known */
    uint32_t flags;    /* enum trace_flags */
    uint8_t space;     /* enum memoir_space */
    uint8_t direction; /* enum trace_direction */
    uint8_t detail;    /* enum trace_system */
    uint8_t spare;
};
_Static_assert(sizeof(struct trace_event) == 80, "stored in dumps");

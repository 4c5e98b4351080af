/*
 * tracer.h: what happens to the memory of a CUDA program, while it runs and afterwards.
 *
 * Link with -lmemoir-tracer. A *tracer* observes one process, all processes, or the calling one, without changes to the
 * program: it starts memoir-observe, which needs the rights to load BPF programs, and reads events from it on a thread of its
 * own. A *trace* is the history of one process: each allocation with its call site and what was copied to and from it. A trace comes
 * from a tracer, which keeps it up to date, or from a dump.
 *
 *     struct memoir_tracer *tracer;
 *     struct memoir_tracer_options options = {.struct_size = sizeof(options), .target = MEMOIR_TRACER_PID, .pid = pid};
 *     if (memoir_tracer_new(&options, &tracer) == 0 && memoir_tracer_start(tracer) == 0) {
 *         struct memoir_trace *trace = memoir_tracer_trace(tracer, pid);
 *         struct memoir_trace_block hot[10];
 *         hot[0].struct_size = sizeof(hot[0]);
 *         ptrdiff_t n = memoir_trace_hot(trace, NULL, hot, 10);
 *         ...
 *     }
 *     memoir_tracer_free(tracer);
 *
 * Functions return 0 or more, or -errno. They may be called from any thread; only memoir_tracer_free() and memoir_trace_free() must be
 * the last. Reading never delays the tracer. Structs begin with struct_size, so that they can grow: set it before a call. In an
 * array only that of the first element counts, and it is the distance of the elements.
 *
 * doc/tracer.md has an example. The library starts threads and a process: it is for tools and for programs that look at themselves,
 * and is not loaded into strangers.
 */
#ifndef MEMOIR_TRACER_H
#define MEMOIR_TRACER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef MEMOIR_API
#define MEMOIR_API __attribute__((visibility("default")))
#endif

struct memoir_tracer;
struct memoir_trace;

/* ---- tracers ---- */

enum memoir_tracer_target {
    MEMOIR_TRACER_SELF = 1,     /* the calling process */
    MEMOIR_TRACER_PID = 2,      /* the process `pid` */
    MEMOIR_TRACER_ALL = 3,      /* every process that the caller may trace */
    MEMOIR_TRACER_INJECTED = 4, /* none: events come by memoir_tracer_inject(), for tests */
};

struct memoir_tracer_options {
    size_t struct_size;
    int target; /* enum memoir_tracer_target */
    int pid;
    const char
        *observe; /* path of memoir-observe; NULL: $MEMOIR_OBSERVE, else where it is installed */
    uint32_t ended_max;   /* ended allocations that are kept; 0: 65,536 */
    uint32_t moments_max; /* events that are kept of each allocation; 0: 32 */
    uint32_t ready_ms;    /* memoir_tracer_start() waits so long for the observer; 0: 10,000 */
};

/* Makes a tracer that does not run yet. -EINVAL, -ENOMEM. */
MEMOIR_API int memoir_tracer_new(const struct memoir_tracer_options *options,
                                 struct memoir_tracer **ret_tracer);
MEMOIR_API void memoir_tracer_free(
    struct memoir_tracer *tracer); /* stops it; its traces go with it; NULL is fine */

/* Begin or go on. Returns when the observer is ready (`ready_ms` at most). After a stop, traces go on with a gap; allocations that
 * ended meanwhile are in the state unknown. -ENOENT: there is no memoir-observe; -EPERM, -ESRCH, ...: what the observer says, with
 * memoir_tracer_status() saying more; -ETIMEDOUT; -EALREADY: it runs. */
MEMOIR_API int memoir_tracer_start(struct memoir_tracer *tracer);
/* End tracing; traces stay readable. -EALREADY: it does not run. */
MEMOIR_API int memoir_tracer_stop(struct memoir_tracer *tracer);
/* Stop if it runs, and start with new traces. Those that were given out before stay readable as they are until the tracer is freed. */
MEMOIR_API int memoir_tracer_restart(struct memoir_tracer *tracer);

enum memoir_tracer_state {
    MEMOIR_TRACER_IDLE = 0, /* never started */
    MEMOIR_TRACER_RUNNING = 1,
    MEMOIR_TRACER_STOPPED = 2, /* by memoir_tracer_stop() */
    MEMOIR_TRACER_ENDED = 3,   /* the traced process ended */
    MEMOIR_TRACER_FAILED = 4, /* the observer ended or cannot go on: `error` and `reason` say why */
};

struct memoir_tracer_status {
    size_t struct_size;
    int state; /* enum memoir_tracer_state */
    int error; /* errno value, or 0 */
    char reason[256];
    uint64_t events;    /* that came */
    uint64_t processes; /* that have a trace */
    int observer_pid;   /* 0: none */
};
MEMOIR_API int memoir_tracer_status(struct memoir_tracer *tracer,
                                    struct memoir_tracer_status *ret_status);

/* The PIDs of all processes that have a trace: how many there are, of which up to n are stored. */
MEMOIR_API size_t memoir_tracer_processes(struct memoir_tracer *tracer, int *pids, size_t n);

/* The trace of a process, or NULL. `pid` 0 is the only one, or the first. Borrowed until the tracer is freed. If a PID was used
 * again, the latest. */
MEMOIR_API struct memoir_trace *memoir_tracer_trace(struct memoir_tracer *tracer, int pid);

/* ---- events, for tests ---- */

enum memoir_trace_kind {
    MEMOIR_TRACE_ALLOC = 1,
    MEMOIR_TRACE_FREE = 2,
    MEMOIR_TRACE_RESTORE = 3,
    MEMOIR_TRACE_FAILED = 4,
    MEMOIR_TRACE_COPY = 5,
    MEMOIR_TRACE_SET = 6,
    MEMOIR_TRACE_PREFETCH = 7,
    MEMOIR_TRACE_RESET = 8,
    MEMOIR_TRACE_SYSTEM = 9,
    MEMOIR_TRACE_GAP = 10,
    MEMOIR_TRACE_EXIT = 11,
    MEMOIR_TRACE_FOUND = 12,
};

enum memoir_trace_direction {
    MEMOIR_TRACE_UNKNOWN = 0,
    MEMOIR_TRACE_TO_DEVICE = 1,
    MEMOIR_TRACE_FROM_DEVICE = 2,
    MEMOIR_TRACE_ON_DEVICE = 3,
    MEMOIR_TRACE_ON_HOST = 4,
    MEMOIR_TRACE_DIRECTIONS = 5,
};

enum memoir_trace_flags {
    MEMOIR_TRACE_ASYNC = 1 << 0,
    MEMOIR_TRACE_PAGEABLE = 1 << 1, /* the host side was not pinned */
};

struct memoir_trace_event {
    size_t struct_size;
    int pid, tid;
    int kind;      /* enum memoir_trace_kind */
    int direction; /* enum memoir_trace_direction */
    int space;     /* enum memoir_space of memoir.h */
    int device;    /* -1: not known */
    int result;    /* what the call returned; 2 of MEMOIR_TRACE_FAILED: out of memory */
    int detail; /* of MEMOIR_TRACE_SYSTEM: 1 faults, 2 reclaimed, 3 migrated, 4 huge, 5 split, 6 advised, 7 locked, 8 unlocked, 9 OOM */
    uint32_t site, flags;
    uint64_t time_ns; /* 0: now */
    uint64_t address, size, source, call, context;
};

/* Only for MEMOIR_TRACER_INJECTED: -EINVAL for others, and for events that make no sense. A process gets its trace by its first
 * event. */
MEMOIR_API int memoir_tracer_inject(struct memoir_tracer *tracer,
                                    const struct memoir_trace_event *events, size_t n);

/* ---- traces ---- */

enum memoir_trace_format { MEMOIR_TRACE_BINARY = 0, MEMOIR_TRACE_JSON = 1 };

/* Load a dump of either format. -EBADMSG: damaged or no dump; -EPROTONOSUPPORT: of a later version; -E2BIG; -ENOMEM; errors of open(). */
MEMOIR_API int memoir_trace_load(const char *path, struct memoir_trace **ret_trace);
MEMOIR_API int memoir_trace_load_bytes(const void *data, size_t len,
                                       struct memoir_trace **ret_trace);
/* Only what was loaded; NULL is fine. */
MEMOIR_API void memoir_trace_free(struct memoir_trace *trace);

/* Dump a trace as it is at one moment: to a file, which is there whole or not at all, or to a descriptor. */
MEMOIR_API int memoir_trace_save(struct memoir_trace *trace, int format, const char *path);
MEMOIR_API int memoir_trace_write(struct memoir_trace *trace, int format, int fd);

struct memoir_trace_flow {
    uint64_t copies, bytes;
};

struct memoir_trace_totals {
    size_t struct_size;
    int pid;
    uint32_t uid;
    uint64_t start_ticks;
    char name[64];
    uint64_t events, first_ns, last_ns;
    uint64_t live_blocks, live_bytes, peak_bytes;
    uint64_t device_bytes, device_peak_bytes;
    uint64_t allocated_blocks, allocated_bytes, freed_blocks, freed_bytes;
    struct memoir_trace_flow flow[MEMOIR_TRACE_DIRECTIONS];
    struct memoir_trace_flow pageable;
    uint64_t repeated, repeated_bytes;
    uint64_t failures, gaps, gap_events;
    uint64_t
        lost; /* events and allocations that were not kept one by one, or not understood; all causes */
    uint64_t exit_ns;      /* 0: not ended */
    uint64_t memory_bytes; /* that the trace takes */
};
MEMOIR_API int memoir_trace_totals(struct memoir_trace *trace,
                                   struct memoir_trace_totals *ret_totals);

enum memoir_trace_state {
    MEMOIR_TRACE_ALLOCATED = 1,
    MEMOIR_TRACE_FREED = 2,
    MEMOIR_TRACE_STATE_UNKNOWN = 3, /* known from copies only, or its end was not seen */
};

struct memoir_trace_block {
    size_t struct_size;
    uint64_t id; /* good while this trace is in memory */
    uint64_t address, size, context;
    uint64_t call; /* number of the call that allocated it */
    uint64_t start_ns, end_ns;
    uint32_t site, flags;
    int device, tid, space;
    int state; /* enum memoir_trace_state */
    int end;   /* 0 none, 1 freed, 2 reset, 3 exit, 4 not seen */
    int owner; /* 0 own, 1 shared, 2 registered, 3 virtual, 4 mapping, 5 known from copies only, 6 of a CUDA graph */
    int active; /* at most one block of an address is */
    int found;  /* was live before tracing began */
    struct memoir_trace_flow flow[MEMOIR_TRACE_DIRECTIONS];
    struct memoir_trace_flow read, written, pageable, sets, prefetches;
    uint64_t first_copy_ns, last_copy_ns;
    uint64_t repeated, repeated_bytes; /* copies of a range in a direction that was copied before */
    uint64_t system[10], system_early[10]; /* by `detail` of events; early: before the first copy */
    uint64_t moments, moments_kept;
};

/* The active block that contains the address: O(log n). -ENOENT. */
MEMOIR_API int memoir_trace_find(struct memoir_trace *trace, uint64_t address,
                                 struct memoir_trace_block *ret_block);
/* All blocks that began at an address, latest first: how many there are, of which up to n are stored. */
MEMOIR_API ptrdiff_t memoir_trace_at(struct memoir_trace *trace, uint64_t address,
                                     struct memoir_trace_block *blocks, size_t n);

struct memoir_trace_query {
    size_t struct_size;
    int by;     /* 0: by copies, 1: by bytes; of what crosses the bus */
    int active; /* only active ones */
    int ended;  /* only ended ones */
    int space;  /* 0: any */
    int device; /* looked at if `by_device` is set */
    int by_device;
    uint64_t min, max; /* threshold; max 0: none */
};

/* The k hottest or coldest blocks in O(k); the query may be NULL. How many were stored. */
MEMOIR_API ptrdiff_t memoir_trace_hot(struct memoir_trace *trace,
                                      const struct memoir_trace_query *query,
                                      struct memoir_trace_block *blocks, size_t k);
MEMOIR_API ptrdiff_t memoir_trace_cold(struct memoir_trace *trace,
                                       const struct memoir_trace_query *query,
                                       struct memoir_trace_block *blocks, size_t k);

/* All blocks, n at a time: begin with *cursor = 0, ask until 0 is returned. */
MEMOIR_API ptrdiff_t memoir_trace_blocks(struct memoir_trace *trace,
                                         const struct memoir_trace_query *query, uint64_t *cursor,
                                         struct memoir_trace_block *blocks, size_t n);

struct memoir_trace_moment {
    size_t struct_size;
    uint64_t time_ns, offset, size, peer, call;
    uint32_t site, flags;
    int tid, result;
    int kind, direction, detail;
};
/* The last events of a block in order of time. How many were stored, or -ENOENT. */
MEMOIR_API ptrdiff_t memoir_trace_moments(struct memoir_trace *trace, uint64_t id,
                                          struct memoir_trace_moment *moments, size_t n);

/* A call site with a space and a device; sums are exact, whatever was dropped. */
struct memoir_trace_holder {
    size_t struct_size;
    uint32_t site;
    int device, space, owner;
    uint64_t allocated_blocks, allocated_bytes, live_blocks, live_bytes, freed_blocks, freed_bytes,
        peak_bytes;
    uint64_t failures, failed_bytes;
    struct memoir_trace_flow flow[MEMOIR_TRACE_DIRECTIONS];
    struct memoir_trace_flow pageable;
    uint64_t repeated, repeated_bytes, never_copied_blocks;
};
MEMOIR_API ptrdiff_t memoir_trace_holders(struct memoir_trace *trace, uint64_t *cursor,
                                          struct memoir_trace_holder *holders, size_t n);

/* A frame of a call site. Strings are borrowed until the trace is freed. */
struct memoir_trace_frame {
    size_t struct_size;
    const char *module;          /* path; "" for scripts */
    uint64_t offset;             /* in the module */
    const char *function, *file; /* "" if not known */
    uint32_t line;
};
/* The frames of a site, innermost first: how many there are, of which up to n are stored; -ENOENT. */
MEMOIR_API ptrdiff_t memoir_trace_frames(struct memoir_trace *trace, uint32_t site,
                                         struct memoir_trace_frame *frames, size_t n);
/* A number that means the same call site in every run; 0: not known. */
MEMOIR_API uint64_t memoir_trace_site_key(struct memoir_trace *trace, uint32_t site);

enum memoir_trace_change {
    MEMOIR_TRACE_SAME = 0,
    MEMOIR_TRACE_NEW = 1,
    MEMOIR_TRACE_GONE = 2,
    MEMOIR_TRACE_GROWN = 3,
    MEMOIR_TRACE_SHRUNK = 4,
    MEMOIR_TRACE_BUSIER = 5,
    MEMOIR_TRACE_CALMER = 6,
};

struct memoir_trace_difference {
    size_t struct_size;
    uint64_t key;
    uint32_t before_site, after_site; /* in their traces; 0: none */
    int device, space, owner;
    int change;                               /* enum memoir_trace_change */
    int64_t live_bytes, copies, copied_bytes; /* after - before */
};
/* Holders by site key, largest change first: how many differ or are the same, of which up to n are stored. */
MEMOIR_API ptrdiff_t memoir_trace_diff(struct memoir_trace *before, struct memoir_trace *after,
                                       struct memoir_trace_difference *differences, size_t n);

#ifdef __cplusplus
}
#endif

#endif

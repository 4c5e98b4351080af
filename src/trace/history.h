/* history.h: what happened to the memory of one traced process.
 *
 * A history takes events (event.h) in the order of time and keeps, of every allocation, its range, owner, call site,
 * state, the last events, and exact sums of what was copied; of every holder (call site, space, device) exact sums;
 * gaps, failures, and a timeline. It is bounded: details are dropped by written rules, sums never, and each loss has a
 * counter in struct trace_totals.
 *
 * Names. A *block* is one allocation: several blocks may have had one address, of which at most one is active. A
 * *holder* is a call site with a space, a device and a class. A *moment* is one event of a block as it is kept.
 *
 * Threads. One thread at a time feeds (trace_history_event() and trace_history_events()); any number read. All state is behind one
 * lock that the feeder only *tries*: while a reader has it, events are queued (TRACE_QUEUE_MAX of them), and are applied by
 * the reader when it leaves, by the next reader before it looks, or by the feeder with its next event. So the feeder
 * never waits for a reader (unless the queue is full: `waits` counts that), every reader sees one consistent
 * moment that includes all events fed before its call, and the structures need no care for torn reads. Chosen over
 * sequence locks and epochs: hot lists, ranges and sums change together with nearly each event, a long reader would
 * retry for ever, and a dump would not be of one moment. The price is one uncontended lock for each call (15 ns), and none
 * to speak of for batches.
 *
 * Cost (bench/trace). An event: 0.1 to 0.4 us while the blocks in use fit into the caches, no system call, no allocation once a
 * block has its structures. Copies to random ones of 1 million blocks: 0.8 us (1.6 us to random places inside them), which is the
 * latency of memory. Feed batches: they hide half of it.
 * Reading: as said at each call; a reader's stay delays other readers, not the feeder.
 *
 * Finding a block. An address is looked up by its value in a hash of block starts (copies mostly name a start) and else in
 * sorted leaves of 128 starts below one sorted array of leaves: with 1 million blocks 21 comparisons, and an
 * insertion moves 1 KiB in a leaf, and once in 64 insertions an array of 100 KiB, which is 50 ns each. Ranges may
 * overlap only across layers; a copy belongs to the first layer that has its address: allocations of the driver, mappings
 * that the system told of, ranges that are known only from copies.
 *
 * Hot and cold. Two orders, by copies and by bytes, of active and of ended blocks: lists by value, exact below 32, above in steps
 * of 1/16 of an octave (976 lists and a bitmap of those in use). A copy moves a block only when it enters another step: a count
 * that grows to n moves 16 log2(n) times, so the hottest blocks cost least. The k hottest are read from the top list
 * down: O(k), and sorted exactly. Only where the last list holds more blocks than are looked at (4 k + 256) may a block
 * be missed, in favour of one whose value is less than 1/16 lower. A sorted tree was rejected: it is exact at the cut,
 * for two descents with cache misses per copy and order. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/event.h"
#include "trace/sites.h"

struct trace_history;

/* ---- what it is about, and its limits ---- */

enum { TRACE_NAME_MAX = 64, TRACE_DIRECTIONS = 5 };

struct trace_identity {
    int32_t pid;
    uint32_t uid;
    uint64_t
        start_ticks;   /* field 22 of /proc/PID/stat: with the PID, unique while the machine runs */
    uint64_t start_ns; /* CLOCK_MONOTONIC when the history began */
    uint64_t start_real_ns; /* CLOCK_REALTIME at that moment, so that times can be told to people */
    char name[TRACE_NAME_MAX]; /* of the program */
    char host[TRACE_NAME_MAX]; /* "" if not known */
};

/* 0 takes the default. */
struct trace_limits {
    uint32_t blocks;   /* active ones; default 4 million. More are counted in sums only */
    uint32_t ended;    /* blocks kept after their end; default 65,536; then the oldest is folded */
    uint32_t implicit; /* ranges known from copies only; default 16,384 */
    uint32_t moments;  /* of one block; a power of two, default 32, at most 4,096 */
    uint64_t moments_all; /* of all blocks; default 1 million */
    uint32_t holders;     /* default 65,536; more are counted under site 0 */
};

enum {
    TRACE_QUEUE_MAX =
        1 << 20,             /* events that wait for a reader to leave: 84 MB, 10 s at 100,000/s */
    TRACE_GAPS_MAX = 256,    /* rows of gaps; the last ones */
    TRACE_FAILURES_MAX = 64, /* rows of failed allocations; the last ones */
    TRACE_FAILURE_HOLDERS = 24, /* of the snapshot of one failure */
    TRACE_FAILURE_OTHERS = 16,
    TRACE_TIMELINE_SLOTS =
        512, /* moments of the timeline; their distance doubles when they are used up */
    TRACE_TIMELINE_HOLDERS = 64, /* that have a line of their own */
    TRACE_REPEATS = 4,           /* ranges of a block that repeated copies are counted for */
};

/* `identity` is copied. 0 or -ENOMEM. */
int trace_history_new(const struct trace_identity *identity, const struct trace_limits *limits,
                      struct trace_history **ret_history);
void trace_history_free(
    struct trace_history *history); /* NULL is fine; nobody else may use it then */

struct trace_identity trace_history_identity(struct trace_history *history);
/* A program name that became known later (exec). */
void trace_history_rename(struct trace_history *history, const char *name);
/* True: it came from a dump and takes no events. */
bool trace_history_frozen(const struct trace_history *history);

/* The table of call sites, owned by the history. Feeders define, readers get and name; see sites.h for threads. */
struct trace_sites *trace_history_sites(struct trace_history *history);

/* ---- feeding ---- */

/* One thread at a time. Never fails: what cannot be kept is counted. The caller keeps the events. Events that make no
 * sense (unknown kind, a range past the end of the address space, times that go back) leave the history right:
 * they are refused and counted as `invalid`, a time that goes back is taken as the last one. `pid` is not looked at. */
void trace_history_event(struct trace_history *history, const struct trace_event *event);
void trace_history_events(struct trace_history *history, const struct trace_event *events,
                          size_t n);

/* Tracing was interrupted, and the feeder will now tell all live blocks anew (TRACE_FOUND). Between these two calls, blocks
 * that are not told are marked; the second ends them as lost (TRACE_END_LOST). Feeder's thread; waits for readers. */
void trace_history_sweep_begin(struct trace_history *history);
void trace_history_sweep_end(struct trace_history *history);

/* ---- blocks ---- */

enum trace_state {
    TRACE_STATE_ALLOCATED = 1, /* live */
    TRACE_STATE_FREED = 2,     /* ended: see enum trace_end */
    TRACE_STATE_UNKNOWN = 3,   /* a range known from copies only; or the end was not seen */
};

enum trace_end {
    TRACE_END_NONE = 0,
    TRACE_END_FREE = 1,
    TRACE_END_RESET = 2, /* with its context or device */
    TRACE_END_EXIT = 3,  /* with the process: the program never freed it */
    TRACE_END_LOST = 4,  /* another block was seen in its place: its free was missed */
};

/* Whose bytes they are. Only bytes of the first class are in sums over classes. */
enum trace_class {
    TRACE_CLASS_OWN = 0,
    TRACE_CLASS_SHARED = 1,     /* TRACE_FLAG_SHARED */
    TRACE_CLASS_REGISTERED = 2, /* TRACE_FLAG_REGISTERED */
    TRACE_CLASS_VIRTUAL = 3,    /* TRACE_FLAG_VIRTUAL */
    TRACE_CLASS_SYSTEM = 4,     /* TRACE_FLAG_SYSTEM */
    TRACE_CLASS_IMPLICIT = 5,   /* known from copies only */
    TRACE_CLASS_GRAPH = 6,      /* TRACE_FLAG_GRAPH */
    TRACE_CLASSES = 7,
};

struct trace_flow {
    uint64_t copies, bytes;
};

/* A range that was copied again and again. */
struct trace_repeat {
    uint64_t offset, size; /* in the block */
    uint64_t copies;       /* 2 or more: the first is no repetition */
    uint8_t direction;
};

struct trace_block {
    uint64_t id;      /* unique in the history while it is in memory; not kept in dumps */
    uint64_t address; /* its start, or its handle */
    uint64_t size;
    uint64_t context;
    uint64_t call;             /* number of the call that allocated it */
    uint64_t start_ns, end_ns; /* end: 0 while active */
    uint32_t site;
    int32_t device;
    int32_t tid;    /* thread that allocated it */
    uint32_t flags; /* enum trace_flags */
    uint16_t function;
    uint8_t space;
    uint8_t state; /* enum trace_state */
    uint8_t end;   /* enum trace_end */
    uint8_t class; /* enum trace_class */
    bool active;
    bool found; /* live before tracing began, or found after a gap: start_ns is when it was found */

    struct trace_flow flow[TRACE_DIRECTIONS]; /* by enum trace_direction; either side of a copy */
    struct trace_flow read, written;          /* as source, as destination */
    struct trace_flow pageable;
    struct trace_flow sets, prefetches;
    uint64_t first_copy_ns, last_copy_ns; /* 0: none */
    uint64_t repeated; /* copies of a range and direction that was copied before */
    uint64_t repeated_bytes;
    struct trace_repeat repeats[TRACE_REPEATS]; /* most copies first; copies == 0: none */
    uint64_t system[TRACE_SYSTEM_KINDS];        /* how often */
    uint64_t system_early[TRACE_SYSTEM_KINDS];  /* of these, before the first copy */
    uint64_t moments;                           /* events in all, of which the last are kept */
    uint64_t moments_kept;
};

/* An event of a block. Its allocation and its end are in the block, and are moments, too. */
struct trace_moment {
    uint64_t time_ns;
    uint64_t offset; /* from the block's start */
    uint64_t size;   /* bytes, or how often (TRACE_SYSTEM) */
    uint64_t peer;   /* the other side of a copy */
    uint64_t call;
    uint32_t site;
    int32_t tid;
    int32_t result;
    uint8_t kind; /* enum trace_kind */
    uint8_t direction;
    uint8_t detail;
    uint8_t flags; /* the low 8 bits of enum trace_flags */
};

/* The active block that contains the address (or has it as its handle): O(log n). -ENOENT. */
int trace_history_find(struct trace_history *history, uint64_t address,
                       struct trace_block *ret_block);

/* All blocks that began at the address and are still kept, the latest first: how many there are, of which up to `n` are stored. */
size_t trace_history_at(struct trace_history *history, uint64_t address, struct trace_block *blocks,
                        size_t n);

/* By id: O(1). -ENOENT: it was folded. */
int trace_history_block(struct trace_history *history, uint64_t id, struct trace_block *ret_block);

/* The last events of a block in order of time, up to the last `n`: how many were stored, or -ENOENT. */
ptrdiff_t trace_history_moments(struct trace_history *history, uint64_t id,
                                struct trace_moment *moments, size_t n);

enum trace_by { TRACE_BY_COUNT = 0, TRACE_BY_BYTES = 1 };

/* What to look at; zeroes and `device` -1 let everything pass. */
struct trace_filter {
    bool active;    /* only active blocks */
    bool ended;     /* only ended ones */
    uint8_t space;  /* enum memoir_space; 0: any */
    bool by_device; /* only those of `device` */
    int32_t device;
    bool by_site; /* only those of `site` */
    uint32_t site;
    uint32_t classes;  /* bit i: those of class i; 0: any */
    uint64_t min, max; /* of the value that `by` names; max 0: no bound */
};

/* The k hottest or coldest blocks. A block's value is what crossed the bus or may have: copies to and from the device, and those
 * of unknown direction. Hottest first, or coldest first; how many were stored, or -ENOMEM. O(k) without space, device and site;
 * with them O(k + what they refuse). */
ptrdiff_t trace_history_hot(struct trace_history *history, enum trace_by by,
                            const struct trace_filter *filter, struct trace_block *blocks,
                            size_t k);
ptrdiff_t trace_history_cold(struct trace_history *history, enum trace_by by,
                             const struct trace_filter *filter, struct trace_block *blocks,
                             size_t k);
uint64_t trace_block_value(const struct trace_block *block, enum trace_by by);

/* One word: live, found (live before tracing began), seen (a range that was copied, of an allocation that is not known),
 * recorded (by a CUDA graph); ended by freed, exit or reset; unknown. */
const char *trace_block_state(const struct trace_block *block);

/* All blocks, `n` at a time: start with *cursor = 0, ask until 0 is returned. A block that exists all the while is told
 * exactly once. O(n + gaps between blocks). */
size_t trace_history_blocks(struct trace_history *history, const struct trace_filter *filter,
                            uint64_t *cursor, struct trace_block *blocks, size_t n);

/* ---- holders: always exact ---- */

struct trace_holder {
    uint32_t site;
    int32_t device;
    uint8_t space;
    uint8_t class; /* enum trace_class */
    /* allocated == live + freed + lost, in blocks as in bytes. */
    uint64_t allocated_blocks, allocated_bytes; /* including found ones */
    uint64_t live_blocks, live_bytes;
    uint64_t freed_blocks, freed_bytes; /* by free, reset and exit */
    uint64_t lost_blocks, lost_bytes;   /* whose end was missed */
    uint64_t exit_blocks, exit_bytes;   /* of the freed: by the end of the process */
    uint64_t found_blocks, found_bytes; /* of the allocated: found */
    uint64_t peak_bytes;
    uint64_t failures, failed_bytes;
    struct trace_flow
        flow[TRACE_DIRECTIONS]; /* of its blocks: each copy counts for both its sides */
    struct trace_flow pageable;
    uint64_t repeated, repeated_bytes;
    uint64_t never_copied_blocks; /* ended without a copy */
    uint64_t folded_blocks;       /* of the ended: no longer kept one by one */
};

/* All holders, as trace_history_blocks() does it. */
size_t trace_history_holders(struct trace_history *history, uint64_t *cursor,
                             struct trace_holder *holders, size_t n);

/* The most that graphs had recorded on a device at a time (-1: on all), at most: peaks of several
 * lines may have been at different times. */
uint64_t trace_history_graph_peak(struct trace_history *history, int32_t device);

/* The copies that a line made. Each counts once. */
struct trace_copier {
    uint32_t site;
    struct trace_flow flow[TRACE_DIRECTIONS];
    struct trace_flow pageable, async;
    struct trace_flow sets, prefetches;
    uint64_t repeated, repeated_bytes; /* of a range that was copied in this direction before */
    uint64_t first_ns, last_ns;
};
size_t trace_history_copiers(struct trace_history *history, uint64_t *cursor,
                             struct trace_copier *copiers, size_t n);

/* ---- the process as a whole ---- */

struct trace_totals {
    uint64_t events;            /* applied */
    uint64_t first_ns, last_ns; /* time of the first and of the last event; 0: none */
    uint64_t live_blocks, live_bytes, peak_bytes; /* of class own, host and device */
    uint64_t device_bytes, device_peak_bytes;     /* of these, in spaces of devices, and managed */
    uint64_t allocated_blocks, allocated_bytes, freed_blocks, freed_bytes;
    struct trace_flow flow[TRACE_DIRECTIONS]; /* each copy once */
    struct trace_flow pageable;
    uint64_t repeated, repeated_bytes;
    uint64_t failures;
    uint64_t system[TRACE_SYSTEM_KINDS]; /* all, with or without an address */
    uint64_t exit_ns;                    /* 0: not ended */
    int32_t exit_result;

    uint64_t kept_blocks, active_blocks, implicit_blocks, holders, sites;
    uint64_t memory_bytes; /* about what the history takes */

    /* Losses, each for its cause. */
    uint64_t gaps, gap_events; /* told by TRACE_GAP */
    uint64_t folded_blocks;    /* ended blocks that are in sums only */
    uint64_t folded_implicit;  /* the same for ranges known from copies */
    uint64_t merged_implicit;  /* ranges that became part of another */
    uint64_t unkept_blocks;    /* allocations past the limit, or without memory for them */
    uint64_t unkept_moments;   /* events of blocks without room for moments */
    uint64_t unknown_frees;    /* of no active block */
    uint64_t unknown_restores; /* of no freed block, or its place is taken */
    uint64_t unknown_sides;    /* sides of copies that no block contains */
    uint64_t superseded;       /* blocks that another took the place of: END_LOST */
    uint64_t unkept_holders;   /* counted under site 0 */
    uint64_t invalid;          /* events refused */
    uint64_t
        failed_copies; /* copies, sets and prefetches that returned an error: in no other sum */
    uint64_t late;     /* events whose time went back */
    uint64_t waits;    /* the feeder waited for a reader: the queue was full */
};
struct trace_totals trace_history_totals(struct trace_history *history);

struct trace_gap {
    uint64_t time_ns, lost;
};
/* The last gaps, in order of time: how many were stored. */
size_t trace_history_gaps(struct trace_history *history, struct trace_gap *gaps, size_t n);

/* ---- failures: who held what ---- */

struct trace_failure_holder {
    uint32_t site;
    uint8_t space, class;
    uint64_t bytes, blocks;
};

struct trace_failure_other {
    int32_t pid;
    char name[TRACE_NAME_MAX];
    uint64_t bytes;
};

struct trace_failure {
    uint64_t number; /* from 1 */
    uint64_t time_ns, size, call;
    uint32_t site;
    int32_t result, device, tid;
    uint16_t function;
    uint8_t space;
    bool out_of_memory;
    uint64_t repeats; /* the same failure within a millisecond, counted here */
    /* If out of memory: who held what on that device (on the host, for spaces of the host) at that moment. */
    uint64_t held_bytes, held_blocks; /* by this process, all holders */
    uint32_t n_holders;               /* largest first */
    uint32_t n_others;
    struct trace_failure_holder holders[TRACE_FAILURE_HOLDERS];
    struct trace_failure_other others[TRACE_FAILURE_OTHERS];
    uint64_t capacity_bytes, used_bytes; /* of the device, as the caller said; 0: not known */
};

size_t trace_history_failures(struct trace_history *history, struct trace_failure *failures,
                              size_t n);

/* What the feeder knows besides about the last failure: the other processes on the device and the device's own figures. -ENOENT:
 * there is none, or it has been told already. Feeder's thread; waits for readers. */
int trace_history_failure_context(struct trace_history *history, uint64_t capacity_bytes,
                                  uint64_t used_bytes, const struct trace_failure_other *others,
                                  size_t n);

/* ---- timeline ---- */

/* Live bytes of class own over time. Slot i is the time from start_ns + i * step_ns; `last` is what was held at its end, `peak` the
 * most that was held in it. */
struct trace_timeline_line {
    uint32_t site;
    int32_t device;
    uint8_t space;
    bool other; /* all holders without a line of their own */
    uint64_t last[TRACE_TIMELINE_SLOTS], peak[TRACE_TIMELINE_SLOTS];
};

struct trace_timeline {
    uint64_t start_ns, step_ns;
    size_t n_slots; /* in use: up to the last event */
    size_t n_lines; /* largest peak first; the sum of all lines' `last` is what was live */
    struct trace_timeline_line *lines;
    uint64_t device_peak[TRACE_TIMELINE_SLOTS]; /* most device memory, all holders together */
};

/* A copy of it, for trace_timeline_release(). 0 or -ENOMEM. */
int trace_history_timeline(struct trace_history *history, struct trace_timeline *ret_timeline);
void trace_timeline_release(struct trace_timeline *timeline);

/* ---- for tests ---- */

/* Walk everything and compare with what is kept incrementally. 0, or the line of the first check that failed. */
int trace_history_check(struct trace_history *history);

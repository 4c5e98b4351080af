/*
 * manager.h: serves large allocations, watches their copies, and registers memory as the policy
 * decides.
 *
 * One per process, made at the first allocation that is large enough. All functions may be called
 * by any thread. None calls the driver while it holds the lock. Whatever fails, the program's
 * memory stays valid: it is pageable then, and a counter says so.
 *
 * The program does not notice that memory is registered: copies keep the meaning that they have
 * for pageable memory (pin_copy_end() tells the caller to wait where the driver would not), the
 * driver's answers about such memory are those about pageable memory (shim_query.c), and a program
 * that registers the memory itself takes it over.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"
#include "pin/driver.h"
#include "pin/policy.h"
#include "pin/region.h"
#include "pin/settings.h"
#include "site/unwind.h"

enum {
    PIN_SITES_ROOM = 8192,
    PIN_POOL_MIN = 32 << 20, /* idle registered memory that may stay, at least */
    PIN_LEASE_BYTES =
        31 << 20, /* pinned memory that has no price: 32 MiB with what drivers pin themselves */
    PIN_WARM_MIN = 64 << 20, /* free memory that may keep its pages, at least */
    PIN_BUDGET_SHARE =
        2, /* of what is pinned and what is left, one in so many parts may be pinned */
    PIN_HEADROOM_MS = 100, /* how long a reading of the headroom counts */
    PIN_IDLE_MAX_S = 30,   /* how long registered memory stays idle */
};

/* Counters; any thread reads them. */
struct pin_counts {
    uint64_t served, served_bytes;       /* allocations since the start */
    uint64_t registers, unregisters;     /* successful calls */
    uint64_t register_ns, unregister_ns; /* that they took */
    uint64_t register_failed, unregister_failed;
    uint64_t pinning_ns; /* what promotions cost by the calibration, without the price of memory */
    uint64_t pool_hits;  /* allocations that got registered memory */
    uint64_t copies[PIN_DIRECTIONS], copied_bytes[PIN_DIRECTIONS];
    uint64_t pinned_copies, pinned_copied_bytes;
    uint64_t other_copies, other_copied_bytes; /* of host memory that is not ours */
    uint64_t waits;                            /* asynchronous copies that were waited for */
    uint64_t staged_copies, staged_bytes;      /* through the ring of stage.h */
    uint64_t stage_busy, stage_failed;         /* that the driver made instead */
    uint64_t touched_bytes, touched_blocks;    /* ahead of the program, by touch.h */
    uint64_t touch_stopped;                    /* blocks that it did not go on to fill */
    uint64_t forks, fork_unregistered;
    uint64_t taken_over; /* registrations that the program made itself */
    uint64_t lock_lost;
    uint64_t bad_frees;
    uint64_t budget_bytes, headroom_bytes;
    uint64_t registered_bytes, registered_bytes_peak;
    uint64_t live_bytes_peak;
    uint64_t checked_copies, checked_bytes, mismatches; /* checksum mode */
    uint64_t checksum;
    uint64_t unwrapped; /* functions of the driver that could not be watched */
};

struct pin_manager {
    uint32_t lock;
    bool on;
    bool dead;          /* a child of a process that used the driver: it cannot */
    uint32_t in_flight; /* threads in a copy; any thread */
    struct region region;
    struct pin_policy policy;
    struct pin_site *sites;
    uint64_t peak_live, peak_pinned; /* recent ones: they fade */
    uint64_t peak_at_ns, headroom_at_ns;
    bool calibrated;
    uint32_t calibrating;
    struct pin_counts counts;
};
extern struct pin_manager pin_manager;
extern __thread bool
    pin_inside; /* this thread is in a call of ours: what it allocates is not the program's */

/* Once, early. */
void pin_start(void);
bool pin_ready(void); /* makes the tables if need be; false: switched off, or no memory */

/* ---- allocations ---- */

/* NULL: not served, ask the next allocator. `from`: of the caller, for its call site. */
void *pin_allocate(size_t size, size_t alignment, bool zero, const struct unwind_state *from);
/* The same, below the threshold, too. */
void *pin_allocate_any(size_t size, size_t alignment, bool zero, const struct unwind_state *from);
static inline bool pin_owns(const void *block)
{
    return region_has(&pin_manager.region, block);
}
void pin_release(void *block); /* one of ours */
size_t pin_usable(const void *block);
/* As realloc() of one of ours. */
void *pin_reallocate(void *block, size_t size, const struct unwind_state *from);
/* Pages of this range will be dropped: nothing of it may be registered. */
void pin_dropping(void *address, size_t bytes);
int pin_hint(void *block, int hint); /* 1: hot, -1: cold, 0: none; -ENOENT */

/* ---- copies ---- */

struct pin_copy {
    struct extent *extent; /* NULL: not ours */
    const void *host;
    uint64_t bytes;
    enum pin_direction to;
    bool pinned; /* the driver takes it for pinned: keep the meaning of a pageable copy */
    bool staged; /* the caller sets it when it was */
    unsigned stage_threads; /* 0: do not stage it */
    uint64_t staged_ns;     /* and what that took; */
    uint64_t waited_ns;     /* of that, until its first piece was moved */
    uint64_t started_ns;    /* mode shadow: when the driver's call began */
};
/* Around the driver's copy. `captured`: into a graph: the block stays as it is from now on. */
void pin_copy_begin(struct pin_copy *copy, const void *host, uint64_t bytes, enum pin_direction to,
                    bool captured);
void pin_copy_end(struct pin_copy *copy, bool done);
/* A graph refers to this memory. */
void pin_graph_uses(const void *host);

/* ---- what the program does with registrations ---- */

/* It registers the range itself: ours goes first. Then say how that ended. */
void pin_taking_over(void *address, size_t bytes);
void pin_taken_over(void *address, size_t bytes, bool done);
void pin_given_back(void *address); /* it unregistered its own */
/* Is the address in memory that we registered? */
bool pin_registered(const void *address);
/* A context goes, or the process forks: nothing of ours may stay registered. */
void pin_unregister_all(enum pin_reason reason);

/* ---- for other files of this folder ---- */

bool pin_lock(void);
void pin_unlock(void);
uint64_t pin_now_ns(void);
/* Under the lock, which is given up meanwhile. */
bool pin_extent_unregister(struct extent *extent);
void pin_extent_wait(struct extent *extent); /* until no unregistering is under way */
void pin_trim(uint64_t idle_keep);
void pin_budget_refresh(uint64_t now_ns);
void pin_fork_watch(void); /* once the driver is in use */

/*
 * cost.h: what copies and registrations take on one machine.
 *
 * Tables of nanoseconds by size, measured once per machine (calibrate.h) and read between their
 * points by straight lines. Pure: no clock, no memory of its own. Every figure of the policy comes
 * from here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pin_direction { PIN_TO_DEVICE = 0, PIN_FROM_DEVICE = 1, PIN_DIRECTIONS = 2 };

enum {
    PIN_COST_SIZES = 17,       /* points of a table: */
    PIN_COST_FIRST_SHIFT = 14, /* 16 KiB, and each further one twice as large, to 1 GiB */
    PIN_STAGE_COUNTS = 4,      /* numbers of threads that staging is measured with: 1, 2, 4, 8 */
    PIN_STAGE_MIN = 4 << 20,   /* smaller copies are never staged */
};

struct pin_cost {
    uint64_t pageable_ns[PIN_DIRECTIONS][PIN_COST_SIZES]; /* a copy of pageable memory */
    uint64_t pinned_ns[PIN_DIRECTIONS][PIN_COST_SIZES];   /* a copy of registered memory */
    uint64_t register_ns[PIN_COST_SIZES];                 /* of memory that was touched before */
    uint64_t unregister_ns[PIN_COST_SIZES];
    uint64_t touch_ns_mib; /* to fault 1 MiB in and fill it, on huge pages where there are any */
    /* A copy of pageable memory through the staging ring (stage.h); 0: not measured. */
    uint64_t staged_ns[PIN_STAGE_COUNTS][PIN_DIRECTIONS][PIN_COST_SIZES];
    /* Of this process, not of the machine: */
    unsigned stage_cpus; /* threads that may copy; 0: none */
    /* What it really took, in thousandths of the tables; 0: nothing is known. */
    uint32_t staged_mille[PIN_STAGE_COUNTS][PIN_DIRECTIONS], register_mille;
};

/* A table at any size: a constant below its first point, a straight line between points, in
 * proportion beyond the last. */
uint64_t pin_cost_at(const uint64_t table[static PIN_COST_SIZES], uint64_t bytes);

/* How many threads make a copy of `bytes` of memory that is not pinned through the staging ring; 0:
 * the driver makes it, since staging is not measured to be faster by a tenth. */
unsigned pin_cost_stage_threads(const struct pin_cost *cost, uint64_t bytes, enum pin_direction to);

/* What such a copy takes, staged or not; and what staging takes less than the driver. */
uint64_t pin_cost_unpinned_ns(const struct pin_cost *cost, uint64_t bytes, enum pin_direction to);
uint64_t pin_cost_staging_ns(const struct pin_cost *cost, uint64_t bytes, enum pin_direction to);

/* A copy was staged with so many threads, or memory registered, and took `took_ns`: the figures
 * follow by a quarter of the difference. Programs use the processors and caches that staging needs,
 * and no calibration knows how much. A copy whose first piece took half of its time or more,
 * `waited_ns`, waited for what its stream did before, and says nothing. */
void pin_cost_learn_staged(struct pin_cost *cost, unsigned threads, uint64_t bytes,
                           enum pin_direction to, uint64_t waited_ns, uint64_t took_ns);
void pin_cost_learn_register(struct pin_cost *cost, uint64_t bytes, uint64_t took_ns);
/* What was learned fades: call it now and then. So what was slow for a while is tried again. */
void pin_cost_forget(struct pin_cost *cost);

/* What one copy of `bytes` takes less if they are pinned; 0 where that is no gain. */
uint64_t pin_cost_saving_ns(const struct pin_cost *cost, uint64_t bytes, enum pin_direction to);

uint64_t pin_cost_register_ns(const struct pin_cost *cost, uint64_t bytes);
/* Registering, and unregistering later. */
uint64_t pin_cost_pin_ns(const struct pin_cost *cost, uint64_t bytes);

/* Do the figures make sense? Each is between 1 ns and 1000 s; a table never falls by more than half
 * from one size to the next. A table of staging may be all 0. */
bool pin_cost_valid(const struct pin_cost *cost);

/* Fill the points between those that were measured: `known` has a bit for each. At least two must
 * be known; points outside of them continue the nearest straight line, and no point is below 1. */
void pin_cost_fill(uint64_t table[static PIN_COST_SIZES], uint32_t known);

/* Until a machine is calibrated: a pageable copy at 8 GB/s, a pinned one at 25 GB/s, 0.1 ms/MiB to
 * register. Cautious: real machines gain more, so decisions by these come late rather than
 * wrongly. */
void pin_cost_assume(struct pin_cost *ret);

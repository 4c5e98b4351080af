/* timeline.h: live bytes by holder over time, in TRACE_TIMELINE_SLOTS slots whose length doubles when they are used up.
 *
 * TRACE_TIMELINE_HOLDERS holders have a line of their own; all others share line 0. A holder gets a line when one is free or
 * when it holds more than twice the peak of the smallest line, whose past then becomes part of line 0. So the sum of
 * all lines is always what was live. An update is O(1), amortised over the slots that pass. One thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "trace/history.h"

struct timeline_line {
    uint32_t holder; /* 0: the line of all others */
    uint32_t filled; /* slots up to this one are valid; the rest equals `value` */
    uint64_t value;  /* now */
    uint64_t peak_ever;
    uint64_t last[TRACE_TIMELINE_SLOTS], peak[TRACE_TIMELINE_SLOTS];
};

struct timeline {
    uint64_t start_ns, step_ns; /* start 0: nothing yet */
    uint64_t slot_end_ns;       /* end of the slot of now */
    uint32_t slot;
    uint32_t n_lines; /* line 0 included */
    uint64_t
        least_peak; /* no line but 0 had a smaller peak at the last look, and peaks only grow */
    struct timeline_line *lines[1 + TRACE_TIMELINE_HOLDERS];
    struct timeline_line *device; /* sum of all device memory; never in `lines` */
};

int timeline_init(struct timeline *t);
void timeline_release(struct timeline *t);

/* Time goes on; it never goes back. */
void timeline_advance(struct timeline *t, uint64_t now_ns);

/* Holder number `holder` (1 and up) holds `value` now and `before` until now; *line is its line, 0 at first. Returns the
 * holder that lost its line to this one, or 0: its line is 0 from now on. */
uint32_t timeline_update(struct timeline *t, uint32_t holder, uint8_t *line, uint64_t before,
                         uint64_t value);
void timeline_device(struct timeline *t, uint64_t value);

/* Make all slots up to that of now valid. */
void timeline_fill(struct timeline *t);

/* For loaders: an empty line for a holder, as dumps hold it. NULL: no memory or no room. */
struct timeline_line *timeline_line_add(struct timeline *t, uint32_t holder);

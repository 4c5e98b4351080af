/* ranges.h: an ordered set of starts, each with the slot of its block: which block is at or before an address?
 *
 * Sorted leaves of up to RANGES_LEAF starts below one sorted array of leaves. With 1 million starts a search makes 21
 * comparisons; an insertion moves up to 1 KiB inside a leaf, and a split, once in 64 insertions, moves the array of leaves
 * (100 KiB). A B-tree of more levels would save the latter, 50 ns for each insertion, at the price of pointer chasing in
 * each search; searches are far more frequent. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RANGES_LEAF = 128 };

struct trace_ranges_leaf {
    uint32_t n;
    uint32_t slots[RANGES_LEAF];
    uint64_t starts[RANGES_LEAF];
};

/* All zeroes is an empty set. */
struct trace_ranges {
    struct trace_ranges_leaf **leaves;
    uint64_t *firsts; /* of each leaf, its first start */
    size_t n_leaves, cap_leaves;
    size_t n;
};

void trace_ranges_release(struct trace_ranges *r);

/* Add a start that is not there. 0 or -ENOMEM, with the set as it was. */
int trace_ranges_insert(struct trace_ranges *r, uint64_t start, uint32_t slot);

/* Remove a start that is there. Never fails. */
void trace_ranges_remove(struct trace_ranges *r, uint64_t start);

/* The slot of the greatest start <= address; false: there is none. */
bool trace_ranges_floor(const struct trace_ranges *r, uint64_t address, uint32_t *ret_slot);

/* The slot of the smallest start >= address; false: there is none. */
bool trace_ranges_ceiling(const struct trace_ranges *r, uint64_t address, uint32_t *ret_slot);

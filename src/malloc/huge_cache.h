/*
 * huge_cache.h: ranges of addresses whose memory is kept for the next huge block.
 *
 * A plain table under its user's lock: no system call, no allocation. A range starts at a multiple of
 * 2 MiB and has whole pages; ranges that touch are joined, and one that is larger than what is wanted is
 * cut at a multiple of 2 MiB. So the memory of a few large blocks serves many smaller ones and the other
 * way round, and none of it has to be faulted in again.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HUGE_CACHE_RANGES = 64 };

struct huge_range {
    char *at;
    size_t bytes;
    size_t lead;       /* a page (or 0) that is mapped before `at` and belongs to it */
    uint64_t freed_ns; /* when it came; the latest where several were joined */
};

struct huge_cache {
    struct huge_range ranges[HUGE_CACHE_RANGES]; /* in no order */
    unsigned n;
    size_t bytes; /* of all, without lead; read without the lock, too */
};

/* Add a range. True if the table was full: then *ret_evicted has the oldest, for the caller to unmap. */
bool huge_cache_put(struct huge_cache *c, struct huge_range r, struct huge_range *ret_evicted);

/* Take the smallest range that has `bytes`; what is left of it stays. With `lead`, one that has a page
 * before it and starts at a multiple of `align`; without, the caller gets rid of a page that is there. */
bool huge_cache_take(struct huge_cache *c, size_t bytes, size_t lead, size_t align,
                     struct huge_range *ret);

/* Take the largest range, if it has at least `bytes`, whole. */
bool huge_cache_take_largest(struct huge_cache *c, size_t bytes, struct huge_range *ret);

/* Take the oldest range, if it came before `ns`; of a larger one only the end, with `bytes` or a little
 * more. */
bool huge_cache_take_old(struct huge_cache *c, uint64_t ns, size_t bytes, struct huge_range *ret);

/* Take the unit of which most is there, 2 MiB or less, from the beginning of a range without a page before it: the oldest of those. */
bool huge_cache_take_unit(struct huge_cache *c, struct huge_range *ret);

/* Take what begins at this place, a multiple of 2 MiB: `bytes` or a little more, or as many as there are. False: none. */
bool huge_cache_take_at(struct huge_cache *c, const char *at, size_t bytes, struct huge_range *ret);

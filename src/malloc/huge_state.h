/*
 * huge_state.h: what the parts of huge.h share: huge.c, and huge_resize.c for blocks that change their size.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"
#include "malloc/huge.h"
#include "malloc/huge_cache.h"
#include "malloc/lock.h"
#include "malloc/map.h"
#include "malloc/os.h"

/* At the start of a block's mapping. */
struct huge_block {
    uint64_t cookie;      /* tells a header from other bytes, and from one that was copied here */
    size_t mapped_bytes;  /* from here; constant while the block is in the list */
    size_t asked_bytes;   /* the same */
    uint32_t data_offset; /* from here; constant */
    uint32_t era;         /* of the process that listed it */
    struct huge_block *next, *prev; /* under the lock */
    uint64_t spare[2];
};
static_assert(sizeof(struct huge_block) == HUGE_HEADER, "one cache line before the data");

#define HUGE_LEAD   OS_PAGE_MAX /* before data at a multiple of 2 MiB or more */
#define HUGE_UNIT   MAP_UNIT_BYTES
#define HUGE_COOKIE UINT64_C(0x6d656d6f69722e68)

struct huge_state {
    struct lock lock; /* of all that follows, and of huge_ranges */
    uint32_t era;     /* changes only in a child of fork */
    struct huge_block *live;
    struct huge_counts counts;
    size_t keep_bytes; /* limit set from outside */
    uint64_t age_ns;   /* the same */
    uint64_t evicted;  /* bytes that went because of a limit, and were not yet missed */
    uint64_t peak_at;  /* when the peak was last lowered */
    unsigned share;    /* of the peak that may be kept, in eighths */
};
extern struct huge_state huge __attribute__((visibility("hidden")));

/* What is kept. Apart: all zero at first, it is no part of what the loader fills in. */
extern struct huge_cache huge_ranges __attribute__((visibility("hidden")));

/* Since the beginning; any thread adds (relaxed). */
struct huge_totals {
    uint64_t fresh, reused, grown, moved, copied, back_bytes;
};
extern struct huge_totals huge_totals __attribute__((visibility("hidden")));

static inline void huge_total_add(uint64_t *total, uint64_t n)
{
    fetch_add_relaxed(total, n);
}

static inline size_t huge_unit_up(size_t bytes)
{
    return (bytes + HUGE_UNIT - 1) & ~(HUGE_UNIT - 1);
}

static inline uint64_t huge_cookie_of(const struct huge_block *h)
{
    return HUGE_COOKIE ^ (uintptr_t)h;
}

static inline char *huge_data_of(struct huge_block *h)
{
    return (char *)h + h->data_offset;
}

static inline size_t huge_block_lead(const struct huge_block *h)
{
    return (uintptr_t)h & (HUGE_UNIT - 1) ? HUGE_LEAD : 0;
}

/* The header of the block that begins at p; NULL if none does. */
struct huge_block *huge_block_at(const void *p);

/* With the lock: a block comes into the list of those in use, or goes; the sums of them. Going is false if its neighbours do not know
 * it: then something was overwritten and all stays. */
void huge_block_link(struct huge_block *h);
bool huge_block_unlink(struct huge_block *h);
void huge_count_in(size_t mapped, size_t asked);
void huge_count_out(size_t mapped, size_t asked);

/* With the lock, which it drops: see to it that not too much is kept. */
void huge_settle(uint64_t now);

/* With the lock: so many bytes are needed, and nothing that is kept will do. If they went too soon, more is kept. */
void huge_missed(size_t bytes);

/* Keep a range, or give it back. Without the lock. */
void huge_retire(struct huge_range r);

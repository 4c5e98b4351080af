/*
 * region.h: address space of our own, from which large allocations are served.
 *
 * Every allocation is one extent: whole pages, its own registration. Two spaces: large extents (4
 * MiB and up) begin on a huge page and ask for huge pages, small ones begin on 64 KiB. A table
 * maps each unit of address space to its extent, so that any address is found at once and without
 * a lock.
 *
 * Freed extents keep their pages ("warm"), because touching fresh memory is the largest cost of
 * all; the caller decides how much may stay and purges the oldest. Free neighbours merge and large
 * ones are split, but never an extent that is registered: a registration is given back as a whole,
 * and a copy must not cross its border.
 *
 * Memory comes from the kernel, not from malloc. Callers hold a lock, but for region_find().
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pin/policy.h"

enum {
    REGION_SMALL_UNIT = 64 << 10,
    REGION_LARGE_UNIT = 2 << 20,
    REGION_SPACES = 2,
    REGION_BINS = 32,
    REGION_EXTENTS_MAX = 1 << 16, /* further allocations go to the program's allocator */
    REGION_LARGE_MIN = 4 << 20,   /* smaller ones would waste too much of a huge page */
};
#define REGION_SMALL_BYTES (UINT64_C(64) << 30) /* address space of small extents */
#define REGION_LARGE_BYTES (UINT64_C(2) << 40)  /* and of large ones; less where that is refused */

/* Where a registration stands. A thread that finds one changing waits for it. */
enum extent_state {
    EXTENT_STILL = 0,
    EXTENT_REGISTERING =
        1, /* a call of the driver is under way; users of the memory need not wait */
    EXTENT_UNREGISTERING = 2, /* they must */
};

struct extent {
    uintptr_t start;
    uint64_t bytes;            /* address space, whole units */
    uint64_t size;             /* as requested; 0: free */
    uint64_t touched;          /* its first bytes that may not be zero */
    uint64_t resident;         /* about so many bytes have pages */
    uint64_t registered_bytes; /* 0: not registered by us */
    uint64_t freed_ns;
    uint64_t carry_ns;               /* pin_policy_carry() of the last allocation here */
    void *context;                   /* of the registration */
    uint32_t bin_next, bin_previous; /* of free ones of about this size; 0: none */
    uint32_t age_next, age_previous; /* of free ones with pages, oldest first */
    uint32_t site;                   /* sites.h */
    uint8_t state;                   /* enum extent_state; any thread reads it */
    uint8_t space;
    bool free, aged;
    bool stuck;   /* the driver would not unregister it: never used again */
    bool foreign; /* registered by the program itself */
    struct pin_account account;
};

struct region_space {
    uintptr_t start;
    uint64_t bytes, top; /* top: of what was ever used */
    uint64_t
        open; /* that may be accessed; beyond `top` in steps, since a huge page needs all of it */
    uint32_t unit;
    uint32_t *map; /* extent of each unit; 0: none */
    uint32_t bins[REGION_BINS];
};

struct region {
    struct region_space space[REGION_SPACES];
    struct extent *extents;     /* number 0 is none */
    uint32_t n_extents, unused; /* unused: a list by bin_next */
    uint32_t oldest, newest;
    uint64_t live_bytes, live_blocks;
    uint64_t warm_bytes; /* of free extents that are not registered */
    uint64_t idle_bytes; /* of free extents that are registered */
};

/* Reserve the address space. -ENOMEM. */
int region_init(struct region *region);

/* The extent around an address, live or free; NULL: not ours. Any thread, no lock. */
struct extent *region_find(const struct region *region, const void *address);
static inline bool region_has(const struct region *region, const void *address)
{
    uintptr_t at = (uintptr_t)address;
    return (at - region->space[0].start < region->space[0].bytes && region->space[0].bytes) ||
           (at - region->space[1].start < region->space[1].bytes && region->space[1].bytes);
}

/* An extent for `size` bytes at `alignment` (a power of two, 2 MiB at most); NULL: no address
 * space, or no memory for tables. Prefers memory that is registered if `pinned`, else that which
 * is not; then warm memory. Its contents are anything up to `touched`, zero behind. */
struct extent *region_take(struct region *region, uint64_t size, uint64_t alignment, bool pinned);

/* Whether region_take() would find registered memory. */
bool region_has_pinned(const struct region *region, uint64_t size);

/* Give one back. It stays registered if it is. */
void region_give(struct region *region, struct extent *extent, uint64_t now_ns);

/* Take a free extent out of all lists, while its registration changes; and put it back. */
void region_detach(struct region *region, struct extent *extent);
void region_attach(struct region *region, struct extent *extent);

/* The free registered extent that has been free for longest; NULL: none. */
struct extent *region_idle_oldest(const struct region *region);

/* Give pages of free, unregistered extents back to the kernel, oldest first, until at most `keep`
 * bytes are warm. */
void region_purge(struct region *region, uint64_t keep);

/* What a live extent may grow to in place: all of its own pages. */
static inline uint64_t region_room(const struct extent *extent)
{
    return extent->bytes;
}

/* Move the pages of `from` to `to`, without copying where the kernel can; then `from` has none. */
void region_move(struct extent *from, struct extent *to, uint64_t bytes);

uint64_t region_pages(uint64_t bytes); /* rounded up to whole pages */

/* Memory for tables: zeroed, never locked, untouched pages take none. NULL: there is none. */
void *region_table(uint64_t bytes);

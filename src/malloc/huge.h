/*
 * huge.h: blocks with a mapping of their own, of about 2 MiB and more.
 *
 * A block's memory starts at a multiple of 2 MiB (a unit of the address map) with a header of one cache
 * line, and the data follows in the same page, a few cache lines further for each block so that arrays
 * of the same size do not all fall into the same sets of the processor's caches. The mapping has as many
 * pages as the block needs, not whole units. Data that must itself lie at a multiple of 2 MiB or more has
 * its header in the page before; the address map tells the two apart (MAP_HUGE, MAP_HUGE_ALONE), and only
 * the unit where the data's first byte lies (or, for MAP_HUGE, the header's) is marked.
 *
 * Freed memory is kept for a while, without going back to the kernel (huge_cache.h), under one rule: what
 * is kept and what is in use are together at most a sixth more than what was in use at once not long
 * ago. So keeping hardly raises the most that a program needs. Blocks grow into kept memory that
 * follows them, or by moving pages, not bytes. Where nothing is kept that will do, a block has the memory of
 * macro-blocks in which nothing is left, and the other way round (exchange.h).
 *
 * All functions may be called by any thread and keep errno; who gets NULL sets ENOMEM. One lock, never
 * held during a system call nor while another lock is taken.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NULL if there is no memory. With ret_zeroed the caller wants zeroes, and has to write them himself where
 * it says false; without, contents do not matter. `align`: a power of two. */
void *huge_alloc(size_t bytes, size_t align, bool *ret_zeroed);

/* False, and nothing happens: no huge block begins there, or its header was overwritten. */
bool huge_free(void *p);

/* Bytes that may be used; 0 if no huge block begins there. */
size_t huge_usable(const void *p);

/* The block with room for `bytes`, here or elsewhere, its contents kept up to the smaller of both sizes. NULL leaves it as
 * it was. The new part is not zeroed. Alignment is kept to less than 2 MiB only if the block stays in place, else to 16. */
void *huge_realloc(void *p, size_t bytes);

/* Give back to the kernel what has been kept for too long by now (clock_monotonic_coarse_ns()), or all
 * that is kept: true if there was anything. Every call of the functions above also ages. */
void huge_age(uint64_t now_ns);
bool huge_trim(void);

/* Give back that much of what is kept, the oldest first, since memory is needed elsewhere. Bytes that were given. */
size_t huge_yield(size_t bytes);

/* Keep at most `bytes`, each for at most age_ns. The rule above holds all the same. */
void huge_keep(size_t bytes, uint64_t age_ns);

struct huge_counts {
    uint64_t blocks;       /* in use, */
    uint64_t asked_bytes;  /* what was asked for them, */
    uint64_t mapped_bytes; /* and what they take in addresses */
    uint64_t peak_bytes;   /* the most of mapped_bytes of late */
    uint64_t kept_bytes;   /* for the next block */
    uint64_t kept_ranges;
    uint64_t total_fresh;      /* since the beginning: blocks from the kernel, */
    uint64_t total_reused;     /* from what was kept, here or in macro-blocks, */
    uint64_t total_grown;      /* and from something smaller that was kept */
    uint64_t total_moved;      /* reallocations that moved pages, */
    uint64_t total_copied;     /* and that had to copy */
    uint64_t total_back_bytes; /* kept, then given back to the kernel */
};
void huge_count(struct huge_counts *ret);

/* mapped_bytes and kept_bytes alone, by two loads, not of one moment. */
void huge_held(uint64_t *ret_mapped, uint64_t *ret_kept);

/* Memory that another process had becomes a block: its mapping begins at `start`, where HUGE_HEADER bytes are ours, and the address
 * map tells of it already. */
enum { HUGE_HEADER = 64 };
void huge_adopt(void *start, size_t mapped, size_t asked, size_t data_offset);

/* Call `each` for every block in use, newest first, with the lock held: it must not call anything here.
 * Stops when that returns false. False: the list is broken, which an overflow into a header can do. */
bool huge_walk(bool (*each)(void *p, size_t usable, size_t asked, void *arg), void *arg);

/* Around fork(): hold the lock, let it go. A child that was forked without these, while another thread held the lock, begins
 * with an empty list and nothing kept; blocks from before can still be freed. */
void huge_fork_prepare(void);
void huge_fork_done(bool child);

/* This process, or one that it was forked from, had to begin so: there may be blocks in no list. */
bool huge_lost(void);

/* For who reads from outside: what is in use (without totals and what is kept), and what is kept. */
struct huge_cache;
struct huge_look {
    const struct huge_counts *counts;
    const struct huge_cache *cache;
};
extern const struct huge_look huge_look;

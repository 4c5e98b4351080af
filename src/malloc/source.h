/*
 * source.h: where slabs come from.
 *
 * A source has macro-blocks and hands out runs of their slices; whatever one heap gives back, any other can have, and
 * anybody can give it back to the kernel. It also keeps the pools: slabs with free blocks that no heap owns. One lock, held for tens
 * of nanoseconds; never while the kernel is asked to take memory back.
 *
 * What is free and was used keeps its memory, so that it can be used again without page faults, up to a limit that
 * follows the most that was in use of late, and the pressure (policy.h). Macro-blocks in which nothing is left may become huge blocks,
 * and what these left macro-blocks (exchange.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "malloc/lock.h"
#include "malloc/macro.h"
#include "malloc/slices.h"
#include "malloc/source_free.h"

struct source {
    struct lock lock;
    uint32_t node;          /* constant */
    uint32_t begun;         /* for a node */
    uint32_t no_huge_pages; /* the kernel has none */
    uint32_t generation;    /* one more for each time that a child of _Fork() had to begin anew */
    uint32_t waits;         /* for the lock, of late: spread.h; read without it, */
    uint32_t beside;        /* as is this: the other source that was looked at last */
    struct macro *macros;   /* all, */
    struct macro *empty;    /* and those without a slab; the one that became so last comes first */
    struct runs runs[RUNS_KINDS]; /* what is free: source_free.h */
    uint32_t run_clock;           /* events there */
    uint32_t n_empty;
    struct slab *pool[SIZE_CLASSES],
        *pool_last[SIZE_CLASSES];  /* the longer there, the more of its blocks may be free */
    uint32_t pooled[SIZE_CLASSES]; /* slabs there; read without the lock */

    /* In slices, but for the first. */
    uint64_t n_macros;
    uint64_t n_used;                /* read without the lock, */
    uint64_t n_dirty_free;          /* as is this: free, with memory */
    uint64_t n_peak;                /* used of late */
    uint64_t keep_limit;            /* of n_dirty_free */
    uint64_t n_purged, n_refaulted; /* of late */
    uint32_t keep_share;            /* of the peak, in eighths */
    uint32_t purging;               /* the process (lock.h) of which somebody is at it, or 0 */
    uint32_t calls;                 /* since the policy was looked at */
    uint32_t steps;                 /* of time since less was kept, or more */
    uint64_t policy_ms;             /* when that was */
    uint64_t refused_ms; /* when the kernel last took nothing of what it was asked to; 0: never */

    /* Since the beginning. */
    uint64_t total_purges, total_purged, total_refaulted;
    uint64_t total_macros, total_unmapped; /* that came and went, wherever from and to */
} __attribute__((aligned(64)));            /* those of different threads share no cache line */

extern struct source source_main __attribute__((visibility("hidden")));

/* The first source of a node (node.h). Those that were not begun are source_main. */
struct source *source_of(unsigned node);
void source_begin(unsigned node);

/* Another one of a node, for some of its threads (spread.h). NULL: there are enough. With heaps_lock. */
struct source *source_add(unsigned node);

/* For walks over all: from 0 on, until it is NULL. And the other way round. */
struct source *source_at(unsigned i);
unsigned source_number(const struct source *s);
extern struct source sources_more[] __attribute__((visibility("hidden"))); /* from number 1 on */
extern unsigned sources_n __attribute__((visibility("hidden")));

/* In a child of fork(), whose parent held the lock: nobody is at it any more. */
void source_fork_child(struct source *s);

struct span {
    struct slab *slab;
    slice_bits dirty; /* which of its slices are perhaps not zero; bit 0 is the first */
};

/* A run of 1 to MACRO_SLICES_USABLE slices that starts at a multiple of align_slices (a power of two) from the macro-block's
 * start; both together at most MACRO_SLICES. Its descriptor has `slices` and no owner; for slabs that are not large, all descriptors have `back`. False if the
 * kernel gives no memory. SOURCE_LITTLE: anywhere, up to RUNS_EXACT, for who will touch little of them: slices without memory if there are some, so that those that have
 * some are left to who fills them, as long as there are few of these. */
enum { SOURCE_LITTLE = 0 };
bool source_take(struct source *s, unsigned slices, unsigned align_slices, struct span *ret);
void source_give(struct source *s, struct slab *slab);
/* The same, but what is kept is not looked at. True: it is time for that. */
bool source_put(struct source *s, struct slab *slab);

/* Make a large block's run longer or shorter where it is, for `asked` bytes: who has the lock finds both or neither. False if there is
 * no room. ret_dirty: as above. */
bool source_resize(struct source *s, struct slab *slab, unsigned slices, uint64_t asked,
                   slice_bits *ret_dirty);

/* Has its slab come from the source as it is now, and not from before it had to begin anew? With the lock. */
static inline bool source_has(const struct source *s, const struct slab *slab)
{
    return __builtin_expect(macro_of(slab)->generation == s->generation, 1);
}

/* Give back what is kept by now without need (policy.h). Without a lock; reads the clock. */
void source_age(struct source *s);

/* Give all free memory back to the kernel. True if there was any. */
bool source_trim(struct source *s);

/* Unmap the macro-blocks that nobody has a slice of, since memory is needed for something else. True if there were any. */
bool source_shrink(struct source *s);

/* Give back that much of what is free and has memory, what was free for longest first, since memory is needed elsewhere. Bytes that
 * were given: less if there is less, or if somebody else is at it. */
uint64_t source_yield(struct source *s, uint64_t bytes);

/* With the lock: slices came back. Is it time for source_age()? Not for who finds somebody at it. */
bool source_age_due(struct source *s);

/* Who waits is counted: spread.h. */
void spread_waited(struct source *s);
static inline void source_lock(struct source *s)
{
    if (__builtin_expect(lock_take(&s->lock), 0))
        spread_waited(s);
}

/* With the lock, for source_keep.c: all of its slices became free, or they are not so any more; nobody has a slice of it, and it leaves
 * the source, to be unmapped by the caller. */
void source_macro_join(struct source *s, struct macro *m);
void source_empty_link(struct source *s, struct macro *m);
void source_empty_unlink(struct source *s, struct macro *m);
void source_macro_leave(struct source *s, struct macro *m);

/* With the lock: so many slices are needed elsewhere, and there are none that are free. They count as those that had to be fetched again. */
static inline void source_missed(struct source *s, uint64_t slices)
{
    if (s->n_purged > s->n_refaulted)
        s->n_refaulted += slices;
}

/* What a source begins with. */
enum { SOURCE_KEEP_SHARE = 3, SOURCE_KEEP_MIN = (4 << 20) / SLICE_BYTES };

/* With the lock: put a slab into its class's pool, take it out. */
void source_pool_link(struct source *s, struct slab *slab);
void source_pool_unlink(struct source *s, struct slab *slab);

/*
 * macro.h: macro-blocks and slabs, as they lie in memory.
 *
 * A macro-block has 2 MiB at a multiple of 2 MiB, cut into 128 slices of 16 KiB. The first slice holds one descriptor for
 * each slice; the descriptor of the first slice itself is the macro-block's own record. A slab is a run of slices with
 * blocks of one size class, or with one large block; the descriptor of its first slice describes it, and those of the
 * others tell how far back that is. Blocks have no headers and start where the slices start.
 *
 * A slab's owner is the heap that allocates from it, and alone touches the first cache line of its descriptor. Everybody
 * else goes by `remote`, in a line of its own. Its state tells who may do what:
 *
 *   OWNED   the heap `owner` allocates from it. Others push what they free onto the remote list, for the owner to collect.
 *   FULL    its heap let it go without a free block; nobody owns it and nobody lists it. Who frees pushes onto the remote list. Who
 *           brings an eighth of its blocks there claims it (then OWNED), or puts it into the pool (then POOLED). The heap that let it
 *           go may claim it with the first one: so its slabs stay with a thread that frees most of its blocks itself.
 *   POOLED  nobody owns it, some blocks are free, and it is in its class's pool. Who frees pushes onto the remote list; who frees
 *           the last block takes it out and gives it to the source; a heap that needs blocks may adopt it (then OWNED).
 *
 * Only a compare-and-swap of `remote` changes the state, so that of several who try one succeeds. What the new owner sees in the
 * first line was stored before that by the old one. A slab is linked into and out of the pool under the source's lock;
 * who makes it POOLED holds the lock from before the swap until it is linked.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"
#include "malloc/map.h"
#include "malloc/size.h"

struct heap;
struct source;

enum {
    SLICE_SHIFT = 14,
    SLICE_BYTES = 1 << SLICE_SHIFT,
    MACRO_SLICES = 128,
    MACRO_SLICES_USABLE = MACRO_SLICES - 1,
    MACRO_WORDS = MACRO_SLICES / 64,
    MACRO_BYTES = MACRO_SLICES << SLICE_SHIFT,
    SLAB_LARGE = 255,   /* in slab.class: one large block */
    SLAB_UNUSED = 254,  /* the slices are free */
    SLAB_FULL_PART = 8, /* of its blocks are free at most, while a slab is FULL */
};
static_assert((size_t)MACRO_BYTES == (size_t)1 << MAP_UNIT_SHIFT, "the map has a byte for each");

enum slab_state { SLAB_OWNED = 0, SLAB_FULL = 1, SLAB_POOLED = 2 };

/* Of a run of free slices that begins at a descriptor's slice; under the source's lock (source_free.h). */
struct run_link {
    struct slab *next, *prev;
    uint32_t since; /* by the source's count of such events */
    uint8_t slices;
    uint8_t listed; /* 0: no such run begins here */
    uint8_t bin;    /* of its list */
    uint8_t spare;
};

/* What accounting keeps of a block: see words.h. */
struct word {
    uint32_t low;
    uint16_t high;
} __attribute__((packed, aligned(2)));
static_assert(sizeof(struct word) == 6, "as many bytes for each block");

struct slab {
    /* The owner's. */
    void *free;         /* blocks that can be given out, linked by their first word */
    struct heap *owner; /* NULL: nobody, or a large block */
    /* blocks that are given out and have not come back here; one more while it is a heap's current one;
     * slab_out() */
    uint32_t used;
    uint8_t back;  /* slices between the slab's first one and this one */
    uint8_t class; /* size class, SLAB_LARGE or SLAB_UNUSED */
    uint8_t slices;
    uint8_t current; /* it is the first of its heap's bin */
    uint32_t block_bytes;
    uint16_t made;  /* blocks that have been carved so far, */
    uint16_t limit; /* and that fit */
    /* its heap holds it (heap.h), with `used` less than that of its blocks free; 0: not */
    uint8_t held;
    /* its owner may have been in the middle of something when this process was forked */
    uint8_t torn;
    uint16_t spare_own;
    union {
        uint32_t start; /* of a large block: its distance from the first slice */
        uint32_t magic; /* of a slab with words: see words.h */
    };
    union {
        struct {
            struct slab *next, *prev; /* in the owner's bin, or in the pool */
        };
        struct {            /* of a large block, in the line that who frees it reads: */
            uint64_t asked; /* bytes asked for */
            struct word large_word;
        };
    };
    struct word *words; /* those of its blocks: see words.h; NULL: it has none */

    /* Everybody's. */
    uint64_t remote;        /* state, count and head: see below */
    struct heap *let_go_by; /* of a slab that is FULL; for others a hint */
    struct run_link run[2]; /* while the slice is free */
};
static_assert(sizeof(struct slab) == 128, "two cache lines");
static_assert(offsetof(struct slab, remote) == 64, "apart from what its owner writes");

/* The record of a macro-block, in the place of the first descriptor. All under the source's lock. Who frees an address in the first
 * slice reads it as a slab: of no heap, and unused. */
struct macro {
    struct macro *next, *prev; /* all of the source */
    uint32_t n_free;
    uint8_t back;      /* as in a slab: 0, */
    uint8_t class;     /* and SLAB_UNUSED */
    uint8_t huge_page; /* asked for huge pages */
    uint8_t spare;
    struct macro *next_empty, *prev_empty; /* those of which all slices are free */
    struct source *source;
    uint32_t n_dirty_free;
    uint32_t generation; /* of its source: another one means that it is not the source's any more */
    uint64_t free[MACRO_WORDS];  /* slices that no slab has */
    uint64_t dirty[MACRO_WORDS]; /* slices whose memory may be resident and not zero */
    /* slices that are not free while the kernel is asked to take their memory */
    uint64_t purging[MACRO_WORDS];
    uint64_t spare_words[3];
};
static_assert(offsetof(struct macro, back) == offsetof(struct slab, back) &&
                  offsetof(struct macro, class) == offsetof(struct slab, class),
              "read as a slab, it is an unused one");
static_assert(sizeof(struct macro) == sizeof(struct slab), "it takes the place of a descriptor");

static inline struct macro *macro_of(const void *address)
{
    return (struct macro *)((uintptr_t)address & ~(uintptr_t)(MACRO_BYTES - 1));
}

static inline struct slab *macro_slab(struct macro *m, unsigned slice)
{
    return (struct slab *)m + slice;
}

static inline unsigned slab_slice(const struct slab *s)
{
    return (unsigned)((uintptr_t)s % MACRO_BYTES / sizeof(*s));
}

static inline char *slab_memory(const struct slab *s)
{
    return (char *)macro_of(s) + ((size_t)slab_slice(s) << SLICE_SHIFT);
}

/* Bytes between the start of a slab and an address in it. Descriptors lie in the order of their slices, so the distance between two descriptors is
 * that of their slices, by a factor. */
static inline uint32_t slab_distance(const struct slab *s, const void *address)
{
    static_assert((int)SLICE_BYTES % sizeof(*s) == 0, "a whole factor");
    uint32_t start = (uint32_t)(uintptr_t)s * (SLICE_BYTES / sizeof(*s));
    return ((uint32_t)(uintptr_t)address - start) % MACRO_BYTES;
}

/* The slab of a block, of which is known that its unit is MAP_MACRO. */
static inline struct slab *slab_of(const void *block)
{
    uintptr_t at = (uintptr_t)block;
    struct slab *s =
        (struct slab *)(at & ~(uintptr_t)(MACRO_BYTES - 1)) + (at >> SLICE_SHIFT) % MACRO_SLICES;
    return s - s->back;
}

/* Blocks that are with the program, strays or on the remote list. Its owner's to ask; others may see the figures of two moments, of more
 * blocks than there are. */
static inline uint32_t slab_out(const struct slab *s)
{
    uint32_t used = load_relaxed(&s->used), held = load_relaxed(&s->held);
    uint32_t current = load_relaxed(&s->current);
    return held ? s->limit + used - held : used > current ? used - current : 0;
}

/* So many free blocks end its being FULL, whoever frees them. */
static inline uint32_t slab_full_end(const struct slab *s)
{
    return s->limit < SLAB_FULL_PART ? 1 : s->limit / SLAB_FULL_PART;
}

/* Blocks of one slab, linked by their first word; the last one's is whatever it is. */
struct slab_list {
    void *first, *last;
    uint32_t n;
};

/* ---- the remote word ---- */

/* In the pool, the word also tells how many blocks were in use when the slab came there: who frees one has to know in the moment of
 * the swap whether it is the last, and a figure beside the word may be that of an earlier stay. */
enum { REMOTE_COUNT_SHIFT = 2, REMOTE_USED_SHIFT = 17, REMOTE_HEAD_SHIFT = 32 };
#define REMOTE_COUNT_MAX ((UINT32_C(1) << (REMOTE_USED_SHIFT - REMOTE_COUNT_SHIFT)) - 1)

static inline enum slab_state remote_state(uint64_t word)
{
    return (enum slab_state)(word & 3);
}

static inline uint32_t remote_count(uint64_t word)
{
    return (uint32_t)word >> REMOTE_COUNT_SHIFT & REMOTE_COUNT_MAX;
}

/* Of a slab in the pool. */
static inline uint32_t remote_used(uint64_t word)
{
    return (uint32_t)word >> REMOTE_USED_SHIFT;
}

/* The first of the list, or NULL. */
static inline void *remote_head(const struct slab *s, uint64_t word)
{
    uint32_t place = (uint32_t)(word >> REMOTE_HEAD_SHIFT); /* in units of 16 bytes, from 1 */
    return place ? slab_memory(s) + (size_t)(place - 1) * SIZE_STEP : NULL;
}

static inline uint64_t remote_word(const struct slab *s, enum slab_state state, uint32_t count,
                                   const void *head)
{
    uint64_t place = head ? (uint64_t)((const char *)head - slab_memory(s)) / SIZE_STEP + 1 : 0;
    return place << REMOTE_HEAD_SHIFT | (uint64_t)count << REMOTE_COUNT_SHIFT | state;
}

static inline uint64_t remote_pooled(const struct slab *s, uint32_t used, uint32_t count,
                                     const void *head)
{
    return remote_word(s, SLAB_POOLED, count, head) | (uint64_t)used << REMOTE_USED_SHIFT;
}

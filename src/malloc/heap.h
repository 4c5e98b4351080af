/*
 * heap.h: the allocation chain of a thread.
 *
 * A heap has, for each size class, slabs that it owns:
 *   open   with free blocks. The first one is current: blocks come from it, without a lock or an atomic instruction;
 *   held   with few or none. Their `used` counts how many blocks have to come back still before heap_slab_emptied() is called, as by the
 *          last one of any other slab.
 * `direct` and `way` lead to the current slab from the size alone; where a thread has few blocks, to one that several classes share
 * (bin.h).
 *
 * The functions that a program calls look at heap_fast. It is the thread's own heap, or heap_none, which has no block and owns no
 * slab: then every call goes the long way (divert.h), where all that is unusual is told apart. So what is switched off costs nothing.
 * A thread that has a heap and whose blocks are accounted has heap_accounted there, which is as empty, and a shorter way.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/single_threaded.h>

#include "malloc/macro.h"
#include "malloc/strays.h"

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum {
    HEAP_SPARES = 4,       /* runs of one slice that a heap keeps, and as many of two */
    HEAP_SPARE_SLICES = 2, /* so many at most */
    HEAP_SPARE_PART = 16,  /* of slabs one, and one for so many slices held, beside other threads */
    HEAP_BIN_SLICES = 8,   /* slabs with free blocks that a heap keeps of a class, in slices */
    HEAP_BIN_BLOCKS = 64,  /* or in blocks, before it takes over slabs of others */
    HEAP_HELD_SHARE = 8,   /* slabs without one, of all classes, where there are more threads: an */
    HEAP_HELD_MIN = 64,    /* eighth of what is in use, but not less nor more than so many slices */
    HEAP_HELD_MAX = 128,
    HEAP_HELD_PART = 8,    /* of its blocks have to be free before one is looked at again, */
    HEAP_HELD_LOOKS = 2,   /* of these, how many are looked at for blocks that others freed, */
    HEAP_STIR = 4096,      /* and so many are let go once there were some */
    HEAP_SHARED = 32,      /* blocks of a class, while others share its slabs (bin.h), */
    HEAP_SHARED_SLABS = 4, /* or slabs, while they have room */
    HEAP_KEPT = 4,         /* longer runs of large blocks that it keeps, */
    HEAP_KEPT_SLICES = 64, /* of this size together, at most */
    HEAP_AGE_CALLS = 256,  /* times that the slow way is taken between two looks at what is kept */
    HEAP_DIRECT = SIZE_DIRECT_MAX / SIZE_STEP + 1,
    HEAP_LARGE_MAX = 1 << 20, /* more has a mapping of its own: huge.h */
};

struct slabs {
    struct slab *
        first; /* whose `prev` is the last one; there is one of these for each class in every thread */
    uint32_t n;
    union {
        uint32_t stir;  /* of those held: how many are let go before one is held again */
        uint32_t begun; /* of open ones: the thread has had a slab of the class */
    };
};

struct bin {
    struct slabs open, held;
};

struct spares {
    struct slab *runs[HEAP_SPARES]; /* the last is the newest */
    uint32_t n;
};

struct heap {
    struct slab *direct[HEAP_DIRECT];
    /* SIZE_DIRECT_MAX; 0 in those that never have a block, so that little is asked of them in vain. Constant. */
    size_t direct_max;
    bool alone; /* there was no other thread when it was last looked */
    /* heap_none ends here. */
    struct slab *way[SIZE_CLASSES]; /* as `direct`, by class */
    uint64_t sharing, grown; /* classes that share slabs of another, and that do so no more */
    struct bin bin[SIZE_CLASSES];
    struct spares spare[HEAP_SPARE_SLICES]; /* of one slice, of two */
    struct slab *kept[HEAP_KEPT]; /* of large blocks that it freed; the last is the newest */
    uint32_t n_kept;
    struct source *source;
    struct heap *next;                 /* all of them, for walks */
    struct heap *next_free;            /* of no thread */
    bool on_node;                      /* of memoir_malloc_on_node(): does not follow a thread */
    int32_t tid;                       /* 0: of no thread */
    int32_t pid;                       /* of that thread's process */
    uint32_t held_slices;              /* of all slabs that it holds */
    uint32_t held_most;                /* so many at most, when it was last looked */
    uint64_t large_allocs, slow_calls; /* only its own thread adds */
    struct strays strays[SIZE_CLASSES];
} __attribute__((aligned(64))); /* those of two threads share no cache line */

extern struct slab slab_none __attribute__((visibility("hidden")));
extern struct heap heap_none __attribute__((visibility("hidden"))); /* its first fields alone */
extern struct heap heap_accounted __attribute__((visibility("hidden")));
extern struct heap *heap_all __attribute__((visibility("hidden"))); /* under heaps_lock */

extern __thread struct heap *heap_fast
    __attribute__((visibility("hidden"), tls_model("initial-exec")));
extern __thread struct heap *heap_own
    __attribute__((visibility("hidden"), tls_model("initial-exec")));

/* This thread's heap, made if need be. NULL: there is no memory for one, or the thread is ending: then heap_borrow(). */
struct heap *heap_get(void);

/* For one call of a thread that has none. NULL: no memory. */
struct heap *heap_borrow(void);
void heap_return(struct heap *h);

/* Modes or the default chain have changed: which way does this thread go now? */
void heap_fast_set(void);

/* The long ways: blocks of any size. NULL without errno if there is no memory. */
void *heap_alloc_slowly(struct heap *h, size_t bytes);
void *heap_alloc_aligned(struct heap *h, size_t bytes, size_t align);
/* All zero. */
void *heap_alloc_zero(struct heap *h, size_t bytes);

/* A block of a macro-block's. `h` may be NULL. */
void heap_free_slowly(struct heap *h, struct slab *s, void *block);

/* The last block of a slab came back to its owner, or as many of a slab that is held as it waited for. */
void heap_slab_emptied(struct heap *h, struct slab *s);

/* Hand over what `from` has freed of slabs that are not its own: on its own behalf, or for a heap without a thread. `h` may be NULL. */
void heap_send_strays(struct heap *h, struct heap *from);

/* There are other threads now: let go what was held as if there were none. */
void heap_not_alone(struct heap *h);

/* Where pthread_create() comes by, before there is a second thread: in calloc(). */
static inline __attribute__((always_inline)) void heap_look_around(struct heap *h)
{
    if (unlikely(h->alone && !__libc_single_threaded))
        heap_not_alone(h);
}

/* Give back all that is not needed: of this heap alone. */
void heap_trim(struct heap *h);

/* Give its runs and current slabs to the source, as far as no block is in them: a few for each class, which would keep macro-blocks from being
 * empty. */
void heap_give_empty(struct heap *h);

/* Give all its slabs away: nobody uses it any more. */
void heap_leave(struct heap *h);

/* large.c: blocks with slices of their own. */
void *large_alloc(struct heap *h, size_t bytes, size_t align, bool zero);
void large_free(struct heap *h, struct slab *s);
void large_trim(struct heap *h);
/* In place; false if it has to move. */
bool large_resize(struct slab *s, size_t bytes);

static inline size_t large_usable(const struct slab *s)
{
    return ((size_t)s->slices << SLICE_SHIFT) - s->start;
}

static inline size_t slab_usable(const struct slab *s)
{
    return unlikely(s->class == SLAB_LARGE) ? large_usable(s) : s->block_bytes;
}

/* Is this where a block of a slab with a class begins? */
static inline __attribute__((always_inline)) bool slab_starts(const struct slab *s,
                                                              const void *block)
{
    return size_divides(s->class, slab_distance(s, block));
}

/* May it be a block of that slab? Not seen is whether it was given out. */
static inline bool slab_may_have(const struct slab *s, const void *block)
{
    if (unlikely((uintptr_t)block % MACRO_BYTES < SLICE_BYTES))
        return false;
    if (s->class == SLAB_LARGE)
        return block == slab_memory(s) + s->start;
    return s->class < SIZE_CLASSES && s->block_bytes != 0 && slab_starts(s, block);
}

/* Is that wrong for sure, of a slab that the heap owns? Two instructions: the rest of what could be seen (slab_starts()) is a tenth of what free()
 * takes. */
static inline __attribute__((always_inline)) bool slab_refuses(const struct slab *s,
                                                               const void *block)
{
    return unlikely(block == s->free || (uintptr_t)block % SIZE_STEP != 0);
}

/* ---- the short ways ---- */

static inline __attribute__((always_inline)) void *slab_pop(struct slab *s)
{
    void *block = s->free;
    if (likely(block)) {
        void *next = *(void **)block;
        s->free = next;
        s->used++;
        __builtin_prefetch(next, 1); /* for the call after this one */
    }
    return block;
}

/* A block of up to SIZE_DIRECT_MAX bytes, or NULL. */
static inline __attribute__((always_inline)) void *heap_pop(struct heap *h, size_t bytes)
{
    return slab_pop(h->direct[(bytes + SIZE_STEP - 1) / SIZE_STEP]);
}

/* Of a slab that the heap owns. */
static inline __attribute__((always_inline)) void heap_push(struct heap *h, struct slab *s,
                                                            void *block)
{
    *(void **)block = s->free;
    s->free = block;
    if (unlikely(--s->used == 0))
        heap_slab_emptied(h, s);
}

/* Where a block of more than SIZE_DIRECT_MAX bytes, up to SIZE_SMALL_MAX, comes from first. */
static inline __attribute__((always_inline)) struct slab *heap_slab_further(struct heap *h,
                                                                            size_t bytes)
{
    return h->way[size_class(bytes)];
}

/* Such a block, or NULL. */
static inline __attribute__((always_inline)) void *heap_pop_further(struct heap *h, size_t bytes)
{
    return slab_pop(heap_slab_further(h, bytes));
}

/* One of up to SIZE_SMALL_MAX bytes, or NULL. */
static inline __attribute__((always_inline)) void *heap_pop_small(struct heap *h, size_t bytes)
{
    return likely(bytes <= SIZE_DIRECT_MAX) ? heap_pop(h, bytes) : heap_pop_further(h, bytes);
}

static inline __attribute__((always_inline)) void *heap_alloc(struct heap *h, size_t bytes)
{
    if (likely(bytes <= SIZE_SMALL_MAX)) {
        void *block = heap_pop_small(h, bytes);
        if (likely(block))
            return block;
    }
    return heap_alloc_slowly(h, bytes);
}

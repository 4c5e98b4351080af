/*
 * strays.h: what a thread has freed of slabs that are not its own, and has not handed over yet.
 *
 * Handing a block over takes an atomic instruction on a cache line that other threads write, too. So they are kept by size class, a
 * few of each, where the thread does not allocate that class itself; then all are handed over, with one atomic instruction. Those of a
 * class are all of one slab: each slab that has one cannot be given back, for as long as the thread is idle.
 *
 * For everybody else they are still with the program, and their slabs are in use. All is its thread's, and stored in an order that
 * leaves blocks unused at worst when a child is forked in between.
 */
#pragma once

#include "malloc/macro.h"

enum {
    STRAYS_MOST = 16,   /* of a class, */
    STRAYS_BYTES = 4096 /* or so many bytes, or two */
};

struct strays {
    void *first; /* linked by their first word */
    uint32_t n;
};

/* A block of the slab that the others are of, if there are any. True: there are enough of them. */
static inline bool strays_add(struct strays *strays, void *block, uint32_t block_bytes)
{
    *(void **)block = strays->first;
    fence_signal();
    strays->first = block;
    uint32_t n = ++strays->n;
    return n >= STRAYS_MOST || (n > 1 && n * block_bytes >= STRAYS_BYTES);
}

/* Take all of them, of which there are some. They are counted: `n` may be one behind in a child that was forked in between. */
struct slab_list strays_take(struct strays *strays);

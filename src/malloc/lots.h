/*
 * lots.h: memory for the words that lie beside slabs (words.h).
 *
 * A lot is a megabyte that is mapped for arrays of words alone, and stays mapped: who reads from outside finds what he was led
 * to. It has parts, in which arrays lie one after the other. An array that no slab has is in the list of its size, linked through
 * itself both ways, and serves the next slab that needs as many words.
 *
 * A part of which no slab has an array is idle. So many of these keep their memory as there may be empty macro-blocks: two, and one for every
 * eight that are in use. What is more gives its memory to the kernel while words are given back, all of them by lots_trim(). Then
 * a part is blank: it has no arrays, and others can be cut from it.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LOT_BYTES = 1 << 20,
    LOT_PARTS = 16,
    LOT_PART_BYTES = LOT_BYTES / LOT_PARTS,
    LOT_ARRAY_MIN = 32, /* has to hold the links */
    LOT_ARRAY_MAX = 8 << 10,
};

/* The first bytes of a lot, which lies at a multiple of its size. */
struct words_lot {
    struct words_lot *next;   /* constant; for who reads from outside, who needs nothing else */
    uint16_t used[LOT_PARTS]; /* arrays that slabs have */
    uint16_t cut[LOT_PARTS];  /* where the next one begins, in grains from the start of the part */
    uint64_t spare[7];
};
static_assert(sizeof(struct words_lot) == 128, "two cache lines");
enum { LOT_GRAIN = 16, LOT_HEADER = sizeof(struct words_lot) / LOT_GRAIN };

/* The newest; for who reads from outside. */
extern struct words_lot *words_lots __attribute__((visibility("hidden")));

/* An array of so many bytes, all zero; LOT_ARRAY_MAX at most. NULL: no memory. */
void *lots_take(size_t bytes);

/* Give it back, all zero again. */
void lots_give(void *array, size_t bytes);

/* Give the memory of all idle parts to the kernel. True if there was any. */
bool lots_trim(void);

/* Around fork(). */
void lots_fork_prepare(void);
void lots_fork_done(bool child);

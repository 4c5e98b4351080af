/*
 * map.h: what lies at an address, for free().
 *
 * One byte for each 2 MiB of address space, in two levels: half a MiB for each TiB that is used. Readers take no lock; a byte is
 * stored before the first block of its unit is given out, and cleared after the last one is gone.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"

enum map_kind {
    MAP_NONE = 0,
    MAP_MACRO = 1, /* a macro-block of ours: see macro.h */
    MAP_HUGE = 2,  /* a huge block starts here, with its header at the unit's start */
    MAP_HUGE_ALONE =
        3, /* the same with its header before the unit: for alignments of 2 MiB and more */
};

enum {
    MAP_UNIT_SHIFT = 21,
    MAP_LEAF_SHIFT = 13, /* units for a leaf: 16 GiB of addresses */
#if defined(__x86_64__)
    MAP_TOP_SHIFT = 13, /* 47 bits of address */
#else
    MAP_TOP_SHIFT = 14,
#endif
};
#define MAP_UNIT_BYTES ((size_t)1 << MAP_UNIT_SHIFT)

/* Distance of a leaf from map_nothing, so that what is not there needs no test. */
extern uintptr_t map_top[1 << MAP_TOP_SHIFT] __attribute__((visibility("hidden")));
extern uint8_t map_nothing[1 << MAP_LEAF_SHIFT] __attribute__((visibility("hidden")));

static inline uint8_t *map_byte(const void *address)
{
    uintptr_t unit = (uintptr_t)address >> MAP_UNIT_SHIFT;
    uintptr_t leaf = load_relaxed(&map_top[(unit >> MAP_LEAF_SHIFT) % (1 << MAP_TOP_SHIFT)]);
    return (uint8_t *)((uintptr_t)map_nothing + leaf) + unit % (1 << MAP_LEAF_SHIFT);
}

static inline enum map_kind map_kind(const void *address)
{
    return (enum map_kind)load_relaxed(map_byte(address));
}

/* Set the kind of every unit that [address, address + bytes) touches. False if there is no memory for a leaf: then nothing
 * was changed. Setting MAP_NONE always succeeds. Any number of threads, for different units. */
bool map_set(const void *address, size_t bytes, enum map_kind kind);

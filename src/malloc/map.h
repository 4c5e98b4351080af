/*
 * map.h: what lies at an address, for free().
 *
 * One byte for each 2 MiB of address space. Those of the 256 GiB where the first of our mappings came to lie, and the kernel puts nearly all
 * others, are side by side: one load tells. The rest is in two levels, made when something lies there: half a MiB for each TiB that is
 * used. Readers take no lock; a byte is stored before the first block of its unit is given out, and cleared after the last one is gone.
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
    MAP_NEAR_UNITS = 1 << 17,
    MAP_LEAF_SHIFT = 13, /* units for a leaf: 16 GiB of addresses */
#if defined(__x86_64__)
    MAP_TOP_SHIFT = 13, /* 47 bits of address */
#else
    MAP_TOP_SHIFT = 14,
#endif
};
#define MAP_UNIT_BYTES ((size_t)1 << MAP_UNIT_SHIFT)

/* The units next to each other. `map_near_from` is set once, before anything is told: 0 until then. */
extern uintptr_t map_near_from __attribute__((visibility("hidden")));
extern uint8_t map_near[MAP_NEAR_UNITS] __attribute__((visibility("hidden")));

/* The byte of a unit anywhere else, or of one where nothing lies. */
uint8_t *map_far(const void *address);

/* Counted from the first near one; others are MAP_NEAR_UNITS and more. */
static inline uintptr_t map_near_unit(const void *address)
{
    return ((uintptr_t)address - load_relaxed(&map_near_from)) >> MAP_UNIT_SHIFT;
}

static inline uint8_t *map_byte(const void *address)
{
    uintptr_t unit = map_near_unit(address);
    return unit < MAP_NEAR_UNITS ? &map_near[unit] : map_far(address);
}

/* Without a call of a function. False: perhaps it is not near. */
static inline bool map_is_near_macro(const void *address)
{
    uintptr_t unit = map_near_unit(address);
    return __builtin_expect(unit < MAP_NEAR_UNITS, 1) && load_relaxed(&map_near[unit]) == MAP_MACRO;
}

static inline enum map_kind map_kind(const void *address)
{
    return (enum map_kind)load_relaxed(map_byte(address));
}

/* Set the kind of every unit that [address, address + bytes) touches. False if there is no memory for a leaf: then nothing
 * was changed. Setting MAP_NONE always succeeds. Any number of threads, for different units. */
bool map_set(const void *address, size_t bytes, enum map_kind kind);

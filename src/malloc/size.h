/*
 * size.h: size classes.
 *
 * Small blocks come in steps of 16 bytes up to 256, then in eight steps for each doubling up to 32 KiB: a block
 * is at most an eighth larger than what was asked for, a sixteenth on average. Every class is a multiple of 16, and
 * every power of two is a class, so that a class whose size is a multiple of A serves alignment A.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    SIZE_STEP = 16,
    SIZE_FINE_MAX = 256, /* steps of 16 up to here */
    SIZE_CLASSES = 72,
    SIZE_DIRECT_MAX = 1024,    /* a heap finds slabs of these sizes without computing a class */
    SIZE_SMALL_MAX = 32 << 10, /* the largest class */
};

/* Of 0 to SIZE_SMALL_MAX bytes. */
static inline unsigned size_class(size_t bytes)
{
    if (bytes <= SIZE_FINE_MAX)
        return bytes == 0 ? 0 : (unsigned)(bytes - 1) / SIZE_STEP;
    unsigned power = 63 - (unsigned)__builtin_clzll(bytes - 1);
    return 16 + (power - 8) * 8 + ((unsigned)((bytes - 1) >> (power - 3)) - 8);
}

static inline uint32_t size_of_class(unsigned c)
{
    if (c < 16)
        return (c + 1) * SIZE_STEP;
    unsigned power = 8 + (c - 16) / 8;
    return (9 + (c - 16) % 8) << (power - 3);
}

/* Slices of 16 KiB that a slab of the class takes: enough blocks that the way to the source is seldom taken, few
 * enough that slabs become empty again, and little left over at the end. */
extern const uint8_t size_slices[SIZE_CLASSES];

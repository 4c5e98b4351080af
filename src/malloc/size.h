/*
 * size.h: size classes.
 *
 * Small blocks come in steps of 16 bytes up to 256, then in eight steps for each doubling up to 10 KiB: a block
 * is at most an eighth larger than what was asked for, a sixteenth on average. Every class is a multiple of 16, and
 * every power of two is a class, so that a class whose size is a multiple of A serves alignment A.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    SIZE_STEP = 16,
    SIZE_FINE_MAX = 256, /* steps of 16 up to here */
    SIZE_CLASSES = 58,
    SIZE_DIRECT_MAX = 1024,    /* a heap finds blocks of these sizes without computing a class */
    SIZE_SMALL_MAX = 10 << 10, /* the largest class; what is larger has slices of its own */
};

/* Of 0 to SIZE_SMALL_MAX bytes. */
static inline unsigned size_class(size_t bytes)
{
    if (bytes <= SIZE_FINE_MAX)
        return bytes == 0 ? 0 : (unsigned)(bytes - 1) / SIZE_STEP;
    unsigned power = 63 ^ (unsigned)__builtin_clzll(bytes - 1); /* one instruction */
    return 16 + (power - 8) * 8 + ((unsigned)((bytes - 1) >> (power - 3)) - 8);
}

static inline uint32_t size_of_class(unsigned c)
{
    if (c < 16)
        return (c + 1) * SIZE_STEP;
    unsigned power = 8 + (c - 16) / 8;
    return (9 + (c - 16) % 8) << (power - 3);
}

/* Slices of 16 KiB that a slab of the class takes, one or two: a slab that is small becomes empty soon, and its slices serve
 * another class. What is left over at its end is never touched. */
extern const uint8_t size_slices[SIZE_CLASSES];

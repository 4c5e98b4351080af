/*
 * size.h: size classes.
 *
 * Small blocks come in steps of 16 bytes up to 256, then in eight steps for each doubling up to 1 KiB. Above that a slab has so few
 * blocks that what is left over at its end counts: most classes there are what one or two slices hold of three, four, five and
 * so on, down to a multiple of a cache line. The steps are smallest behind a power of two, where the blocks of programs are that put
 * some bytes of their own before a page; the pages of SQLite, of 4,368 bytes, have three slices. A block is at most a seventh larger than what was
 * asked for, a sixteenth on average, and below 8 KiB by less than 512 bytes (words.h): but for the few of a heap that share slabs (bin.h).
 *
 * Every class is a multiple of 16, above 1 KiB of 64, and every power of two is a class, so that a class whose size is a multiple of A serves
 * alignment A.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    SIZE_STEP = 16,
    SIZE_FINE_MAX = 256, /* steps of 16 up to here */
    SIZE_LINE = 64,
    SIZE_DIRECT_MAX = 1024, /* a heap finds blocks of these sizes without computing a class */
    SIZE_DIRECT_CLASSES = 32,
    SIZE_SMALL_MAX = 10624, /* the largest class; what is larger has slices of its own */
    SIZE_CLASSES = 59,
};

/* Above SIZE_DIRECT_MAX: the class by the number of the cache line where a block ends, and its size. */
enum { SIZE_LINES = (SIZE_SMALL_MAX - SIZE_DIRECT_MAX) / SIZE_LINE };
extern const uint8_t size_by_line[SIZE_LINES] __attribute__((visibility("hidden")));
extern const uint16_t size_further[SIZE_CLASSES - SIZE_DIRECT_CLASSES]
    __attribute__((visibility("hidden")));

/* Of 0 to SIZE_SMALL_MAX bytes. */
static inline unsigned size_class(size_t bytes)
{
    if (bytes <= SIZE_FINE_MAX)
        return bytes == 0 ? 0 : (unsigned)(bytes - 1) / SIZE_STEP;
    if (bytes > SIZE_DIRECT_MAX)
        return size_by_line[(bytes - 1 - SIZE_DIRECT_MAX) / SIZE_LINE];
    unsigned power = 63 ^ (unsigned)__builtin_clzll(bytes - 1); /* one instruction */
    return 16 + (power - 8) * 8 + ((unsigned)((bytes - 1) >> (power - 3)) - 8);
}

static inline uint32_t size_of_class(unsigned c)
{
    if (c < 16)
        return (c + 1) * SIZE_STEP;
    if (c >= SIZE_DIRECT_CLASSES)
        return size_further[c - SIZE_DIRECT_CLASSES];
    unsigned power = 8 + (c - 16) / 8;
    return (9 + (c - 16) % 8) << (power - 3);
}

/* Slices of 16 KiB that a slab of the class takes: as few as are well filled, since a slab that is small becomes empty soon, and its
 * slices serve another class; more where others share it and it would have four blocks. What is left over at its end is never touched. */
extern const uint8_t size_slices[SIZE_CLASSES] __attribute__((visibility("hidden")));

/* 2^32 divided by the size of the class, rounded up. */
extern const uint32_t size_check[SIZE_CLASSES] __attribute__((visibility("hidden")));

/* Is a distance from the start of a slab, up to 2^18, a multiple of the class's size? A multiplication instead of a division: the product is less than the
 * factor for multiples alone. */
static inline __attribute__((always_inline)) int size_divides(unsigned class, uint32_t distance)
{
    uint32_t check = size_check[class];
    return distance * check < check;
}

/* The class whose slabs serve this one as well, while a heap has few blocks (bin.h): that of the next power of two from 64 bytes on, or itself. And how many
 * there are, right before it, that this is so for. */
extern const uint8_t size_shared[SIZE_CLASSES] __attribute__((visibility("hidden")));
extern const uint8_t size_sharers[SIZE_CLASSES] __attribute__((visibility("hidden")));

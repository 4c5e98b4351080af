/*
 * nursery.h: the first blocks of a process, side by side.
 *
 * Each size class has pages of its own, and a heap, its source, a macro-block and the address map have some more: for a program that asks
 * for forty blocks that is more than the blocks. So what the first thread asks for at first lies here, whatever its size, in one
 * small region of the library's own memory, found by first fit. As long as that lasts, the thread has no heap (heap_fast is heap_none),
 * and nothing is asked of the kernel or of the C library.
 *
 * It ends for good with the NURSERY_CALLSth block, when the region is full, when a second thread is there, and when a mode begins
 * that wants to know its blocks. From then on nothing is given out here: blocks stay until they are freed, by whomever, and what they
 * leave is not used again.
 *
 * Blocks have no headers: one bit for every 16 bytes tells where a block starts, another one whether it is in use. Those of the first
 * blocks lie before them, those of further ones at the end of the region, which a small program never comes to. The region may share
 * its 2 MiB of address space with anything, a huge block of ours included: where an address may be one of these, ask
 * nursery_has() before the map (map.h) is believed. A macro-block alone has such a unit to itself.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"

enum {
    NURSERY_BYTES = 128 << 10,
    NURSERY_STEP = 16,
    NURSERY_WORDS = NURSERY_BYTES / NURSERY_STEP / 64,
    NURSERY_NEAR = 24,            /* words of bits, for as many KiB: of nearly all small programs */
    NURSERY_CALLS = 1024,         /* blocks that are given out, in all */
    NURSERY_BLOCK_MAX = 33 << 10, /* more is a heap's; what opendir() asks for is not */
};

/* Of 64 places. */
struct nursery_bits {
    uint64_t starts; /* of a block, in use or free */
    uint64_t live;   /* those in use */
};

/* While it is open its thread's alone, plainly. Then `live` changes by atomic instructions and the rest is constant. */
struct nursery {
    uint32_t end; /* nothing starts from this place on; 0: the first one */
    uint32_t calls;
    uint32_t closed; /* any thread, relaxed */
    uint32_t spare;
    struct nursery_bits near[NURSERY_NEAR];
};

/* Its record comes first, so that it shares a page with the first blocks. */
union nursery_region {
    struct nursery now;
    char bytes[NURSERY_BYTES];
    struct {
        char blocks[NURSERY_BYTES - (NURSERY_WORDS - NURSERY_NEAR) * sizeof(struct nursery_bits)];
        struct nursery_bits far[NURSERY_WORDS - NURSERY_NEAR];
    };
};
extern union nursery_region nursery_region __attribute__((visibility("hidden")));

enum {
    NURSERY_FIRST = (sizeof(struct nursery) + NURSERY_STEP - 1) / NURSERY_STEP,
    NURSERY_PLACES = offsetof(union nursery_region, far) / NURSERY_STEP,
};

/* Does the address lie where its blocks do? */
static inline bool nursery_has(const void *p)
{
    return (uintptr_t)p - (uintptr_t)&nursery_region < NURSERY_BYTES;
}

static inline bool nursery_is_closed(void)
{
    return load_relaxed(&nursery_region.now.closed);
}

void nursery_close(void);

/* NULL: a heap has to serve it. `align` is a power of two. */
void *nursery_alloc(size_t bytes, size_t align);

/* False: no block that is in use starts there. Any thread. */
bool nursery_free(void *p);

/* 0: no block that is in use starts there. */
size_t nursery_usable(const void *p);

/* The block in use around an address; NULL: none. */
void *nursery_around(const void *p);

/* Blocks in use, and their bytes. */
uint64_t nursery_count(uint64_t *ret_bytes);

/* Do the bits agree? The first place where they do not, or 0. */
uint32_t nursery_check(void);

/*
 * core.h: the allocator proper, for whoever stands in front of it: the functions of the C library (entry.c), accounting,
 * hardening. Blocks of any size, for this thread, whatever modes it is in. NULL means no memory; errno is not set here, and free
 * keeps it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "malloc/heap.h"

void *core_malloc_slowly(size_t bytes);
void *core_calloc(size_t bytes);
/* `block` is one of core's. NULL leaves it as it is. */
void *core_realloc(void *block, size_t bytes);
void *core_memalign(size_t align, size_t bytes); /* a power of two */
void core_free_slowly(void *block);
size_t core_usable(const void *block); /* 0: no block of ours */

/* May a block stay where it is when it is resized? One that would be more than half empty moves. */
static inline bool core_fits(size_t usable, size_t bytes)
{
    return bytes <= usable && (bytes > usable / 2 || usable <= 4 * SIZE_STEP);
}

/* Give all that is free back to the kernel. True if there was any. */
bool core_trim(void);

static inline __attribute__((always_inline)) void *core_malloc(size_t bytes)
{
    struct heap *h = heap_own;
    if (likely(h && bytes <= SIZE_DIRECT_MAX)) {
        void *block = heap_pop(h, bytes);
        if (likely(block))
            return block;
    }
    return core_malloc_slowly(bytes);
}

static inline __attribute__((always_inline)) void core_free(void *block)
{
    struct heap *h = heap_own;
    if (likely(map_kind(block) == MAP_MACRO && h)) {
        struct slab *s = slab_of(block);
        if (likely(load_relaxed(&s->owner) == h)) {
            heap_push(h, s, block);
            return;
        }
    }
    core_free_slowly(block);
}

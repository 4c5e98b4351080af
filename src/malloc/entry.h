/* entry.h: what entry.c and entry_cxx.c share. */
#pragma once

#include "malloc/account.h"
#include "malloc/core.h"
#include "malloc/divert.h"

#define EXPORT __attribute__((visibility("default")))
#define CALLER ((uintptr_t)__builtin_return_address(0))

/* Where there was none at hand; `h` is this thread's heap_fast. */
void *entry_malloc_slowly(struct heap *h, size_t bytes, uintptr_t caller)
    __attribute__((noinline)); /* or the short way saves registers */

static inline __attribute__((always_inline)) void *entry_malloc(size_t bytes, uintptr_t caller)
{
    struct heap *h = heap_fast;
    void *block = NULL;
    if (likely(bytes <= h->direct_max)) {
        block = heap_pop(h, bytes);
    } else if (h == &heap_accounted) {
        return account_malloc_own(bytes, caller);
    } else if (likely(bytes <= SIZE_SMALL_MAX && h->direct_max)) {
        if (bytes <= SIZE_DIRECT_MAX)
            __builtin_unreachable(); /* which direct_max is then: size_class() need not look */
        block = heap_pop_further(h, bytes);
    }
    if (likely(block))
        return block;
    if (h == &heap_accounted)
        return account_malloc_own(bytes, caller);
    return entry_malloc_slowly(h, bytes, caller);
}

/* The program freed what is no block, and ends. It is called last, so that the short way saves no registers: the compiler must not know that it does not
 * return, or it keeps a frame for the call. */
#if defined(__clang__)
void entry_error(void *block) __attribute__((noinline, cold));
#else
void entry_error(void *block) __attribute__((noipa, cold));
#endif

/* What is not in one of our macro-blocks, or not in a near one. */
void entry_free_further(void *block, uintptr_t caller) __attribute__((noinline));

static inline __attribute__((always_inline)) void entry_free_slab(void *block, uintptr_t caller)
{
    struct slab *s = slab_of(block);
    struct heap *h = heap_fast;
    if (likely(load_relaxed(&s->owner) == h)) {
        if (slab_refuses(s, block))
            entry_error(block);
        else
            heap_push(h, s, block);
    } else if (h == &heap_accounted) {
        account_free_own(block, s);
    } else {
        divert_free_slab(block, s, caller);
    }
}

static inline __attribute__((always_inline)) void entry_free(void *block, uintptr_t caller)
{
    if (likely(map_is_near_macro(block)))
        entry_free_slab(block, caller);
    else
        entry_free_further(block, caller);
}

/* What is rounded up to its alignment (a power of two) has a class of up to SIZE_DIRECT_MAX bytes that is a multiple of it: size.h.
 * NULL: it is larger, or there was none at hand. */
static inline __attribute__((always_inline)) void *entry_memalign_pop(size_t align, size_t bytes)
{
    if (unlikely((bytes | (align - 1)) >= SIZE_DIRECT_MAX)) /* as that of 0 is */
        return NULL;
    size_t whole = (bytes + (bytes == 0) + align - 1) & ~(align - 1);
    return heap_pop(heap_fast, whole);
}

static inline __attribute__((always_inline)) void *entry_memalign(size_t align, size_t bytes,
                                                                  uintptr_t caller)
{
    void *block = entry_memalign_pop(align, bytes);
    return likely(block) ? block : divert_memalign(align, bytes, caller);
}

/*
 * entry.c: the functions of the C library, as the program calls them.
 *
 * What nearly all calls need is here, in a few instructions; the rest is behind divert.h.
 */
#include "malloc/entry.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "malloc/heap_error.h"
#include "malloc/os.h"
#include "malloc/words.h"

void *entry_malloc_slowly(struct heap *h, size_t bytes, uintptr_t caller)
{
    void *block = h != &heap_none && bytes <= HEAP_LARGE_MAX ? heap_alloc_slowly(h, bytes) : NULL;
    return likely(block) ? block : divert_malloc(bytes, caller);
}

void entry_error(void *block)
{
    heap_error("free", block);
}

/* Apart from what a program without a heap runs (link.ld), as is what is called below for blocks of slabs. */
static __attribute__((noinline)) void free_slab(void *block, uintptr_t caller)
{
    entry_free_slab(block, caller);
}

void entry_free_further(void *block, uintptr_t caller)
{
    if (map_kind(block) == MAP_MACRO)
        free_slab(block, caller);
    else if (block)
        divert_free(block, caller);
}

/* Where these two begin in a cache line is worth some percent. */
#define ALIGNED __attribute__((aligned(64)))

EXPORT ALIGNED void *malloc(size_t bytes)
{
    return entry_malloc(bytes, CALLER);
}

EXPORT ALIGNED void free(void *block)
{
    entry_free(block, CALLER);
}

EXPORT void *calloc(size_t n, size_t each)
{
    size_t bytes;
    if (unlikely(__builtin_mul_overflow(n, each, &bytes))) {
        errno = ENOMEM;
        return NULL;
    }
    if (likely(bytes <= SIZE_DIRECT_MAX)) {
        struct heap *h = heap_fast;
        heap_look_around(h);
        void *block = heap_pop(h, bytes);
        if (likely(block))
            return memset(block, 0, bytes);
    }
    return divert_calloc(bytes, CALLER);
}

/* A block of the thread's own slabs comes to one that is at hand, as strings and lists do that grow; the rest goes the long way. Apart
 * from what a program without a heap runs (link.ld). */
static __attribute__((noinline)) void *realloc_slab(void *block, size_t bytes, uintptr_t caller)
{
    struct heap *h = heap_fast;
    struct slab *s = slab_of(block);
    if (unlikely(load_relaxed(&s->owner) != h || bytes > SIZE_SMALL_MAX))
        return h == &heap_accounted ? account_realloc(block, bytes, caller)
                                    : divert_realloc(block, bytes, caller);
    if (unlikely(slab_refuses(s, block) || !slab_starts(s, block)))
        heap_error("realloc", block);
    size_t had = s->block_bytes;
    if (core_fits(had, bytes))
        return block;
    void *to = heap_pop_small(h, bytes);
    if (unlikely(!to))
        return divert_realloc(block, bytes, caller);
    memcpy(to, block, had < bytes ? had : bytes);
    heap_push(h, s, block);
    return to;
}

static __attribute__((noinline)) void *entry_realloc(void *block, size_t bytes, uintptr_t caller)
{
    if (unlikely(!block))
        return entry_malloc(bytes, caller);
    if (unlikely(bytes == 0)) {
        entry_free_further(block, caller);
        return NULL;
    }
    return likely(map_is_near_macro(block)) ? realloc_slab(block, bytes, caller)
                                            : divert_realloc(block, bytes, caller);
}

EXPORT void *realloc(void *block, size_t bytes)
{
    return entry_realloc(block, bytes, CALLER);
}

EXPORT void *reallocarray(void *block, size_t n, size_t each)
{
    size_t bytes;
    if (unlikely(__builtin_mul_overflow(n, each, &bytes))) {
        errno = ENOMEM;
        return NULL;
    }
    return entry_realloc(block, bytes, CALLER);
}

static inline bool is_power(size_t align)
{
    return align != 0 && (align & (align - 1)) == 0;
}

/* glibc's memalign() takes any alignment, and rounds it up to the next power of two. */
EXPORT void *memalign(size_t align, size_t bytes)
{
    if (align > (size_t)1 << 62) {
        errno = EINVAL;
        return NULL;
    }
    size_t power = SIZE_STEP;
    while (power < align)
        power *= 2;
    return entry_memalign(power, bytes, CALLER);
}

EXPORT void *aligned_alloc(size_t align, size_t bytes)
{
    if (!is_power(align)) {
        errno = EINVAL;
        return NULL;
    }
    return entry_memalign(align, bytes, CALLER);
}

static __attribute__((noinline)) int posix_memalign_slowly(void **ret, size_t align, size_t bytes,
                                                           uintptr_t caller)
{
    int saved = errno;
    void *block = divert_memalign(align, bytes, caller);
    errno = saved;
    if (!block)
        return ENOMEM;
    *ret = block;
    return 0;
}

EXPORT int posix_memalign(void **ret, size_t align, size_t bytes)
{
    if (unlikely(!is_power(align) || align % sizeof(void *) != 0))
        return EINVAL;
    void *block = entry_memalign_pop(align, bytes);
    if (unlikely(!block))
        return posix_memalign_slowly(ret, align, bytes, CALLER);
    *ret = block;
    return 0;
}

EXPORT void *valloc(size_t bytes)
{
    return divert_memalign(os_page_bytes(), bytes, CALLER);
}

EXPORT void *pvalloc(size_t bytes)
{
    if (bytes > (size_t)PTRDIFF_MAX) {
        errno = ENOMEM;
        return NULL;
    }
    return divert_memalign(os_page_bytes(), os_page_up(bytes ? bytes : 1), CALLER);
}

/* Some programs ask of each block that they allocate and free. */
EXPORT size_t malloc_usable_size(void *block)
{
    struct heap *h = heap_fast;
    if (likely(h != &heap_none && map_kind(block) == MAP_MACRO)) {
        size_t usable = slab_usable(slab_of(block));
        if (likely(usable <= WORD_NEAR_MAX || h != &heap_accounted))
            return usable;
    }
    return block ? divert_usable(block) : 0;
}

EXPORT int malloc_trim(size_t pad)
{
    int saved = errno;
    bool any = core_trim();
    errno = saved;
    return any;
}

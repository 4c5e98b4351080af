/*
 * entry_embed.c: the allocator under names of its own, for programs that keep their malloc() and want ours beside it.
 *
 * The same heap, modes and chains as behind malloc(): where both are in a program, blocks may be freed by either.
 */
#include <errno.h>
#include <memoir/malloc.h>
#include <string.h>

#include "malloc/entry.h"

void *memoir_malloc(size_t bytes)
{
    return entry_malloc(bytes, CALLER);
}

void memoir_malloc_free(void *block)
{
    entry_free(block, CALLER);
}

void *memoir_malloc_calloc(size_t count, size_t bytes)
{
    size_t total;
    if (unlikely(__builtin_mul_overflow(count, bytes, &total))) {
        errno = ENOMEM;
        return NULL;
    }
    return divert_calloc(total, CALLER);
}

void *memoir_malloc_realloc(void *block, size_t bytes)
{
    if (unlikely(!block))
        return entry_malloc(bytes, CALLER);
    if (unlikely(bytes == 0)) {
        entry_free(block, CALLER);
        return NULL;
    }
    return divert_realloc(block, bytes, CALLER);
}

void *memoir_malloc_aligned(size_t alignment, size_t bytes)
{
    if (alignment == 0 || (alignment & (alignment - 1))) {
        errno = EINVAL;
        return NULL;
    }
    return divert_memalign(alignment, bytes, CALLER);
}

size_t memoir_malloc_usable(void *block)
{
    return block ? divert_usable(block) : 0;
}

/* divert.c: see divert.h. */
#include "malloc/divert.h"

#include <errno.h>

#include "malloc/core.h"
#include "malloc/settings.h"
#include "malloc/thread.h"

static void *or_enomem(void *block)
{
    if (unlikely(!block))
        errno = ENOMEM;
    return block;
}

void *divert_malloc(size_t bytes, uintptr_t caller)
{
    return or_enomem(core_malloc_slowly(bytes));
}

void *divert_calloc(size_t bytes, uintptr_t caller)
{
    return or_enomem(core_calloc(bytes));
}

void *divert_realloc(void *block, size_t bytes, uintptr_t caller)
{
    return or_enomem(core_realloc(block, bytes));
}

void *divert_memalign(size_t align, size_t bytes, uintptr_t caller)
{
    return or_enomem(core_memalign(align, bytes));
}

void divert_free(void *block, uintptr_t caller)
{
    core_free_slowly(block);
}

size_t divert_usable(void *block)
{
    return core_usable(block);
}

/* divert.c: see divert.h. */
#include "malloc/divert.h"

#include <errno.h>

#include "malloc/core.h"
#include "malloc/harden.h"
#include "malloc/settings.h"
#include "malloc/thread.h"

static void *or_enomem(void *block)
{
    if (unlikely(!block))
        errno = ENOMEM;
    return block;
}

/* Modes of this moment. */
static inline uint32_t modes(void)
{
    if (unlikely(!malloc_settings.read))
        start_modes();
    return load_relaxed(&thread_modes);
}

/* A block that was given out while it was not known yet what is wanted. */
static inline void *early(void *block)
{
    if (unlikely(!malloc_settings.read) && block)
        hard_early_add(block);
    return block;
}

/* Blocks in segments of the user's are not hardened. */
static inline bool hard_has(const void *block)
{
    return unlikely(modes() & MODE_HARDEN) && map_kind(block) != MAP_SEGMENT;
}

void *divert_malloc(size_t bytes, uintptr_t caller)
{
    if (unlikely(modes() & MODE_HARDEN))
        return or_enomem(hard_alloc(bytes, 1, false));
    return or_enomem(early(core_malloc_slowly(bytes)));
}

void *divert_calloc(size_t bytes, uintptr_t caller)
{
    if (unlikely(modes() & MODE_HARDEN))
        return or_enomem(hard_alloc(bytes, 1, true));
    return or_enomem(early(core_calloc(bytes)));
}

void *divert_realloc(void *block, size_t bytes, uintptr_t caller)
{
    if (hard_has(block))
        return or_enomem(hard_realloc(block, bytes));
    if (unlikely(!malloc_settings.read))
        hard_early_is(block, true);
    return or_enomem(early(core_realloc(block, bytes)));
}

void *divert_memalign(size_t align, size_t bytes, uintptr_t caller)
{
    if (unlikely(modes() & MODE_HARDEN))
        return or_enomem(hard_alloc(bytes, align, false));
    return or_enomem(early(core_memalign(align, bytes)));
}

void divert_free(void *block, uintptr_t caller)
{
    if (hard_has(block)) {
        hard_free(block);
        return;
    }
    if (unlikely(!malloc_settings.read))
        hard_early_is(block, true);
    core_free_slowly(block);
}

size_t divert_usable(void *block)
{
    return hard_has(block) ? hard_usable(block) : core_usable(block);
}

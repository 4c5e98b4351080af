/* divert.c: see divert.h. */
#include "malloc/divert.h"

#include <errno.h>
#include <string.h>

#include "malloc/account.h"
#include "malloc/atfork.h"
#include "malloc/chain_default.h"
#include "malloc/core.h"
#include "malloc/harden.h"
#include "malloc/nursery.h"
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

/* Is accounting what is wanted? Asked first, and without a call: an accounted program comes by here at every call. */
static inline bool accounted(void)
{
    return load_relaxed(&thread_modes) == MODE_ACCOUNT;
}

/* A block that was given out while it was not known yet what is wanted. Those of the nursery all were. */
static inline void *early(void *block)
{
    if (unlikely(!malloc_settings.read) && block && !nursery_has(block))
        hard_early_add(block);
    return block;
}

/* Blocks in segments of the user's never come here: they are not hardened. */
static inline bool hardened(void)
{
    return unlikely(modes() & MODE_HARDEN);
}

/* The chain that the thread has set goes before all modes of the process. */
static inline bool chained(size_t bytes, size_t align, bool zero, uintptr_t caller,
                           void **ret_block)
{
    return unlikely(thread_chain) && chain_default_alloc(bytes, align, zero, caller, ret_block);
}

static __attribute__((noinline)) void *chained_realloc(void *block, size_t bytes, uintptr_t caller)
{
    size_t copied;
    void *to;
    if (chain_plain_realloc(block, bytes, caller, &to, &copied))
        return to;
    to = divert_malloc(bytes, caller);
    if (to) {
        memcpy(to, block, copied);
        chain_plain_free(block);
    }
    return to;
}

static __attribute__((noinline)) void *malloc_otherwise(size_t bytes, uintptr_t caller)
{
    void *block;
    if (chained(bytes, 1, false, caller, &block))
        return block;
    if (hardened())
        return or_enomem(hard_alloc(bytes, 1, false));
    if (accounted()) /* since this moment */
        return account_malloc(bytes, caller);
    return or_enomem(early(core_malloc_slowly(bytes)));
}

void *divert_malloc(size_t bytes, uintptr_t caller)
{
    return accounted() && likely(!thread_chain) ? account_malloc(bytes, caller)
                                                : malloc_otherwise(bytes, caller);
}

void *divert_calloc(size_t bytes, uintptr_t caller)
{
    void *block;
    struct heap *own = heap_own;
    if (own) /* in any mode, and however many modules have variables of threads */
        heap_look_around(own);
    else if (unlikely(!__libc_single_threaded) && malloc_settings.read)
        atfork_begin(); /* of one that has a chain, and needs no heap */
    if (chained(bytes, 1, true, caller, &block))
        return block;
    if (hardened())
        return or_enomem(hard_alloc(bytes, 1, true));
    if (accounted())
        return account_calloc(bytes, caller);
    return or_enomem(early(core_calloc(bytes)));
}

void *divert_realloc(void *block, size_t bytes, uintptr_t caller)
{
    if (chain_owns(block))
        return chained_realloc(block, bytes, caller);
    if (hardened())
        return or_enomem(hard_realloc(block, bytes));
    if (accounted())
        return account_realloc(block, bytes, caller);
    if (unlikely(!malloc_settings.read))
        hard_early_is(block, true);
    return or_enomem(early(core_realloc(block, bytes)));
}

void *divert_memalign(size_t align, size_t bytes, uintptr_t caller)
{
    void *block;
    struct heap *h = heap_fast;
    if (likely(h != &heap_none && h != &heap_accounted && (bytes | align) <= HEAP_LARGE_MAX)) {
        block = heap_alloc_aligned(h, bytes, align);
        if (likely(block))
            return block;
    }
    if (chained(bytes, align, false, caller, &block))
        return block;
    if (hardened())
        return or_enomem(hard_alloc(bytes, align, false));
    if (accounted())
        return account_memalign(align, bytes, caller);
    return or_enomem(early(core_memalign(align, bytes)));
}

void divert_free(void *block, uintptr_t caller)
{
    if (chain_owns(block)) {
        chain_plain_free(block);
        return;
    }
    if (hardened()) {
        hard_free(block);
        return;
    }
    if (accounted() && block) {
        account_free(block);
        return;
    }
    if (unlikely(!malloc_settings.read))
        hard_early_is(block, true);
    core_free_slowly(block);
}

void divert_free_slab(void *block, struct slab *slab, uintptr_t caller)
{
    struct heap *h = heap_fast;
    if (likely(h != &heap_none && slab_may_have(slab, block)))
        heap_free_slowly(h, slab, block);
    else if (accounted())
        account_free_slab(block, slab);
    else
        divert_free(block, caller);
}

size_t divert_usable(void *block)
{
    if (chain_owns(block))
        return chain_plain_usable(block);
    if (accounted())
        return account_usable(block);
    return hardened() ? hard_usable(block) : core_usable(block);
}

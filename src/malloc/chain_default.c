/* See chain_default.h. */
#include "malloc/chain_default.h"

#include "malloc/chain_block.h"
#include "malloc/chain_fit.h"
#include "malloc/thread.h"

/* Threads are told apart by where this lies: no two living ones share it, and whoever gets the
 * place of a thread that ended may as well own what that one owned. */
const void *chain_thread(void)
{
    return &thread_chain;
}

/* ---- the thread's default ---- */

static struct memoir_chain *change(struct memoir_chain *chain)
{
    struct memoir_chain *old = thread_chain;
    thread_chain = chain;
    if (old != chain)
        heap_fast_set();
    return old;
}

struct memoir_chain *chain_default_suspend(void)
{
    return change(NULL);
}

void chain_default_resume(struct memoir_chain *chain)
{
    change(chain);
}

struct memoir_chain *memoir_chain_set_default(struct memoir_chain *chain)
{
    if (chain == MEMOIR_CHAIN_FAILED || (chain && !registry_has(chain))) {
        errno = EINVAL;
        return MEMOIR_CHAIN_FAILED;
    }
    return change(chain);
}

void memoir_chain_restore_default(struct memoir_chain *old)
{
    if (old != MEMOIR_CHAIN_FAILED)
        change(old);
}

struct memoir_chain *memoir_chain_default(void)
{
    return thread_chain;
}

bool chain_default_alloc(size_t bytes, size_t alignment, bool zero, uintptr_t caller,
                         void **ret_block)
{
    struct memoir_chain *chain = thread_chain;
    int saved = errno;
    void *p = zero             ? chain_calloc_by(chain, bytes, caller)
              : alignment > 16 ? chain_aligned_by(chain, alignment, bytes, caller)
                               : chain_alloc_by(chain, bytes, caller);
    if (!p) {
        /* Whatever is wrong with the chain, a program knows one error of malloc(). */
        bool fallback = !(chain->flags & MEMOIR_CHAIN_NO_FALLBACK);
        errno = fallback ? saved : ENOMEM;
        if (fallback)
            return false;
    }
    *ret_block = p;
    return true;
}

/* ---- blocks by their address ---- */

struct memoir_chain *memoir_chain_find(const void *block)
{
    return load_relaxed(&registry_count) ? registry_find(block) : NULL;
}

/* May this thread work in the chain now? */
static bool is_mine(const struct memoir_chain *c)
{
    return (c->flags & MEMOIR_CHAIN_THREAD_SAFE) || load_relaxed(&c->owner) == chain_thread();
}

void chain_plain_free(void *block)
{
    struct memoir_chain *c = registry_find(block);
    int saved = errno;
    if (!c)
        return;
    if (is_mine(c))
        memoir_chain_free(c, block);
    else
        memoir_chain_remote_free(c, block);
    errno = saved;
}

size_t chain_plain_usable(const void *block)
{
    struct memoir_chain *c = registry_find(block);
    return c ? memoir_chain_usable_size(c, block) : 0;
}

bool chain_plain_realloc(void *block, size_t bytes, uintptr_t caller, void **ret_block,
                         size_t *ret_bytes)
{
    struct memoir_chain *c = registry_find(block);
    int saved = errno;
    size_t usable = c ? memoir_chain_usable_size(c, block) : 0;
    void *p = NULL;
    if (usable == 0) {
        errno = ENOMEM; /* no block: there is nothing to copy */
        *ret_block = NULL;
        return true;
    }
    if (is_mine(c))
        p = chain_realloc_by(c, block, bytes, caller);
    else if (bytes <= usable)
        p = block;
    if (!p && !(c->flags & MEMOIR_CHAIN_NO_FALLBACK)) {
        *ret_bytes = usable < bytes ? usable : bytes;
        errno = saved;
        return false;
    }
    errno = p ? saved : ENOMEM;
    *ret_block = p;
    return true;
}

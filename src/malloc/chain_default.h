/*
 * chain_default.h: chains behind the functions of the C library: the one that serves a thread's malloc(), and those in
 * whose segments a block to free lies.
 */
#pragma once

#include "malloc/chain.h"
#include "malloc/chain_registry.h"
#include "malloc/map.h"

/* No default for a while, and as before again: around calls of code that is not ours. */
struct memoir_chain *chain_default_suspend(void);
void chain_default_resume(struct memoir_chain *chain);

/* For a thread that has a default chain (thread_chain): true when the chain has decided, with a block or with NULL and errno;
 * false when the thread's own heap shall serve it. */
bool chain_default_alloc(size_t bytes, size_t alignment, bool zero, uintptr_t caller,
                         void **ret_block);

/* Does a block lie in a registered segment? */
static inline bool chain_owns(const void *block)
{
    return __builtin_expect(load_relaxed(&registry_count) != 0, 0) &&
           map_kind(block) != MAP_MACRO && registry_find(block);
}

/* free(), realloc() and malloc_usable_size() of such a block. Keep errno but where they give NULL. What is no live block is
 * counted by its chain, and else passed over. */
void chain_plain_free(void *block);
size_t chain_plain_usable(const void *block);
/* True: *ret_block is the result. False: it has to move out, *ret_bytes are to be copied, and then it is to be freed. */
bool chain_plain_realloc(void *block, size_t bytes, uintptr_t caller, void **ret_block,
                         size_t *ret_bytes);

/*
 * chain_block.h: memoir_chain_alloc() and its like on behalf of somebody else: `caller` is who shall be told to have allocated the block.
 */
#pragma once

#include <memoir/malloc.h>

void *chain_alloc_by(struct memoir_chain *c, size_t bytes, uintptr_t caller);
void *chain_calloc_by(struct memoir_chain *c, size_t bytes, uintptr_t caller);
void *chain_aligned_by(struct memoir_chain *c, size_t alignment, size_t bytes, uintptr_t caller);
void *chain_realloc_by(struct memoir_chain *c, void *block, size_t bytes, uintptr_t caller);

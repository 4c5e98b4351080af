/*
 * account.h: the allocator's functions with the accounting inside: every block has a word (words.h) that names its
 * site, its size and its time, and counts in the book of the process. The tracker is the one of src/track, compiled over core.h.
 *
 * For divert.c, while MODE_ACCOUNT is set. Errors are as the C library's: NULL and ENOMEM.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct slab;

/* Once, before the first of these is called. */
void account_begin(void);

void *account_malloc(size_t bytes, uintptr_t caller);
void *account_calloc(size_t bytes, uintptr_t caller);
void *account_realloc(void *block, size_t bytes, uintptr_t caller); /* both not 0 */
void *account_memalign(size_t align, size_t bytes, uintptr_t caller);
void account_free(void *block);
void account_free_slab(void *block, struct slab *s); /* a block of that slab's, perhaps */
size_t account_usable(void *block);

/* The same for a thread whose heap_fast is heap_accounted. */
void *account_malloc_own(size_t bytes, uintptr_t caller);
void account_free_own(void *block, struct slab *s);

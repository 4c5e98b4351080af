/*
 * divert.h: the long way of a call, where all that is unusual is told apart: threads without a heap, modes of the process
 * (accounting, hardening), a chain that the thread has set as its default. `caller` is where the program called from. Errors are
 * as the C library's: NULL and ENOMEM.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct slab;

void *divert_malloc(size_t bytes, uintptr_t caller);
void *divert_calloc(size_t bytes, uintptr_t caller);
void *divert_realloc(void *block, size_t bytes, uintptr_t caller); /* both not 0 */
void *divert_memalign(size_t align, size_t bytes, uintptr_t caller);
void divert_free(void *block, uintptr_t caller);
void divert_free_slab(void *block, struct slab *slab, uintptr_t caller); /* where it is known */
size_t divert_usable(void *block);

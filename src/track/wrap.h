/* wrap.h: what the wrappers of C and C++ share. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "track/track.h"

#define EXPORT        __attribute__((visibility("default")))
#define CALLER()      ((uintptr_t)__builtin_return_address(0))
#define WRAP_SIZE_MAX ((size_t)BOOK_TRAILER_SIZE_MAX)

/* malloc() and aligned_alloc() for somebody who called one of our functions, and free(). */
void *wrap_malloc(size_t bytes, uintptr_t caller);
void *wrap_aligned(size_t align, size_t bytes, uintptr_t caller);
void wrap_free(void *block);

#pragma once
#include <stdbool.h>
#include <stddef.h>
void *huge_alloc(size_t bytes, size_t align, bool *ret_zeroed);
bool huge_free(void *p);
size_t huge_usable(const void *p);
void *huge_realloc(void *p, size_t bytes);
bool huge_trim(void);
void huge_fork_prepare(void);
void huge_fork_done(bool child);

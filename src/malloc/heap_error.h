/*
 * heap_error.h: what a program does wrong with its heap, seen without hardening (harden.h).
 *
 * Seen by free() and realloc(), as far as that costs nothing: a block that was freed before, if it is the last one that its slab got back, or
 * has a word (words.h), which tells for good; an address inside a block, if it is not at a multiple of 16, in another thread's slab or in a large block, or
 * wherever blocks have words; any address that is in no block. doc/harden.md has the table.
 */
#pragma once

#include <stdbool.h>

struct slab;

/* Says on stderr what is wrong with the address that `function` was called with, and aborts the program. */
_Noreturn void heap_error(const char *function, const void *p);

/* Is a block on a list of free ones, of its slab or of this thread's strays? Any thread may ask about a block that nobody can have freed
 * rightly: lists of others change meanwhile, and what is read there is only compared. */
bool heap_error_is_free(const struct slab *s, const void *block);

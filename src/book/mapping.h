/*
 * mapping.h: what a writer maps inside a stranger's process.
 *
 * Two kinds: private memory, and reserves, which are address space without access until parts of them are opened. Both are listed, so
 * that a program which locks its memory (mlockall) does not lock them, and they do not use up what it may lock (track/lock_all.c).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BOOK_MAPPINGS_MAX = 128 }; /* that are listed; further ones count as the program's */

/* The program has asked for all future mappings to be locked, and may have changed its mind. Set by whoever wraps mlockall(). */
extern uint32_t book_locks_future;

/* Zeroed memory that no other process sees; NULL: there is none. */
void *book_private_new(size_t bytes);
void book_private_free(void *memory, size_t bytes); /* NULL does nothing */

/* Address space without access: of the file from its start on, shared, or of no file (-1). Never locked, nor refused because it could
 * not be. NULL and errno. */
void *book_reserve_new(size_t bytes, int fd);
void book_reserve_free(void *reserve, size_t bytes);

struct book_mapping {
    uintptr_t start, end;
};

/* Those that there are now, in no order; BOOK_MAPPINGS_MAX at most. Any thread. */
size_t book_mappings(struct book_mapping *ret);

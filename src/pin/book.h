/*
 * book.h: what the library tells the book of the process (source BOOK_SOURCE_CUDA).
 *
 * Served blocks count as mapped host memory, registrations as registered, and what
 * cuMemHostAlloc() gave as pinned: each exactly once, whoever made it. "Registered" is an
 * attribute of memory that counts elsewhere, so views never add it to sums. The ledger takes this
 * book's word on pinned and registered memory before that of the observer (ledger/join.c).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "site/unwind.h"

struct extent;

void pin_book_served(const struct extent *extent, const struct unwind_state *from);
void pin_book_gone(const struct extent *extent);
void pin_book_registered(const struct extent *extent, uint64_t bytes);
void pin_book_unregistered(const struct extent *extent);

/* What the program pins itself: `registered` in place, else by the driver. */
void pin_book_own(void *address, uint64_t bytes, bool registered, void *context,
                  const struct unwind_state *from);
void pin_book_own_gone(void *address, bool registered);
/* A context is gone, with what was pinned in it. NULL: all are. */
void pin_book_context_gone(void *context);
uint64_t pin_book_own_bytes(void); /* pinned by the program itself, both kinds */

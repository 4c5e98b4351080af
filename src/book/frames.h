/*
 * frames.h: for the writer's own files: return addresses as frames of a book.
 */
#pragma once

#include <stdint.h>

struct book_writer;

/* The frame for a return address, or for a line of a script as it is: BOOK_SCRIPT_FRAME(). Folds it into the stable
 * key of a stack (site_key_add). Enters its module if need be. Hold w->lock. */
uint64_t book_frame_of(struct book_writer *w, uintptr_t pc, uint64_t *key);

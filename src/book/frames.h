/*
 * frames.h: for the writer's own files: return addresses as frames of a book.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct book_writer;

/* The frame for a return address, or for a line of a script as it is: BOOK_SCRIPT_FRAME(). Folds it into the stable
 * key of a stack (site_key_add). Enters its module if need be. Hold w->lock. */
uint64_t book_frame_of(struct book_writer *w, uintptr_t pc, uint64_t *key);

/* The site with these frames as books have them, of this key, entered if need be; BOOK_SITE_NONE if there is no room. Hold
 * w->lock. */
uint32_t book_site_enter(struct book_writer *w, uint32_t account, const uint64_t *frames, size_t n,
                         uint64_t key, uint32_t flags);

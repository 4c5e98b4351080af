/*
 * pressure_word.h: finding and reading memoird's pressure word (pressure.h), for any process.
 *
 * Lives in strangers' processes: no malloc, no stdio, no descriptor that stays, no cancellation point; errno is not kept.
 * Whom to believe: a file that root or our own effective user owns and nobody else can write, in a directory of which
 * the same holds (or that is sticky, so that others cannot put theirs in its place). Both could harm us anyway; a
 * file that one of them truncated would end us with SIGBUS, and memoird never does.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "book/pressure.h"

enum { PRESSURE_WORD_PLACES = 2, PRESSURE_WORD_DIR_MAX = 256 };

/* Where words may be: $MEMOIR_DIR alone where it is set; else /run/memoir, then $XDG_RUNTIME_DIR/memoir, where a user's own
 * memoird has it. Reads the environment, so call it while no other thread changes that. */
struct pressure_places {
    unsigned n;
    char dirs[PRESSURE_WORD_PLACES][PRESSURE_WORD_DIR_MAX];
};
void pressure_places_init(struct pressure_places *ret_places);
#define PRESSURE_WORD_DIR "/run/memoir"
/* The same with values of MEMOIR_DIR and XDG_RUNTIME_DIR that the caller has read; NULL: not set. */
void pressure_places_set(struct pressure_places *ret_places, const char *root, const char *runtime);

/* Map the word in `dir` for reading, at `at` in place of what is there, or anywhere where that is NULL. -errno: -ENOENT,
 * -EPERM (not to be believed), -EBADMSG (no word, or one of another version). */
int pressure_word_map(const char *dir, void *at, const struct pressure_page **ret_page);

void pressure_word_unmap(const struct pressure_page *page);

/* A copy of everything, in which nothing is half written. -EAGAIN: its writer died in the middle. */
int pressure_page_read(const struct pressure_page *page, struct pressure_page *ret_copy);

/* The word that was probably meant: for "did you mean ...?". */
#pragma once

/* The word of `words` (ended by NULL) closest to `word`, or NULL if none is near enough to have
 * been meant. A beginning counts as near however much is missing. */
const char *nearest_word(const char *word, const char *const *words);

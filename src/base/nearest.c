/* Edit distance over a few short words. See nearest.h. */
#include "base/nearest.h"

#include <stddef.h>
#include <string.h>

enum { NEAREST_WORD_MAX = 40 }; /* longer words were not meant to be one of ours */

/* Edits that turn `a` into `b`: insert, delete, replace, or swap two neighbours (the commonest slip),
 * each costs 1. */
static unsigned edit_distance(const char *a, const char *b)
{
    size_t la = strlen(a), lb = strlen(b);
    if (la > NEAREST_WORD_MAX || lb > NEAREST_WORD_MAX)
        return NEAREST_WORD_MAX;
    unsigned d[NEAREST_WORD_MAX + 1][NEAREST_WORD_MAX + 1];
    for (size_t i = 0; i <= la; i++)
        d[i][0] = (unsigned)i;
    for (size_t j = 0; j <= lb; j++)
        d[0][j] = (unsigned)j;
    for (size_t i = 1; i <= la; i++) {
        for (size_t j = 1; j <= lb; j++) {
            unsigned best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[la][lb];
}

const char *nearest_word(const char *word, const char *const *words)
{
    const char *best = NULL;
    if (strlen(word) > NEAREST_WORD_MAX)
        return NULL;
    unsigned best_distance =
        (unsigned)(strlen(word) + 2) / 3; /* a third of the letters, rounded up, may be wrong */
    for (size_t i = 0; words[i]; i++) {
        /* A beginning is a good guess however much is missing. */
        unsigned distance =
            *word && strncmp(words[i], word, strlen(word)) == 0 ? 0 : edit_distance(word, words[i]);
        if (distance < best_distance || (!best && distance == best_distance)) {
            best = words[i];
            best_distance = distance;
        }
    }
    return best;
}

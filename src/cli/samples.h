/*
 * samples.h: figures of the last minutes, kept while a command runs.
 *
 * A series has one figure for each look, or none where the thing was not there. All series share the
 * number of the look, so that charts stand under each other.
 */
#ifndef MEMOIR_CLI_SAMPLES_H
#define MEMOIR_CLI_SAMPLES_H

#include <stddef.h>
#include <stdint.h>

enum {
    SAMPLES_KEPT = 3600,  /* an hour of seconds */
    SAMPLES_SERIES = 256, /* further ones are not kept: no screen has room for more charts */
    SAMPLES_KEY_MAX = 160,
};

struct series {
    char key[SAMPLES_KEY_MAX];
    uint64_t first;          /* look in which it was put in first */
    uint64_t last;           /* and last */
    float *values;           /* ring by look; below 0: none */
    uint64_t capacity, used; /* as of its last look, for the chart's title */
};

struct samples {
    struct series *series;
    size_t n;
    uint64_t looks;
};

void samples_release(struct samples *samples);

/* A new look: series that are not put in have no figure in it. */
void samples_begin(struct samples *samples);

/* The figure of this look. Without memory or room it is dropped. */
void samples_put(struct samples *samples, const char *key, uint64_t used, uint64_t capacity);

/* NULL when it is not known. */
const struct series *samples_find(const struct samples *samples, const char *key);

/* The last `n` points, the newest last, each the largest of `step` looks; below 0 where there is none.
 * Looks stay in their point while time goes on. */
void samples_points(const struct samples *samples, const struct series *series, unsigned step,
                    double *ret_points, size_t n);

#endif

/* Figures of the last minutes. See samples.h. */
#include "cli/samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void samples_release(struct samples *samples)
{
    for (size_t i = 0; i < samples->n; i++)
        free(samples->series[i].values);
    free(samples->series);
    *samples = (struct samples){0};
}

void samples_begin(struct samples *samples)
{
    samples->looks++;
    for (size_t i = 0; i < samples->n; i++)
        samples->series[i].values[samples->looks % SAMPLES_KEPT] = -1;
}

static struct series *find(const struct samples *samples, const char *key)
{
    for (size_t i = 0; i < samples->n; i++)
        if (strcmp(samples->series[i].key, key) == 0)
            return &samples->series[i];
    return NULL;
}

static struct series *add(struct samples *samples, const char *key)
{
    if (samples->n == SAMPLES_SERIES)
        return NULL;
    struct series *all = reallocarray(samples->series, samples->n + 1, sizeof(*all));
    if (!all)
        return NULL;
    samples->series = all;
    float *values = malloc(SAMPLES_KEPT * sizeof(*values));
    if (!values)
        return NULL;
    for (size_t i = 0; i < SAMPLES_KEPT; i++)
        values[i] = -1;
    struct series *s = &all[samples->n++];
    *s = (struct series){.first = samples->looks, .values = values};
    snprintf(s->key, sizeof(s->key), "%s", key);
    return s;
}

void samples_put(struct samples *samples, const char *key, uint64_t used, uint64_t capacity)
{
    struct series *s = find(samples, key);
    if (!s)
        s = add(samples, key);
    if (!s)
        return;
    s->values[samples->looks % SAMPLES_KEPT] = (float)used;
    s->last = samples->looks;
    s->used = used;
    s->capacity = capacity;
}

const struct series *samples_find(const struct samples *samples, const char *key)
{
    return find(samples, key);
}

void samples_points(const struct samples *samples, const struct series *series, unsigned step,
                    double *ret_points, size_t n)
{
    uint64_t newest = samples->looks / step; /* number of the newest point */
    for (size_t i = 0; i < n; i++) {
        double most = -1;
        uint64_t back = n - 1 - i;
        for (uint64_t k = 0; back <= newest && k < step; k++) {
            uint64_t look = (newest - back) * step + k;
            if (look > samples->looks || look < series->first ||
                samples->looks - look >= SAMPLES_KEPT)
                continue;
            double value = (double)series->values[look % SAMPLES_KEPT];
            most = value > most ? value : most;
        }
        ret_points[i] = most;
    }
}

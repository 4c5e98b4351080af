/* Waste in a history. See trace_waste.h. */
#include "cli/trace_waste.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <memoir/memoir.h>

#include "base/cleanup.h"

enum { BATCH = 256 };

static int by_pageable(const void *a, const void *b)
{
    const struct trace_copier *x = a, *y = b;
    if (x->pageable.bytes != y->pageable.bytes)
        return x->pageable.bytes < y->pageable.bytes ? 1 : -1;
    return (x->site > y->site) - (x->site < y->site);
}

size_t trace_waste_pageable(struct trace_history *history, struct trace_copier **ret_copiers)
{
    struct trace_copier *all = NULL, batch[16];
    size_t n = 0, cap = 0, got;
    uint64_t cursor = 0;
    *ret_copiers = NULL;
    while ((got = trace_history_copiers(history, &cursor, batch, 16)) > 0)
        for (size_t i = 0; i < got; i++) {
            if (!batch[i].pageable.copies)
                continue;
            if (n == cap) {
                cap = cap ? cap * 2 : 64;
                struct trace_copier *more = reallocarray(all, cap, sizeof(*all));
                if (!more) {
                    free(all);
                    return 0;
                }
                all = more;
            }
            all[n++] = batch[i];
        }
    if (n)
        qsort(all, n, sizeof(*all), by_pageable);
    *ret_copiers = all;
    return n;
}

/* ---- never copied ---- */

static int by_place(const void *a, const void *b)
{
    const struct trace_uncopied *x = a, *y = b;
    if (x->site != y->site)
        return x->site < y->site ? -1 : 1;
    return (int)x->space - (int)y->space;
}

static int by_bytes(const void *a, const void *b)
{
    const struct trace_uncopied *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return by_place(a, b);
}

/* Neither copied in any direction, nor set, nor prefetched. */
static bool is_uncopied(const struct trace_block *b)
{
    for (size_t i = 0; i < TRACE_DIRECTIONS; i++)
        if (b->flow[i].copies)
            return false;
    return !b->sets.copies && !b->prefetches.copies;
}

size_t trace_waste_uncopied(struct trace_history *history, struct trace_uncopied **ret_rows)
{
    struct trace_filter filter = {.device = -1,
                                  .classes = 1u << TRACE_CLASS_OWN | 1u << TRACE_CLASS_REGISTERED};
    struct trace_uncopied *rows = NULL;
    size_t n = 0, cap = 0, got, kept = 0;
    uint64_t cursor = 0;
    *ret_rows = NULL;
    MEMOIR_CLEANUP(freep)
    struct trace_block *blocks = calloc(BATCH, sizeof(*blocks));
    while (blocks && (got = trace_history_blocks(history, &filter, &cursor, blocks, BATCH)) > 0)
        for (size_t i = 0; i < got; i++) {
            if (!is_uncopied(&blocks[i]))
                continue;
            if (n == cap) {
                cap = cap ? cap * 2 : 256;
                struct trace_uncopied *more = reallocarray(rows, cap, sizeof(*rows));
                if (!more) {
                    free(rows);
                    return 0;
                }
                rows = more;
            }
            rows[n++] = (struct trace_uncopied){blocks[i].site, blocks[i].space, 1, blocks[i].size};
        }
    if (!n)
        return 0;
    qsort(rows, n, sizeof(*rows), by_place);
    for (size_t i = 0; i < n; i++) {
        if (kept && by_place(&rows[kept - 1], &rows[i]) == 0) {
            rows[kept - 1].blocks++;
            rows[kept - 1].bytes += rows[i].bytes;
        } else {
            rows[kept++] = rows[i];
        }
    }
    qsort(rows, kept, sizeof(*rows), by_bytes);
    *ret_rows = rows;
    return kept;
}

/* ---- again and again ---- */

/* Only the side that is read tells of waste: a buffer that is written again and again may get other bytes each time. */
static bool is_source(const struct trace_block *b, uint8_t direction)
{
    bool device = b->space == MEMOIR_SPACE_DRAM || b->space == MEMOIR_SPACE_MANAGED;
    switch (direction) {
    case TRACE_TO_DEVICE:
        return b->space != MEMOIR_SPACE_DRAM;
    case TRACE_FROM_DEVICE:
        return device;
    default: /* the two sides cannot be told apart */
        return b->read.copies > 0;
    }
}

static uint64_t again_bytes(const struct trace_again *a)
{
    return (a->repeat.copies - 1) * a->repeat.size;
}

static int by_again(const void *a, const void *b)
{
    uint64_t x = again_bytes(a), y = again_bytes(b);
    return x == y ? 0 : x < y ? 1 : -1;
}

size_t trace_waste_repeats(struct trace_history *history, size_t k, struct trace_again **ret_rows)
{
    struct trace_filter filter = {.device = -1, .min = 1};
    size_t n = 0, cap = 2 * k + BATCH, got;
    uint64_t cursor = 0;
    struct trace_again *rows = calloc(cap, sizeof(*rows));
    MEMOIR_CLEANUP(freep)
    struct trace_block *blocks = calloc(BATCH, sizeof(*blocks));
    *ret_rows = rows;
    while (rows && blocks &&
           (got = trace_history_blocks(history, &filter, &cursor, blocks, BATCH)) > 0)
        for (size_t i = 0; i < got; i++)
            for (size_t r = 0; r < TRACE_REPEATS; r++) {
                if (blocks[i].repeats[r].copies < 2 ||
                    !is_source(&blocks[i], blocks[i].repeats[r].direction))
                    continue;
                if (n == cap) { /* keep the best */
                    qsort(rows, n, sizeof(*rows), by_again);
                    n = k;
                }
                rows[n++] = (struct trace_again){blocks[i], blocks[i].repeats[r]};
            }
    if (n)
        qsort(rows, n, sizeof(*rows), by_again);
    return n < k ? n : k;
}

/* Waste in a history. See waste.h. */
#include "trace/waste.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <memoir/memoir.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"

enum { BATCH = 128, MOMENTS = 256, LINES = 16 };

static uint64_t time_ns(uint64_t bytes, uint64_t rate)
{
    __uint128_t ns = (__uint128_t)bytes * NS_PER_S / rate;
    return ns > UINT64_MAX ? UINT64_MAX : (uint64_t)ns;
}

uint64_t waste_saving_ns(const struct waste_rates *rates, uint64_t bytes)
{
    uint64_t pageable = time_ns(bytes, rates ? rates->pageable : WASTE_PAGEABLE_RATE);
    uint64_t pinned = time_ns(bytes, rates ? rates->pinned : WASTE_PINNED_RATE);
    return pageable > pinned ? pageable - pinned : 0;
}

uint64_t waste_bus_bytes(const struct trace_flow flow[static TRACE_DIRECTIONS])
{
    return flow[TRACE_TO_DEVICE].bytes + flow[TRACE_FROM_DEVICE].bytes +
           flow[TRACE_DIRECTION_UNKNOWN].bytes;
}

/* ---- the k largest of many ---- */

/* Rows gather in an array of twice k; when it is full, the smaller half goes. */
struct best {
    char *rows;
    size_t n, k, row_bytes;
    int (*order)(const void *, const void *); /* largest first */
};

static int best_init(struct best *b, size_t k, size_t row_bytes,
                     int (*order)(const void *, const void *))
{
    *b = (struct best){.k = k ? k : 1, .row_bytes = row_bytes, .order = order};
    b->rows = calloc(2 * b->k, row_bytes);
    return b->rows ? 0 : -ENOMEM;
}

static void best_cut(struct best *b)
{
    qsort(b->rows, b->n, b->row_bytes, b->order);
    if (b->n > b->k)
        b->n = b->k;
}

static void best_add(struct best *b, const void *row)
{
    memcpy(b->rows + b->n++ * b->row_bytes, row, b->row_bytes);
    if (b->n == 2 * b->k)
        best_cut(b);
}

static ptrdiff_t best_take(struct best *b, void *ret_rows)
{
    best_cut(b);
    memcpy(ret_rows, &b->rows, sizeof(b->rows));
    return (ptrdiff_t)b->n;
}

static int larger(uint64_t a, uint64_t b)
{
    return (a < b) - (a > b);
}

/* ---- lines that copy ---- */

static int by_bus(const void *a, const void *b)
{
    const struct trace_copier *x = a, *y = b;
    int r = larger(waste_bus_bytes(x->flow), waste_bus_bytes(y->flow));
    return r ? r : (x->site > y->site) - (x->site < y->site);
}

static int by_pageable(const void *a, const void *b)
{
    const struct trace_copier *x = a, *y = b;
    int r = larger(x->pageable.bytes, y->pageable.bytes);
    return r ? r : (x->site > y->site) - (x->site < y->site);
}

static uint64_t bus_bytes(const struct trace_copier *copier)
{
    return waste_bus_bytes(copier->flow);
}

static uint64_t pageable_copies(const struct trace_copier *copier)
{
    return copier->pageable.copies;
}

/* Those that have some of `measure`. */
static ptrdiff_t copiers_best(struct trace_history *history, size_t k,
                              int (*order)(const void *, const void *),
                              uint64_t (*measure)(const struct trace_copier *),
                              struct trace_copier **ret_copiers)
{
    struct trace_copier batch[16];
    struct best best;
    uint64_t cursor = 0;
    if (best_init(&best, k, sizeof(batch[0]), order) < 0)
        return -ENOMEM;
    for (size_t got; (got = trace_history_copiers(history, &cursor, batch, 16)) > 0;)
        for (size_t i = 0; i < got; i++)
            if (measure(&batch[i]) > 0)
                best_add(&best, &batch[i]);
    return best_take(&best, ret_copiers);
}

ptrdiff_t waste_copiers(struct trace_history *history, size_t k, struct trace_copier **ret_copiers)
{
    return copiers_best(history, k, by_bus, bus_bytes, ret_copiers);
}

ptrdiff_t waste_pageable(struct trace_history *history, size_t k, struct trace_copier **ret_copiers)
{
    return copiers_best(history, k, by_pageable, pageable_copies, ret_copiers);
}

/* ---- never copied ---- */

static bool is_uncopied(const struct trace_block *b)
{
    for (size_t i = 0; i < TRACE_DIRECTIONS; i++)
        if (b->flow[i].copies)
            return false;
    return !b->sets.copies && !b->prefetches.copies;
}

static int by_uncopied(const void *a, const void *b)
{
    const struct waste_uncopied *x = a, *y = b;
    int r = larger(x->bytes, y->bytes);
    return r ? r : (x->site > y->site) - (x->site < y->site);
}

/* Sums by place: an open hash of which at most half is used. blocks == 0: free. */
struct sums {
    struct waste_uncopied *slots;
    size_t n, cap;
};

static struct waste_uncopied *sums_slot(struct sums *s, uint32_t site, uint8_t space, uint8_t class)
{
    uint64_t key = (uint64_t)site << 16 | (uint64_t)space << 8 | class;
    size_t i = (size_t)hash_mix(key) & (s->cap - 1);
    while (s->slots[i].blocks &&
           (s->slots[i].site != site || s->slots[i].space != space || s->slots[i].class != class))
        i = (i + 1) & (s->cap - 1);
    return &s->slots[i];
}

static int sums_grow(struct sums *s)
{
    struct sums wide = {.n = s->n, .cap = s->cap ? s->cap * 2 : 256};
    wide.slots = calloc(wide.cap, sizeof(*wide.slots));
    if (!wide.slots)
        return -ENOMEM;
    for (size_t i = 0; i < s->cap; i++)
        if (s->slots[i].blocks)
            *sums_slot(&wide, s->slots[i].site, s->slots[i].space, s->slots[i].class) = s->slots[i];
    free(s->slots);
    *s = wide;
    return 0;
}

static int sums_add(struct sums *s, const struct trace_block *b)
{
    if (s->n * 2 >= s->cap && sums_grow(s) < 0)
        return -ENOMEM;
    struct waste_uncopied *slot = sums_slot(s, b->site, b->space, b->class);
    if (!slot->blocks) {
        s->n++;
        slot->site = b->site;
        slot->space = b->space;
        slot->class = b->class;
    }
    slot->blocks++;
    slot->bytes += b->size;
    slot->live_bytes += b->active ? b->size : 0;
    return 0;
}

ptrdiff_t waste_uncopied(struct trace_history *history, size_t k, struct waste_uncopied **ret_rows)
{
    struct trace_filter filter = {.device = -1,
                                  .classes = 1u << TRACE_CLASS_OWN | 1u << TRACE_CLASS_REGISTERED};
    struct sums sums = {0};
    struct best best;
    uint64_t cursor = 0;
    int r = 0;
    MEMOIR_CLEANUP(freep)
    struct trace_block *blocks = calloc(BATCH, sizeof(*blocks));
    if (!blocks)
        return -ENOMEM;
    for (size_t got;
         r == 0 && (got = trace_history_blocks(history, &filter, &cursor, blocks, BATCH)) > 0;)
        for (size_t i = 0; r == 0 && i < got; i++)
            if (is_uncopied(&blocks[i]))
                r = sums_add(&sums, &blocks[i]);
    if (r == 0)
        r = best_init(&best, k, sizeof(*sums.slots), by_uncopied);
    for (size_t i = 0; r == 0 && i < sums.cap; i++)
        if (sums.slots[i].blocks)
            best_add(&best, &sums.slots[i]);
    free(sums.slots);
    return r < 0 ? r : best_take(&best, ret_rows);
}

/* ---- again and again ---- */

static int by_repeated(const void *a, const void *b)
{
    const struct waste_repeat *x = a, *y = b;
    int r = larger(x->bytes, y->bytes);
    return r ? r : (x->block.address > y->block.address) - (x->block.address < y->block.address);
}

static bool is_source(const struct trace_block *b, uint8_t direction)
{
    switch (direction) {
    case TRACE_TO_DEVICE:
        return b->space != MEMOIR_SPACE_DRAM;
    case TRACE_FROM_DEVICE:
        return b->space == MEMOIR_SPACE_DRAM || b->space == MEMOIR_SPACE_MANAGED;
    default: /* the two sides cannot be told apart */
        return b->read.copies > 0;
    }
}

ptrdiff_t waste_repeats(struct trace_history *history, size_t k, struct waste_repeat **ret_rows)
{
    struct trace_filter filter = {.device = -1};
    struct best best;
    uint64_t cursor = 0;
    MEMOIR_CLEANUP(freep)
    struct trace_block *blocks = calloc(BATCH, sizeof(*blocks));
    if (!blocks || best_init(&best, k, sizeof(**ret_rows), by_repeated) < 0)
        return -ENOMEM;
    for (size_t got; (got = trace_history_blocks(history, &filter, &cursor, blocks, BATCH)) > 0;)
        for (size_t i = 0; i < got; i++)
            for (size_t n = 0; n < TRACE_REPEATS; n++) {
                const struct trace_repeat *repeat = &blocks[i].repeats[n];
                if (repeat->copies < 2 || !is_source(&blocks[i], repeat->direction))
                    continue;
                struct waste_repeat row = {blocks[i], *repeat, (repeat->copies - 1) * repeat->size};
                best_add(&best, &row);
            }
    return best_take(&best, ret_rows);
}

/* ---- the line that copies ---- */

uint32_t waste_copy_site(struct trace_history *history, const struct trace_block *block)
{
    MEMOIR_CLEANUP(freep)
    struct trace_moment *moments = calloc(MOMENTS, sizeof(*moments));
    struct {
        uint32_t site;
        unsigned n;
    } lines[LINES] = {0};
    size_t n_lines = 0, most = 0;
    ptrdiff_t n = moments ? trace_history_moments(history, block->id, moments, MOMENTS) : 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        size_t k = 0;
        if (moments[i].kind != TRACE_COPY || !moments[i].site)
            continue;
        while (k < n_lines && lines[k].site != moments[i].site)
            k++;
        if (k == LINES)
            continue;
        if (k == n_lines)
            lines[n_lines++].site = moments[i].site;
        if (++lines[k].n > lines[most].n)
            most = k;
    }
    return lines[most].site;
}

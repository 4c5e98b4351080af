/* Sums by holder and by copying line. See holders.h. */
#include "trace/holders.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { TABLE_MIN = 32 };

typedef uint64_t (*key_hash)(const void *entry);

static uint64_t holder_hash(const void *entry)
{
    const struct trace_holder *h = &((const struct holder *)entry)->sums;
    return hash_mix((uint64_t)h->site << 32 ^ (uint64_t)(uint32_t)h->device << 16 ^
                    (uint64_t)h->space << 8 ^ h->class ^ HASH_K0);
}

static uint64_t copier_hash(const void *entry)
{
    return hash_mix(((const struct trace_copier *)entry)->site ^ HASH_K0);
}

static int table_grow(struct trace_table *t, key_hash hash)
{
    uint32_t cap = t->cap ? 2 * t->cap : TABLE_MIN, n_index = 2 * cap;
    char *entries = realloc(t->entries, cap * t->entry_bytes);
    if (!entries)
        return -ENOMEM;
    t->entries = entries;
    uint32_t *index = calloc(n_index, sizeof(*index));
    if (!index)
        return -ENOMEM;
    free(t->index);
    t->index = index;
    t->n_index = n_index;
    t->cap = cap;
    if (t->n == 0) {
        memset(entries, 0, t->entry_bytes);
        t->n = 1;
    }
    for (uint32_t i = 1; i < t->n; i++) {
        uint32_t at = (uint32_t)hash(entries + i * t->entry_bytes) & (n_index - 1);
        while (index[at])
            at = (at + 1) & (n_index - 1);
        index[at] = i;
    }
    return 0;
}

/* The place in the index of an entry that `same` recognises, or of the hole where it belongs. The index is at most half full. */
static uint32_t *table_place(const struct trace_table *t, uint64_t hash, const void *key,
                             bool (*same)(const void *, const void *))
{
    uint32_t at = (uint32_t)hash & (t->n_index - 1);
    while (t->index[at] && !same(t->entries + t->index[at] * t->entry_bytes, key))
        at = (at + 1) & (t->n_index - 1);
    return &t->index[at];
}

/* The number of the entry like `key`, which is copied if there is none. -ENOSPC, -ENOMEM. */
static int64_t table_number(struct trace_table *t, const void *key, key_hash hash,
                            bool (*same)(const void *, const void *))
{
    uint64_t h = hash(key);
    if (t->n_index > 0) {
        uint32_t found = *table_place(t, h, key, same);
        if (found)
            return found;
    }
    if (t->n > t->max)
        return -ENOSPC;
    if (t->n == t->cap && table_grow(t, hash) < 0)
        return -ENOMEM;
    *table_place(t, h, key, same) = t->n;
    memcpy(t->entries + t->n * t->entry_bytes, key, t->entry_bytes);
    return t->n++;
}

static bool holder_same(const void *a, const void *b)
{
    const struct trace_holder *x = &((const struct holder *)a)->sums,
                              *y = &((const struct holder *)b)->sums;
    return x->site == y->site && x->device == y->device && x->space == y->space &&
           x->class == y->class;
}

static bool copier_same(const void *a, const void *b)
{
    return ((const struct trace_copier *)a)->site == ((const struct trace_copier *)b)->site;
}

int holders_init(struct trace_holders *h, uint32_t max)
{
    *h = (struct trace_holders){
        .holders = {.entry_bytes = sizeof(struct holder), .max = max},
        .copiers = {.entry_bytes = sizeof(struct trace_copier), .max = max},
    };
    if (table_grow(&h->holders, holder_hash) < 0 || table_grow(&h->copiers, copier_hash) < 0)
        return -ENOMEM;
    return 0;
}

void holders_release(struct trace_holders *h)
{
    free(h->holders.entries);
    free(h->holders.index);
    free(h->copiers.entries);
    free(h->copiers.index);
}

uint32_t holders_number(struct trace_holders *h, uint32_t site, int32_t device, uint8_t space,
                        uint8_t class)
{
    struct holder key = {.sums = {.site = site, .device = device, .space = space, .class = class}};
    int64_t number = table_number(&h->holders, &key, holder_hash, holder_same);
    if (number > 0)
        return (uint32_t)number;
    h->unkept++;
    /* Site 0 may pass the limit: there are few devices, spaces and classes, but a feeder may tell any; then one has it all. */
    key.sums.site = 0;
    uint32_t max = h->holders.max;
    h->holders.max = max + 1024;
    number = table_number(&h->holders, &key, holder_hash, holder_same);
    if (number < 0) {
        key = (struct holder){.sums = {.device = -1, .class = class}};
        h->holders.max = max + 2048;
        number = table_number(&h->holders, &key, holder_hash, holder_same);
    }
    h->holders.max = max;
    return number > 0 ? (uint32_t)number : 0;
}

uint32_t copiers_number(struct trace_holders *h, uint32_t site)
{
    struct trace_copier key = {.site = site};
    int64_t number = table_number(&h->copiers, &key, copier_hash, copier_same);
    if (number > 0)
        return (uint32_t)number;
    h->unkept++;
    key.site = 0;
    h->copiers.max++;
    number = table_number(&h->copiers, &key, copier_hash, copier_same);
    h->copiers.max--;
    return number > 0 ? (uint32_t)number : 0;
}

/* Sets of blocks. See blockset.h. */
#include "ledger/blockset.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { ROOM_MIN = 64 };

void blockset_release(struct blockset *set)
{
    free(set->entries);
    free(set->buckets);
    *set = (struct blockset){0};
}

void blockset_begin(struct blockset *set)
{
    set->round++;
    if (set->round == 0)
        set->round = 1; /* 0 is a free entry's; after four billion looks one may be told late */
}

static size_t bucket_of(const struct blockset *set, uint32_t owner, uint64_t id)
{
    return hash_mix(id ^ (uint64_t)owner << 48) & (set->n_buckets - 1);
}

static int grow(struct blockset *set)
{
    size_t room = set->room ? set->room * 2 : ROOM_MIN;
    if (room > UINT32_MAX / 2)
        return -ENOMEM;
    struct blockset_entry *entries = reallocarray(set->entries, room, sizeof(*entries));
    if (!entries)
        return -ENOMEM;
    set->entries = entries;
    uint32_t *buckets = calloc(room, sizeof(*buckets));
    if (!buckets)
        return -ENOMEM;
    free(set->buckets);
    set->buckets = buckets;
    set->n_buckets = room;
    set->room = room;
    for (size_t i = 0; i < set->n_entries; i++) {
        struct blockset_entry *e = &entries[i];
        if (!e->round)
            continue;
        size_t bucket = bucket_of(set, e->owner, e->id);
        e->next = buckets[bucket];
        buckets[bucket] = (uint32_t)i + 1;
    }
    return 0;
}

static struct blockset_entry *find(const struct blockset *set, uint32_t owner, uint64_t id)
{
    if (!set->n_buckets)
        return NULL;
    for (uint32_t at = set->buckets[bucket_of(set, owner, id)]; at; at = set->entries[at - 1].next)
        if (set->entries[at - 1].id == id && set->entries[at - 1].owner == owner)
            return &set->entries[at - 1];
    return NULL;
}

static int insert(struct blockset *set, const struct blockset_entry *block)
{
    if (!set->free && set->n_entries == set->room) {
        int r = grow(set);
        if (r < 0)
            return r;
    }
    uint32_t at = set->free;
    if (at)
        set->free = set->entries[at - 1].next;
    else
        at = (uint32_t)++set->n_entries;
    size_t bucket = bucket_of(set, block->owner, block->id);
    struct blockset_entry *e = &set->entries[at - 1];
    *e = *block;
    e->round = set->round;
    e->next = set->buckets[bucket];
    set->buckets[bucket] = at;
    set->n++;
    return BLOCKSET_NEW;
}

int blockset_put(struct blockset *set, const struct blockset_entry *block, size_t max,
                 uint64_t tolerance_ns, struct blockset_entry *ret_old)
{
    struct blockset_entry *e = find(set, block->owner, block->id);
    if (!e)
        return set->n >= max ? -ENOSPC : insert(set, block);
    if (e->round == set->round)
        return BLOCKSET_AGAIN;
    e->round = set->round;
    uint64_t apart_ns =
        e->time_ns > block->time_ns ? e->time_ns - block->time_ns : block->time_ns - e->time_ns;
    if (apart_ns <= tolerance_ns && e->bytes == block->bytes)
        return BLOCKSET_SAME;
    *ret_old = *e;
    e->bytes = block->bytes;
    e->time_ns = block->time_ns;
    e->tag = block->tag;
    return BLOCKSET_REPLACED;
}

int blockset_sweep(struct blockset *set,
                   int (*each)(const struct blockset_entry *gone, void *context), void *context)
{
    for (size_t b = 0; b < set->n_buckets; b++)
        for (uint32_t *link = &set->buckets[b]; *link;) {
            uint32_t at = *link;
            struct blockset_entry *e = &set->entries[at - 1];
            if (e->round == set->round) {
                link = &e->next;
                continue;
            }
            *link = e->next;
            struct blockset_entry gone = *e;
            e->round = 0;
            e->next = set->free;
            set->free = at;
            set->n--;
            int r = each(&gone, context);
            if (r != 0)
                return r;
        }
    return 0;
}

/* A chained hash index over rows that carry their own node: no allocation per row, and rows never
 * move. Rows come from strangers, so callers mix a random seed into their hashes. */
#pragma once

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct index_node {
    struct index_node *next;
    uint64_t hash;
};

struct index {
    struct index_node **buckets;
    size_t n_buckets; /* a power of two, or 0 */
    size_t n;
};

/* The row around node member `member`. */
#define index_row(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))

/* Make room for one more row, so that the insert after it cannot fail. */
static inline int index_reserve(struct index *index)
{
    if (index->n < index->n_buckets)
        return 0;
    size_t n = index->n_buckets ? index->n_buckets * 2 : 64;
    struct index_node **buckets = calloc(n, sizeof(*buckets));
    if (!buckets)
        return -ENOMEM;
    for (size_t i = 0; i < index->n_buckets; i++)
        for (struct index_node *node = index->buckets[i], *next; node; node = next) {
            next = node->next;
            node->next = buckets[node->hash & (n - 1)];
            buckets[node->hash & (n - 1)] = node;
        }
    free(index->buckets);
    index->buckets = buckets;
    index->n_buckets = n;
    return 0;
}

/* After index_reserve(). */
static inline void index_insert(struct index *index, struct index_node *node, uint64_t hash)
{
    struct index_node **bucket = &index->buckets[hash & (index->n_buckets - 1)];
    node->hash = hash;
    node->next = *bucket;
    *bucket = node;
    index->n++;
}

static inline void index_remove(struct index *index, struct index_node *node)
{
    struct index_node **at = &index->buckets[node->hash & (index->n_buckets - 1)];
    while (*at && *at != node)
        at = &(*at)->next;
    if (*at) {
        *at = node->next;
        index->n--;
    }
}

/* First node with that hash, or the next one after `node`; the caller compares the rest. */
static inline struct index_node *index_next(struct index_node *node, uint64_t hash)
{
    while (node && node->hash != hash)
        node = node->next;
    return node;
}
static inline struct index_node *index_first(const struct index *index, uint64_t hash)
{
    return index->n_buckets ? index_next(index->buckets[hash & (index->n_buckets - 1)], hash)
                            : NULL;
}

static inline void index_release(struct index *index)
{
    free(index->buckets);
    *index = (struct index){0};
}

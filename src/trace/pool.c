/* Blocks by slot and by address. See pool.h. */
#include "trace/pool.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { CHUNKS_MIN = 16, HEADS_MIN = 64 };

void trace_pool_release(struct trace_pool *pool)
{
    for (uint32_t i = 1; i < pool->n_slots; i++) {
        struct trace_activity *a = pool_slot(pool, i)->activity;
        if (a) {
            free(a->ring);
            free(a->system);
            free(a);
        }
    }
    for (size_t i = 0; i < pool->n_chunks; i++)
        free(pool->chunks[i]);
    free(pool->chunks);
    *pool = (struct trace_pool){.max = pool->max};
}

static int chunk_add(struct trace_pool *pool)
{
    if (pool->n_chunks == pool->cap_chunks) {
        size_t cap = pool->cap_chunks ? 2 * pool->cap_chunks : CHUNKS_MIN;
        struct trace_slot **chunks = realloc(pool->chunks, cap * sizeof(*chunks));
        if (!chunks)
            return -ENOMEM;
        pool->chunks = chunks;
        pool->cap_chunks = cap;
    }
    struct trace_slot *chunk = calloc(POOL_CHUNK, sizeof(*chunk));
    if (!chunk)
        return -ENOMEM;
    pool->chunks[pool->n_chunks++] = chunk;
    return 0;
}

uint32_t trace_pool_take(struct trace_pool *pool)
{
    uint32_t slot = pool->free;
    if (pool->in_use >= pool->max)
        return 0;
    if (slot) {
        pool->free = pool_slot(pool, slot)->older;
    } else {
        if (pool->n_slots == 0)
            pool->n_slots = 1;
        if (pool->n_slots >= pool->n_chunks * POOL_CHUNK && chunk_add(pool) < 0)
            return 0;
        slot = pool->n_slots++;
    }
    struct trace_slot *s = pool_slot(pool, slot);
    *s = (struct trace_slot){.generation = s->generation, .used = true};
    pool->in_use++;
    return slot;
}

void trace_pool_give(struct trace_pool *pool, uint32_t slot)
{
    struct trace_slot *s = pool_slot(pool, slot);
    assert(s->used && !s->activity);
    s->used = false;
    s->generation++;
    s->older = pool->free;
    pool->free = slot;
    pool->in_use--;
}

/* ---- by address ---- */

static uint32_t *head_of(const struct trace_hash *hash, uint64_t address)
{
    return &hash->heads[hash_mix(address ^ HASH_K0) & (hash->n_heads - 1)];
}

static void chain_add(struct trace_hash *hash, struct trace_pool *pool, uint32_t slot)
{
    struct trace_slot *s = pool_slot(pool, slot);
    uint32_t *head = head_of(hash, s->address);
    s->hash_prev = 0;
    s->hash_next = *head;
    if (*head)
        pool_slot(pool, *head)->hash_prev = slot;
    *head = slot;
}

static void chain_remove(struct trace_hash *hash, struct trace_pool *pool, uint32_t slot)
{
    struct trace_slot *s = pool_slot(pool, slot);
    if (s->hash_next)
        pool_slot(pool, s->hash_next)->hash_prev = s->hash_prev;
    if (s->hash_prev)
        pool_slot(pool, s->hash_prev)->hash_next = s->hash_next;
    else
        *head_of(hash, s->address) = s->hash_next;
    s->hash_prev = s->hash_next = 0;
}

static int heads_grow(struct trace_hash *hash, struct trace_pool *pool)
{
    uint32_t n = hash->n_heads ? 2 * hash->n_heads : HEADS_MIN;
    uint32_t *heads = calloc(n, sizeof(*heads));
    if (!heads)
        return -ENOMEM;
    struct trace_hash grown = {heads, n, hash->n};
    for (uint32_t i = 0; i < hash->n_heads; i++)
        for (uint32_t slot = hash->heads[i], next; slot; slot = next) {
            next = pool_slot(pool, slot)->hash_next;
            chain_add(&grown, pool, slot);
        }
    free(hash->heads);
    *hash = grown;
    return 0;
}

int trace_hash_add(struct trace_hash *hash, struct trace_pool *pool, uint32_t slot)
{
    struct trace_slot *s = pool_slot(pool, slot);
    /* A table that cannot grow becomes slower, not wrong. */
    if (hash->n >= hash->n_heads && heads_grow(hash, pool) < 0 && hash->n_heads == 0)
        return -ENOMEM;
    uint32_t before = trace_hash_find(hash, pool, s->address);
    s->newer = 0;
    s->older = before;
    if (before) {
        chain_remove(hash, pool, before);
        pool_slot(pool, before)->newer = slot;
    } else {
        hash->n++;
    }
    chain_add(hash, pool, slot);
    return 0;
}

void trace_hash_remove(struct trace_hash *hash, struct trace_pool *pool, uint32_t slot)
{
    struct trace_slot *s = pool_slot(pool, slot);
    if (s->newer) {
        pool_slot(pool, s->newer)->older = s->older;
        if (s->older)
            pool_slot(pool, s->older)->newer = s->newer;
    } else {
        chain_remove(hash, pool, slot);
        if (s->older) {
            pool_slot(pool, s->older)->newer = 0;
            chain_add(hash, pool, s->older);
        } else {
            hash->n--;
        }
    }
    s->newer = s->older = 0;
}

uint32_t trace_hash_find(const struct trace_hash *hash, const struct trace_pool *pool,
                         uint64_t address)
{
    if (hash->n_heads == 0)
        return 0;
    uint32_t slot = *head_of(hash, address);
    while (slot && pool_slot(pool, slot)->address != address)
        slot = pool_slot(pool, slot)->hash_next;
    return slot;
}

const uint32_t *trace_hash_head(const struct trace_hash *hash, uint64_t address)
{
    return hash->n_heads ? head_of(hash, address) : NULL;
}

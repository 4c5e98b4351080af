/* pool.h: the blocks of a history, by slot, and what each carries. One thread at a time (the holder of the history's lock).
 *
 * A slot is a number from 1; 0 is none. Blocks lie in chunks that stay where they are. What only copied blocks need
 * (struct trace_activity) is apart: a million blocks that are never copied take 150 bytes each. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/history.h"

/* Layers of the address space. Active ranges overlap only across layers. */
enum trace_layer {
    LAYER_DRIVER = 0,   /* what calls of the driver allocated or registered */
    LAYER_SYSTEM = 1,   /* mappings that the operating system told of */
    LAYER_IMPLICIT = 2, /* known from copies only */
    LAYER_HANDLE = 3,   /* not in the address space */
    LAYERS = 4,
    LAYERS_OF_RANGES = 3,
};

enum { ORDERS = 2, REPEATS_SLOTS = 8 };

struct trace_system_sums {
    uint64_t all[TRACE_SYSTEM_KINDS], early[TRACE_SYSTEM_KINDS];
};

struct trace_activity {
    struct trace_flow flow[TRACE_DIRECTIONS];
    struct trace_flow read, written, pageable, sets, prefetches;
    uint64_t first_ns, last_ns;
    uint64_t repeated, repeated_bytes;
    struct trace_repeat repeats[REPEATS_SLOTS];
    uint64_t moments; /* without the allocation and the end, which are in the block */
    uint64_t
        in_ring; /* moments that were stored in the ring, of which the last `ring_cap` are there */
    struct trace_moment *ring;
    uint32_t ring_cap;                /* a power of two, or 0 */
    uint32_t repeat_last;             /* slot of `repeats` that matched last */
    struct trace_system_sums *system; /* NULL: none */
};

struct trace_link {
    uint32_t prev, next;
};

struct trace_slot {
    uint64_t address, size;
    uint64_t start_ns, end_ns;
    uint64_t context, call;
    struct trace_activity *activity; /* NULL: nothing but its allocation and its end */
    uint32_t site, flags;
    int32_t device, tid;
    uint32_t holder;
    uint32_t generation;            /* of the slot: blocks that used it before */
    uint32_t hash_prev, hash_next;  /* among the latest blocks of addresses with one hash */
    uint32_t newer, older;          /* blocks of the same address and layer */
    struct trace_link context_link; /* active: of one context */
    struct trace_link age_link;     /* ended, or implicit: by age */
    struct trace_link order_link[ORDERS];
    uint16_t order_step[ORDERS];
    uint16_t function;
    uint8_t space, state, end, class, layer;
    bool used, active, found;
    bool recent;   /* implicit: copied since the hand passed */
    bool stale;    /* active, and not told since trace_history_sweep_begin() */
    bool unlisted; /* active, and in no list of its context: there was no memory for that */
};

enum { POOL_CHUNK = 1024 };

struct trace_pool {
    struct trace_slot **chunks;
    size_t n_chunks, cap_chunks;
    uint32_t n_slots; /* ever used, slot 0 included */
    uint32_t free;    /* list by `older` */
    uint32_t in_use;
    uint32_t max;
};

void trace_pool_release(struct trace_pool *pool);

/* A zeroed block. 0: no memory, or `max` are in use. */
uint32_t trace_pool_take(struct trace_pool *pool);
void trace_pool_give(struct trace_pool *pool, uint32_t slot);

static inline struct trace_slot *pool_slot(const struct trace_pool *pool, uint32_t slot)
{
    return &pool->chunks[slot / POOL_CHUNK][slot % POOL_CHUNK];
}

static inline uint64_t pool_id(const struct trace_pool *pool, uint32_t slot)
{
    return (uint64_t)pool_slot(pool, slot)->generation << 32 | slot;
}

/* ---- blocks by their address ---- */

/* One for each layer. Holds the latest block of each address; older ones hang behind it. */
struct trace_hash {
    uint32_t *heads;
    uint32_t n_heads; /* a power of two, or 0 */
    uint32_t n;       /* addresses */
};

/* Make it the latest block of its address. 0 or -ENOMEM. */
int trace_hash_add(struct trace_hash *hash, struct trace_pool *pool, uint32_t slot);
void trace_hash_remove(struct trace_hash *hash, struct trace_pool *pool, uint32_t slot);
/* The latest block of an address, or 0. */
uint32_t trace_hash_find(const struct trace_hash *hash, const struct trace_pool *pool,
                         uint64_t address);

/* For prefetching: where the search for an address begins, and the slot that is there. Neither need be the right one. */
const uint32_t *trace_hash_head(const struct trace_hash *hash, uint64_t address); /* NULL: empty */

/* memory.h: blocks that the stand-in driver knows, and what lies where. All functions need the lock. */
#pragma once

#include "standin/state.h"

/* Take memory of a device (or pinned memory) for `size` bytes. */
CUresult memory_take(enum standin_kind kind, struct device *device, struct arena *arena,
                     struct context *context, uint64_t size, struct block **ret);

/* Make a block known that has its address already. */
CUresult memory_add(enum standin_kind kind, struct device *device, struct context *context,
                    uint64_t address, uint64_t size, struct block **ret);

/* Forget the block and give its memory back. */
void memory_drop(struct block *b);

/* Drop all that belongs to a context. */
void memory_drop_context(const struct context *context);

/* The block that begins at `address`, or that contains it; NULL: none. */
struct block *memory_begins(uint64_t address);
struct block *memory_at(uint64_t address);
/* The first block that overlaps [address, +size), or NULL. */
struct block *memory_overlaps(uint64_t address, uint64_t size);

/* Device memory, as seen by copies: not host memory. Managed memory counts. */
static inline bool memory_is_device(const struct block *b)
{
    return b && b->kind != STANDIN_HOST && b->kind != STANDIN_REGISTERED;
}

/* Whether every byte of [address, +size) lies in known memory that may be accessed; adjacent mappings join. */
bool memory_covers(uint64_t address, uint64_t size);

/* Called when a block is gone, by memory_drop(). */
void graph_memory_dropped(struct graph_memory *m);
void memory_left_pool(struct pool *p, uint64_t size);

void counts_live(enum standin_kind kind, const struct device *d, uint64_t bytes);
void counts_dead(enum standin_kind kind, const struct device *d, uint64_t bytes);

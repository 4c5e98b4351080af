/* live.h: the live blocks of one traced process, as the observer knows them: found by place or by handle.
 *
 * The kernel's table is the truth; this copy answers what the kernel cannot: which block contains an address. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/ranges.h"

struct live_block {
    uint64_t address, size, context, time_ns;
    uint32_t site;
    uint32_t account; /* of the book; 0: in none */
    int32_t device;
    uint8_t class;        /* enum wire_class */
    uint8_t space, flags; /* as in struct wire_block */
    bool seen;            /* by the walk that compares with the kernel */
    uint32_t next;        /* free slots */
};

struct live {
    struct live_block *slots; /* [0] stays empty */
    uint32_t n, cap, free;
    struct trace_ranges places, handles;
};

void live_release(struct live *live);

/* Enter a block; one that is there with the same name must be removed before. NULL: no memory. The pointer is good until the
 * next call of live_add(). */
struct live_block *live_add(struct live *live, uint8_t class, uint64_t address);
void live_remove(struct live *live, struct live_block *block);

/* The block with this very name; NULL. */
struct live_block *live_get(struct live *live, uint8_t class, uint64_t address);

/* The block that contains the address; NULL. */
struct live_block *live_at(struct live *live, uint64_t address);

/* Calls `each` for every block, which it may remove. */
void live_each(struct live *live, void (*each)(void *context, struct live_block *block),
               void *context);

/* Live blocks of one process. See live.h. */
#include "observe/live.h"

#include <stdlib.h>
#include <string.h>

#include "observe/wire.h"

/* Handles and addresses may have the same value; kinds of handles may, too. */
static bool is_handle(uint8_t class)
{
    return class == WIRE_ARRAY || class == WIRE_HANDLE;
}

static uint64_t handle_name(uint8_t class, uint64_t handle)
{
    return handle ^ (uint64_t) class << 60;
}

void live_release(struct live *live)
{
    free(live->slots);
    trace_ranges_release(&live->places);
    trace_ranges_release(&live->handles);
    *live = (struct live){0};
}

static uint32_t slot_new(struct live *live)
{
    if (live->free) {
        uint32_t slot = live->free;
        live->free = live->slots[slot].next;
        return slot;
    }
    if (live->n + 1 >= live->cap) {
        uint32_t cap = live->cap ? live->cap * 2 : 64;
        struct live_block *slots = realloc(live->slots, cap * sizeof(*slots));
        if (!slots)
            return 0;
        live->slots = slots;
        live->cap = cap;
    }
    return ++live->n;
}

static void slot_free(struct live *live, uint32_t slot)
{
    live->slots[slot] = (struct live_block){.next = live->free};
    live->free = slot;
}

struct live_block *live_add(struct live *live, uint8_t class, uint64_t address)
{
    uint32_t slot = slot_new(live);
    if (!slot)
        return NULL;
    int r = is_handle(class)
                ? trace_ranges_insert(&live->handles, handle_name(class, address), slot)
                : trace_ranges_insert(&live->places, address, slot);
    if (r < 0) {
        slot_free(live, slot);
        return NULL;
    }
    live->slots[slot] = (struct live_block){.address = address, .class = class, .size = 1};
    return &live->slots[slot];
}

void live_remove(struct live *live, struct live_block *block)
{
    if (is_handle(block->class))
        trace_ranges_remove(&live->handles, handle_name(block->class, block->address));
    else
        trace_ranges_remove(&live->places, block->address);
    slot_free(live, (uint32_t)(block - live->slots));
}

struct live_block *live_get(struct live *live, uint8_t class, uint64_t address)
{
    uint32_t slot;
    bool handle = is_handle(class);
    bool found = handle ? trace_ranges_floor(&live->handles, handle_name(class, address), &slot)
                        : trace_ranges_floor(&live->places, address, &slot);
    if (!found)
        return NULL;
    struct live_block *block = &live->slots[slot];
    return block->address == address && (!handle || block->class == class) ? block : NULL;
}

struct live_block *live_at(struct live *live, uint64_t address)
{
    uint32_t slot;
    if (!trace_ranges_floor(&live->places, address, &slot))
        return NULL;
    struct live_block *block = &live->slots[slot];
    return address - block->address < block->size ? block : NULL;
}

void live_each(struct live *live, void (*each)(void *context, struct live_block *block),
               void *context)
{
    for (uint32_t slot = 1; slot <= live->n; slot++)
        if (live->slots[slot].size)
            each(context, &live->slots[slot]);
}

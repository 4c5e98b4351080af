/* A hash index over numbered things that lie elsewhere: it knows hashes and numbers, the caller compares.
 *
 *     struct numbers_walk walk;
 *     for (uint32_t n = numbers_first(&x, hash, &walk); n != NUMBERS_NONE; n = numbers_next(&x, &walk))
 *         if (same(things[n], wanted))
 *             return n;
 *     numbers_add(&x, hash, n_things++);
 */
#pragma once

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define NUMBERS_NONE UINT32_MAX

struct numbers_slot {
    uint64_t hash;
    uint32_t number; /* NUMBERS_NONE: free */
};

struct numbers {
    struct numbers_slot *slots;
    size_t room, n; /* room: 0 or a power of two */
};

struct numbers_walk {
    uint64_t hash;
    size_t at;
};

static inline void numbers_release(struct numbers *x)
{
    free(x->slots);
    *x = (struct numbers){0};
}

static inline uint32_t numbers_look(const struct numbers *x, struct numbers_walk *walk)
{
    while (x->room) {
        const struct numbers_slot *slot = &x->slots[walk->at & (x->room - 1)];
        if (slot->number == NUMBERS_NONE)
            break;
        walk->at++;
        if (slot->hash == walk->hash)
            return slot->number;
    }
    return NUMBERS_NONE;
}

static inline uint32_t numbers_first(const struct numbers *x, uint64_t hash,
                                     struct numbers_walk *walk)
{
    *walk = (struct numbers_walk){hash, (size_t)hash};
    return numbers_look(x, walk);
}

static inline uint32_t numbers_next(const struct numbers *x, struct numbers_walk *walk)
{
    return numbers_look(x, walk);
}

static inline void numbers_put(struct numbers *x, uint64_t hash, uint32_t number)
{
    size_t at = (size_t)hash;
    while (x->slots[at & (x->room - 1)].number != NUMBERS_NONE)
        at++;
    x->slots[at & (x->room - 1)] = (struct numbers_slot){hash, number};
}

/* 0 or -ENOMEM. Half of the slots at least stay free, so that every walk ends. */
static inline int numbers_add(struct numbers *x, uint64_t hash, uint32_t number)
{
    if (2 * (x->n + 1) > x->room) {
        struct numbers old = *x;
        size_t room = old.room ? old.room * 2 : 64;
        struct numbers_slot *slots = malloc(room * sizeof(*slots));
        if (!slots)
            return -ENOMEM;
        for (size_t i = 0; i < room; i++)
            slots[i].number = NUMBERS_NONE;
        x->slots = slots;
        x->room = room;
        for (size_t i = 0; i < old.room; i++)
            if (old.slots[i].number != NUMBERS_NONE)
                numbers_put(x, old.slots[i].hash, old.slots[i].number);
        free(old.slots);
    }
    numbers_put(x, hash, number);
    x->n++;
    return 0;
}

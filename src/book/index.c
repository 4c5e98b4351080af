/* index.c: see index.h. Linear probing at no more than half full. */
#include "book/index.h"

#include <errno.h>
#include <stddef.h>

#include "book/writer.h"

enum { FIRST_CAPACITY = 256 };

static uint32_t half(uint64_t key)
{
    return (uint32_t)(key >> 32);
}

static void put(struct index *index, uint32_t key, uint32_t number)
{
    uint32_t at = key & (index->capacity - 1);
    while (index->slots[at].number)
        at = (at + 1) & (index->capacity - 1);
    index->slots[at] = (struct index_slot){.key = key, .number = number};
    index->used++;
}

static int grow(struct index *index)
{
    uint32_t capacity = index->capacity ? index->capacity * 2 : FIRST_CAPACITY;
    struct index larger = {.capacity = capacity};
    larger.slots = book_private_new((size_t)capacity * sizeof(struct index_slot));
    if (!larger.slots)
        return -ENOMEM;
    for (uint32_t i = 0; i < index->capacity; i++)
        if (index->slots[i].number)
            put(&larger, index->slots[i].key, index->slots[i].number);
    struct index old = *index;
    *index = larger; /* first: a signal handler may leave by longjmp() at the system call */
    index_release(&old);
    return 0;
}

uint32_t index_next(const struct index *index, uint64_t key, uint32_t *cursor)
{
    while (*cursor < index->capacity) {
        uint32_t at = (half(key) + (*cursor)++) & (index->capacity - 1);
        const struct index_slot *slot = &index->slots[at];
        if (slot->number == 0)
            break;
        if (slot->key == half(key))
            return slot->number;
    }
    return 0;
}

int index_prepare(struct index *index)
{
    return index->capacity > 0 ? 0 : grow(index);
}

int index_add(struct index *index, uint64_t key, uint32_t number, bool sealed)
{
    if (index->used >= index->capacity / 2) {
        int r = sealed ? -ENOMEM : grow(index);
        if (r < 0)
            return r;
    }
    put(index, half(key), number);
    return 0;
}

void index_release(struct index *index)
{
    book_private_free(index->slots, (size_t)index->capacity * sizeof(struct index_slot));
    *index = (struct index){0};
}

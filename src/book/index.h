/*
 * index.h: a private hash index from a 64-bit key to entry numbers of a section.
 *
 * Several entries may have the same key, or be taken to have: the caller compares. Entries are never removed. The
 * memory is the writer's own (mmap), so readers do without it and a child after fork drops it.
 * Hold the writer's lock.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct index_slot {
    /* its upper half: a stack has one of these for every frame, and they are touched at random */
    uint32_t key;
    uint32_t number; /* 0: empty */
};

struct index {
    struct index_slot *slots;
    uint32_t capacity; /* a power of two */
    uint32_t used;
};

/* The numbers stored under `key`, one by one: start with *cursor = 0; 0 when there are no more. */
uint32_t index_next(const struct index *index, uint64_t key, uint32_t *cursor);

/* Have room for the first entries, 128 of them. 0 or -ENOMEM. */
int index_prepare(struct index *index);

/* 0 or -ENOMEM. With `sealed`, never asks the kernel for memory. */
int index_add(struct index *index, uint64_t key, uint32_t number, bool sealed);

void index_release(struct index *index);

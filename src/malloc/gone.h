/*
 * gone.h: the last large blocks that were freed, of hardened programs.
 *
 * A small block keeps its record until it is given out again. The memory of a large one goes back to where others can have it, or to the
 * kernel, and the record with it; so that a second free can still be told, what it said is kept here, for the last few.
 * Any thread; never waits: of two who come at once, one is not kept.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GONE_BLOCKS = 256 };

struct gone {
    const void *start;
    uint64_t bytes;
    uint32_t alloc_stack, free_stack;
};

void gone_add(const struct gone *g);
bool gone_find(const void *start, struct gone *ret);

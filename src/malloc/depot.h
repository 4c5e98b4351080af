/*
 * depot.h: call stacks, kept once each and named by a small number.
 *
 * A hardened block remembers who allocated and who freed it; a stack of its own for each would be larger than most blocks. Stacks
 * repeat, so they are stored in a table for good, and a block keeps two numbers. When the table is full, further stacks have the number 0:
 * not known.
 *
 * Any thread, no lock, safe in a signal handler.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "site/arch.h"

enum {
    DEPOT_FRAMES = 8,
    DEPOT_STACKS = 1 << 16,
    DEPOT_TRIES = 32, /* places that a stack may have */
};

struct depot_stack {
    uint64_t key; /* hash of the frames, never 0; 0: unused */
    uint32_t n;   /* stored last; 0: being written */
    uint32_t spare;
    uintptr_t pcs[DEPOT_FRAMES];
};

/* The stack from there on, innermost call first. 0: no room, no memory. */
uint32_t depot_add(const struct unwind_state *from);

/* NULL: not known. */
const struct depot_stack *depot_get(uint32_t number);

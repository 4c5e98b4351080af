/*
 * empty.h: libmemoir's functions with nothing inside, in a library of their own.
 *
 * A loop around them costs what the loop, its arguments and two calls through the linkage table cost:
 * what a caller pays for reporting to anybody at all. Preloaded, the library is what a program pays for
 * loading any library.
 */
#pragma once

#include <stdint.h>

void empty_alloc(int device, int space, uint64_t id, uint64_t bytes);
void empty_free(int device, int space, uint64_t id);

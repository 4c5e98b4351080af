/*
 * map.h: what the program maps itself, where MEMOIR_TRACK_MMAP asks for it.
 *
 * Mappings can be cut and joined at any page, so they are kept as ranges in a private list, under one lock that is
 * held across the system call: between a munmap() and the note of it another thread could be given the same
 * addresses. The book has an account of its own for them, and each range in its table of blocks.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "track/track.h"

enum { MAP_RANGES_MAX = 8192 }; /* beyond it mappings are not counted, and the loss is */

struct map_range {
    uintptr_t start, end;
    uint32_t site;
};

struct map_list {
    uint32_t lock;
    uint32_t account; /* 0: none yet */
    uint32_t n;
    struct map_range range[MAP_RANGES_MAX]; /* in no order */
};

/* Around a system call of the program's: NULL if it is not to be counted (which is no error). The list is locked
 * until map_end(). */
struct track_thread *map_begin(uintptr_t caller);
void map_end(struct track_thread *t);

/* In between. */
void map_added(struct track_thread *t, void *start, size_t bytes, uintptr_t caller);
void map_removed(struct track_thread *t, void *start, size_t bytes);

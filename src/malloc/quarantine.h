/*
 * quarantine.h: blocks that were freed and are not given out again for a while.
 *
 * First in, first out, bounded by their bytes (setting quarantine) and their number. A block that leaves must be as it was left: what
 * was written into it meanwhile ends the program with a message. One lock, with a rank before all others of the allocator; held
 * across fork.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "malloc/lock.h"

enum { QUARANTINE_BLOCKS = 1 << 14 };

extern struct lock quarantine_lock;

/* A block of harden.h that was freed, filled or hidden. */
void quarantine_add(void *start, size_t bytes);

/* Bytes that it may hold. */
size_t quarantine_limit(void);

/* Look at all of them. Ends the program if one was written to. */
void quarantine_check(void);

struct quarantine_counts {
    uint64_t blocks, bytes; /* there now */
};
/* Without waiting: zero where somebody is inside. */
struct quarantine_counts quarantine_counts_try(void);

/*
 * guard.h: blocks between two pages that cannot be touched.
 *
 * A guarded block is a large block (heap.h) of its own slices, whatever its size:
 *
 *   page 0: its record | page 1: guard | pages with the block, which ends where they end | guard | rest of the last slice
 *
 * so that the first byte beyond it, up to its alignment, lies in a guard. It still starts in its first slice, and no other large block
 * starts so far behind: that is how it is known. The kernel keeps a mapping for each change of access, of which a process may have
 * 65530: hence the limit.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "malloc/heap.h"
#include "malloc/os.h"

enum {
    GUARD_LEAD = 2 * 4096, /* the record's page and a guard */
    GUARD_LIVE_MAX = 8192, /* four mappings each */
    GUARD_BYTES_MAX = HEAP_LARGE_MAX - GUARD_LEAD - 2 * 4096,
};

/* Room for `bytes`, without a record. NULL: too large, too many, no memory, or a kernel with larger pages; take an ordinary one. */
void *guard_alloc(size_t bytes, size_t align);

/* No access to the block any more; its record stays. */
void guard_hide(struct slab *s);
void guard_free(struct slab *s);

static inline bool guard_is(const struct slab *s)
{
    return s->start >= GUARD_LEAD;
}

struct hard_record;
static inline struct hard_record *guard_record(const struct slab *s)
{
    return (struct hard_record *)slab_memory(s);
}

/* Up to the guard. */
static inline size_t guard_usable(const struct slab *s)
{
    return s->asked;
}

/* The last whole page before an address. */
static inline uintptr_t guard_page_before(uintptr_t end)
{
    return (end - os_page_bytes()) & -os_page_bytes();
}

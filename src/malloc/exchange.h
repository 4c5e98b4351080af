/*
 * exchange.h: memory goes from huge blocks to macro-blocks and back without page faults, and mostly without the kernel.
 *
 * Both lie at multiples of 2 MiB, and both keep what was freed (huge_cache.h, source.h). A source that needs a macro-block takes a unit
 * of what is kept for huge blocks; a huge block for which nothing is kept takes macro-blocks in which nothing is left: side by side where
 * they are; or from anywhere, by moving their pages, where as much would have to go back to the kernel otherwise (policy.h). What is
 * exchanged was kept before and is in use then: the bounds of policy.h hold as they do for memory that stays where it is.
 *
 * Nobody holds two locks: what was taken out under the one is nobody's until it is put in under the other. A child that is forked in
 * between does not find it, as with all that is on its way to the kernel.
 *
 * Not where memory is not all alike: with several sources, whose macro-blocks are of their node; and not in a range that is held for
 * the heap (range.h), where images tell what lies where. Nor where blocks are accounted: who looks for lost ones (scan/find.h) takes
 * what is two mappings to the kernel for the memory of two.
 *
 * What was exchanged may be several mappings to the kernel: because it moved, or because the kernel was told something about a
 * macro-block (huge pages, or none). Such a range is unmapped, purged and cut as any other; os_extend() refuses it before anything is
 * changed, so a block there is copied to grow.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "malloc/huge_cache.h"

/* No larger block takes macro-blocks: they change hands one by one, with the lock. */
#define EXCHANGE_MAX ((size_t)1 << 30)

/* How much of the peak of slices may be kept, in eighths, as it was learnt from what was missed; 0: nothing is exchanged. A load. */
unsigned exchange_share(void);

/* Moves of units that the kernel refused, since the beginning: after a few, no more are tried. */
extern uint32_t exchange_moves_failed __attribute__((visibility("hidden")));

/* Memory for a macro-block: 2 MiB, of which the first *ret_dirty bytes may not be zero; those of the descriptors are. NULL: there is
 * none. Without a lock. */
void *exchange_unit(size_t *ret_dirty);

/* Memory for a huge block, from macro-blocks: `bytes`, or whole units that have as many. The first *ret_dirty bytes may not be zero. False:
 * there is none. Without a lock. */
bool exchange_range(size_t bytes, struct huge_range *ret, size_t *ret_dirty);

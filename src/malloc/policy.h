/*
 * policy.h: what is kept, and what goes back to the kernel when.
 *
 * Free memory that was used is kept for its next use, as far as each part of the allocator finds it worth while (source.h,
 * huge.h): a share of what was in use at once not long ago. How much of that depends on the level of memory pressure,
 * which is looked at here, in one place, by whoever happens to free something; and whoever that is also gives back what
 * others have kept for too long. Nothing happens in a program that does nothing: what it may keep is settled while it frees.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"

enum {
    POLICY_LOOK_MS = 250,      /* pressure is looked at no more often, */
    POLICY_LOOK_MIN = 4 << 20, /* and not by who has no more than this */
};

/* Only policy.c writes; any thread reads (relaxed). */
extern uint32_t policy_level_now __attribute__((visibility("hidden")));

/* An enum pressure_level, as of the last tick. A load. */
static inline unsigned policy_level(void)
{
    return load_relaxed(&policy_level_now);
}

/* Memory came back, or some was needed. A few loads, but every POLICY_LOOK_MS one caller looks, and does what follows from it. Keeps
 * errno. Without any lock of the allocator's. A program that lives for less does not look at all, unless it is `needed`:
 * more is kept than may be. Nor does one that has no more than POLICY_LOOK_MIN in use and kept. */
void policy_tick(bool needed);

/* Memory that nobody has touched yet is given out, by huge.h or by a source: it is in use by now, but not yet touched. If all that is in use
 * or kept is clearly more than the most that was in use at once not long ago, what is kept makes room. A few loads if there is nothing
 * to do. Without any lock of the allocator's. */
void policy_grown(bool huge);

/* Would so many bytes that nobody has touched yet, for a huge block or in slices, make as many of the other kind go? A few loads. */
bool policy_would_yield(size_t bytes, bool huge);

/* The settings have been read. */
void policy_begin(void);

/* What mallopt() and MEMOIR_MALLOC=keep say: free memory to keep at most, SETTING_AUTO: by policy. */
void policy_keep(uint64_t bytes);

/*
 * range_plan.h: which addresses are whose, from the settings alone.
 *
 * All processes of a job have the same base, the same bytes for a slot and the same number of slots; each has a slot of its own. So an
 * address means the same block in all of them. doc/ranges.md tells what for.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "malloc/settings.h"

struct range_plan {
    uintptr_t base; /* of the first slot */
    size_t bytes;   /* of each */
    uint32_t slot;  /* ours, */
    uint32_t slots; /* of so many */
};

static inline uintptr_t range_plan_from(const struct range_plan *p)
{
    return p->base + p->slot * p->bytes;
}

/* The end of the last slot. */
static inline uintptr_t range_plan_end(const struct range_plan *p)
{
    return p->base + p->slots * p->bytes;
}

/* 1: *ret has it; 0: no range is wanted; -EINVAL: what is set makes no sense, and *ret_why says why. */
int range_plan(const struct malloc_settings *s, struct range_plan *ret, const char **ret_why);

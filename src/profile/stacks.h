/* The stacks of a profile, whole as far as they are known, with figures that add up to the exact ones.
 *
 * Where a program's exact sites know only the caller and sampling found whole stacks, the caller's exact
 * figures are divided among the sampled stacks that begin with it, in the proportion of their estimates:
 * what is live by the samples that are live, what was freed by those that were freed. Allocated is the sum
 * of the two, so that no stack holds more than it allocated. Such a stack is an estimate; the sum over the
 * stacks of one caller is exact. A caller of which no stack was sampled, or none that still holds
 * something, keeps that part as a stack of one frame. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profile/profile.h"

struct stack {
    const uint32_t *frames; /* the profile's; the innermost first */
    uint16_t n_frames;
    uint16_t inside; /* frames that lie before `frames`, which is not the innermost then: rows.c */
    bool estimate;   /* its share of the caller's figures is */
    bool cut;        /* it was deeper */
    bool bare;       /* only the caller is known */
    uint32_t account;
    uint64_t first_seen_ns;
    struct profile_figures figures;
};

struct stacks {
    struct stack *list; /* in no order */
    size_t n;
    struct profile_figures estimated; /* sum of those that are estimates */
    struct profile_figures bare; /* of callers without a sampled stack, where others have some */
    size_t orphans;              /* sampled stacks whose caller counted nothing: left out */
};

/* What a site says by itself. Borrows the profile's frames, as below. */
/* What callers and the stacks that were sampled through them are matched by: the innermost frame, but for code made at run time
 * one number for all of it, since exact sites do not keep its addresses. */
uint64_t stack_caller(const struct profile *profile, uint32_t frame);

struct stack stack_of(const struct profile *profile, const struct profile_site *site);

/* Borrows the profile's frames until it is changed or freed. 0 or -ENOMEM. */
int stacks_take(const struct profile *profile, struct stacks *ret_stacks);
void stacks_release(struct stacks *stacks);

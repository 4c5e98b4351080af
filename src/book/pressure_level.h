/*
 * pressure_level.h: from figures to a level, for memoird and for allocators that find none.
 *
 * Two figures count. What is left: MemAvailable of the machine's memory, or the headroom of a cgroup of its limit. And
 * the stall: the share of time in which programs waited for memory. A level is reached at once, and left one step at a
 * time, after some seconds in which everything was better than the threshold by a margin: levels that flutter would make
 * programs give back and fetch again.
 */
#pragma once

#include "book/pressure.h"

struct pressure_limits {
    /* By level, hundredths of a per cent. [PRESSURE_PLENTY] is not used. */
    uint32_t stall[PRESSURE_LEVELS]; /* this much or more, */
    uint32_t left[PRESSURE_LEVELS];  /* less than this; 100 %: always */
};

#define PRESSURE_PERCENT(n) ((n)*100)

static const struct pressure_limits pressure_limits_default = {
    .stall = {0, PRESSURE_PERCENT(2), PRESSURE_PERCENT(10), PRESSURE_PERCENT(30)},
    .left = {0, PRESSURE_PERCENT(20), PRESSURE_PERCENT(10), PRESSURE_PERCENT(5)},
};

/* On large machines a share is much: what is left counts as little only below this, half of it, a quarter of it. */
#define PRESSURE_LEFT_BYTES_MAX (UINT64_C(32) << 30)

enum {
    /* With much left, stalls have other reasons (a cgroup at its limit, fragments, old pages that come back from swap), against which
     * nobody else's memory helps: above the first share they tell of PRESSURE_SOME at most, above the second of nothing, since who gave back
     * for them would only fetch it again. */
    PRESSURE_LEFT_HALF = PRESSURE_PERCENT(50),
    PRESSURE_LEFT_MOST = PRESSURE_PERCENT(75),
    PRESSURE_CALM_MS = 5000 /* that a level lasts after its reason */
};

struct pressure_state {
    uint32_t level;
    uint64_t calm_ns; /* since when things are better than the level; 0: they are not */
};

static inline uint32_t pressure_share(uint64_t part, uint64_t whole)
{
    if (part >= whole)
        return PRESSURE_PERCENT(100);
    /* Beyond 2^40 bytes the last bits do not matter, and the product would not fit. */
    unsigned shift = whole >> 48 ? 16 : 0;
    return (uint32_t)((part >> shift) * PRESSURE_PERCENT(100) / (whole >> shift));
}

static inline unsigned pressure_left_level(const struct pressure_limits *limits, uint64_t left,
                                           uint64_t of, bool leaving)
{
    uint32_t share = pressure_share(left, of);
    for (unsigned level = PRESSURE_CRITICAL; level > PRESSURE_PLENTY; level--) {
        uint64_t share_max = limits->left[level],
                 bytes_max = PRESSURE_LEFT_BYTES_MAX >> (level - PRESSURE_SOME);
        if (share_max >= PRESSURE_PERCENT(100))
            return level;
        if (leaving) {
            share_max += share_max / 4;
            bytes_max += bytes_max / 4;
        }
        if (share < share_max && left < bytes_max)
            return level;
    }
    return PRESSURE_PLENTY;
}

/* A time in which nobody could run weighs twice. */
static inline uint32_t pressure_stall(const struct pressure_inputs *in)
{
    uint32_t stall = in->some_avg10 > in->some_last ? in->some_avg10 : in->some_last;
    return in->full_avg10 > stall / 2 ? in->full_avg10 * 2 : stall;
}

static inline unsigned pressure_stall_level(const struct pressure_limits *limits,
                                            const struct pressure_inputs *in, bool leaving)
{
    uint32_t stall = pressure_stall(in);
    unsigned level = PRESSURE_CRITICAL;
    while (level > PRESSURE_PLENTY &&
           stall < (leaving ? limits->stall[level] / 2 : limits->stall[level]))
        level--;
    uint32_t share =
        in->valid & PRESSURE_HAS_MEMORY ? pressure_share(in->available_bytes, in->total_bytes) : 0;
    unsigned most = share > PRESSURE_LEFT_MOST   ? PRESSURE_PLENTY
                    : share > PRESSURE_LEFT_HALF ? PRESSURE_SOME
                                                 : PRESSURE_CRITICAL;
    return level < most ? level : most;
}

/* The level that these figures make. `leaving`: with the margin, for who has one already and asks whether it still
 * holds. A figure that is not known makes none. */
static inline unsigned pressure_judge(const struct pressure_limits *limits,
                                      const struct pressure_inputs *in, bool leaving)
{
    unsigned level = PRESSURE_PLENTY, other;
    if (in->valid & PRESSURE_HAS_MEMORY && in->total_bytes)
        level = pressure_left_level(limits, in->available_bytes, in->total_bytes, leaving);
    if (in->valid & PRESSURE_HAS_LIMIT && in->limit_bytes) {
        other = pressure_left_level(limits, in->headroom_bytes, in->limit_bytes, leaving);
        level = other > level ? other : level;
    }
    if (in->valid & PRESSURE_HAS_STALL) {
        other = pressure_stall_level(limits, in, leaving);
        level = other > level ? other : level;
    }
    return level;
}

/* One more look, at `now_ns`, which is not 0. */
static inline void pressure_step(struct pressure_state *state, const struct pressure_limits *limits,
                                 const struct pressure_inputs *in, uint64_t now_ns)
{
    unsigned level = pressure_judge(limits, in, false);
    if (level > state->level) {
        state->level = level;
        state->calm_ns = 0;
    } else if (pressure_judge(limits, in, true) >= state->level) {
        state->calm_ns = 0;
    } else if (state->calm_ns == 0 || now_ns < state->calm_ns) {
        state->calm_ns = now_ns;
    } else if (now_ns - state->calm_ns >= PRESSURE_CALM_MS * UINT64_C(1000000)) {
        state->level--;
        state->calm_ns = now_ns;
    }
}

/* What history is made of: tiers, windows, and the values of a series. */
#pragma once

#include <stdint.h>

#include "history/pack.h"

/* A tier keeps one point a step. Its time is cut into windows of PACK_SLOTS_MAX steps, aligned to 1970, and
 * a chunk is one window of one series. A window of a coarser tier is made of whole windows of the finer
 * one. */
enum { HISTORY_TIERS = 3 };
static const uint32_t history_step_s[HISTORY_TIERS] = {1, 10, 60};
enum { HISTORY_STEP_MAX_S = 60 };

static inline uint64_t history_window_s(unsigned tier)
{
    return (uint64_t)history_step_s[tier] * PACK_SLOTS_MAX;
}

/* Numbers that are in the file: they do not change. */
enum history_metric {
    HISTORY_RSS = 1,    /* bytes of a process in the host's memory, as the kernel counts; space 0 */
    HISTORY_BYTES = 2,  /* live bytes of a space */
    HISTORY_BLOCKS = 3, /* live blocks: of a space on a device; of a process in all, space 0 */
    HISTORY_CAPACITY = 4, /* of a space of a device */
    HISTORY_PSS =
        5, /* proportional size of a process, in the seconds in which it was measured; space 0 */
    HISTORY_SYSTEM = 6, /* memory of the machine; `space` is an enum history_system */
    HISTORY_PRESSURE =
        7, /* memory pressure of the machine (PSI, average over 10 s), in hundredths of
                             a percent; `space` is an enum history_pressure */
};

enum history_system {
    HISTORY_SYSTEM_TOTAL = 1,
    HISTORY_SYSTEM_AVAILABLE = 2,
    HISTORY_SYSTEM_USED = 3,
    HISTORY_SYSTEM_SWAP = 4,  /* what is swapped out */
    HISTORY_SYSTEM_PARTS = 5, /* and on: enum host_part, which add up to the total */
};

enum history_pressure {
    HISTORY_PRESSURE_SOME = 1, /* at least one task stalled */
    HISTORY_PRESSURE_FULL = 2, /* all tasks stalled */
};

/* The file in the state directory. */
#define HISTORY_FILE "history.db"

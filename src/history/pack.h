/* A chunk: up to PACK_SLOTS_MAX points of one series, packed.
 *
 * A point is a slot of the chunk's window (its time: the window's start plus slot times step) and a value;
 * chunks of coarser tiers also have the largest value of each step. Values are kept exactly. What makes
 * them small: all are divided by the largest power of two that leaves nothing over (pages), and then only
 * differences, or differences of differences where that is shorter, are written by an adaptive Rice code,
 * where zeros may be counted instead of written. 120 unchanged values take about 6 bytes; a noisy
 * resident size about a byte a value. The bytes are described in doc/history.md.
 *
 * No allocation, no locks; any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PACK_SLOTS_MAX = 120, /* of a window */
    /* The most that a chunk takes: two lists of values and one of slots, each at most 21 bits for a
     * run and 91 for a value. */
    PACK_BYTES_MAX = 64 + PACK_SLOTS_MAX * 3 * 14,
};

struct pack_points {
    unsigned n;
    bool has_max;                 /* `max` means something */
    uint8_t slot[PACK_SLOTS_MAX]; /* rising */
    uint64_t last[PACK_SLOTS_MAX];
    uint64_t max[PACK_SLOTS_MAX]; /* at least `last` */
};

/* Pack at least one point; returns the length. About 30 ns a point. */
size_t pack_encode(const struct pack_points *points, uint8_t to[static PACK_BYTES_MAX]);

/* Unpack bytes that may be anything. -EBADMSG when they are no chunk; a chunk that decodes has rising
 * slots below PACK_SLOTS_MAX and no max below its last. */
int pack_decode(const uint8_t *data, size_t len, struct pack_points *ret_points);

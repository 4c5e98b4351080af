/*
 * pressure.h: how scarce memory is, for the allocator's decision what to keep.
 *
 * The worse of two: memoird's word for the machine (book/pressure.h), or the kernel's own figures where nobody publishes
 * one; and the headroom of this process's cgroup. For any place in malloc: no malloc, no lock, no descriptor that stays,
 * no cancellation point; errno stays as it is. Works on in children of fork().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "book/pressure.h"

enum {
    PRESSURE_LOOK_MS = 250, /* files are read at most so often, and only when somebody asks, */
    PRESSURE_MAP_MS = 1000, /* a word is looked for at most so often, */
    PRESSURE_UNLIMITED_MS = 10000, /* a cgroup that had no limit is looked at again after this */
    PRESSURE_BLIND_MS = 10000,     /* and nothing at all for so long where nothing can be read */
    PRESSURE_AUTO = -1
};

/* Take note of the environment (MEMOIR_DIR, XDG_RUNTIME_DIR). At the start, before the program can change it; without it
 * the first question does so. */
void pressure_init(void);

/* An enum pressure_level. A few loads; every PRESSURE_LOOK_MS one caller pays 5 to 100 µs for all. `now_ns` is
 * CLOCK_MONOTONIC, also the coarse one. */
unsigned pressure_level_at(uint64_t now_ns);
unsigned pressure_level(void);

/* From now on the level is this, whatever the settings say; PRESSURE_AUTO: what they do, which may be what is found. */
void pressure_override(int level);

/* Open no file any more: memoird's word counts while it is kept up to date, and otherwise memory is plenty. Waits for who is at it, but not
 * for long. */
void pressure_blind(void);
/* There is no need to after all: takes back one pressure_blind(). */
void pressure_see(void);

/* For tests: other roots than /proc and /sys/fs/cgroup; before the first question. Borrows both. */
void pressure_roots(const char *proc, const char *cgroups);

/*
 * meter.h: how much memory and how many CPUs this process may still use.
 *
 * The answers are in files of /proc and of the cgroup, and the table of descriptors is the program's. A
 * descriptor of ours in it, even for microseconds, can be noticed: a thread that is about to use the last
 * free number fails with EMFILE, one that relies on the next number gets another, and one that closes all
 * descriptors closes ours, so that our close() would hit what the program has opened there since. A
 * descriptor that is kept, at a high number or not, is counted, inherited by fork() and closed by
 * closefrom(). So a helper thread (crew.h) reads the files. It leaves the program's table first for one of
 * its own, empty one: close_range() with CLOSE_RANGE_UNSHARE closes the copies in the same call, so that no pipe or
 * socket of the program stays open in it. POSIX locks belong to the table and stay with the program.
 *
 * Where that call is not known (before Linux 5.9), or no helper can be had for the first reading,
 * descriptors in the program's table are used after all: to pin more than a cgroup allows would end the
 * program.
 *
 * Any thread of a process that has a CUDA context; errno is kept. A call takes nanoseconds; every
 * METER_FRESH_MS one of them wakes the helper. It waits for the answer, about 0.2 ms and at most
 * METER_WAIT_MS, only if the last one is older than METER_STALE_MS.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    METER_FRESH_MS = 100,  /* a reading counts as long without doubt, */
    METER_STALE_MS = 1000, /* and as long while the next one is made */
    METER_WAIT_MS = 20,
    METER_FIRST_MS = 500, /* before the first one nothing is known */
};

/* What the machine and the cgroups have left, whichever is less. False: unknown. */
bool meter_headroom(uint64_t *ret_bytes);

/* CPUs that this process may use: its affinity mask and the CPU quota of its cgroups, whichever is
 * smaller; at least 1. */
unsigned meter_cpus(void);

/* Of these, those that one piece of work may use, the caller's included: all of up to four, half of
 * more. */
unsigned meter_share(void);

/* In a child of fork: no helper reads. */
void meter_forget(void);

/* For tests: whether descriptors of the program's table were used; and read again at the next call, as if for the first
 * time, with that patience. */
bool meter_was_visible_for_test(void);
void meter_age_for_test(uint32_t first_ms);

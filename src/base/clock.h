/* Time in nanoseconds. Each is a vDSO call (about 20 ns; the coarse one 5 ns, as fine as the kernel's
 * tick) and safe in a signal handler. */
#pragma once

#include <stdint.h>
#include <time.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

static inline uint64_t clock_ns(clockid_t clock)
{
    struct timespec ts = {0};
    clock_gettime(clock, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* Never jumps; stands still while the machine sleeps. For intervals. */
static inline uint64_t clock_monotonic_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

static inline uint64_t clock_monotonic_coarse_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC_COARSE);
}

/* Like monotonic but goes on in sleep: the clock of /proc/PID/stat's start time. */
static inline uint64_t clock_boot_ns(void)
{
    return clock_ns(CLOCK_BOOTTIME);
}

/* Since 1970, UTC. May jump: for people and files, not for intervals. */
static inline uint64_t clock_real_ns(void)
{
    return clock_ns(CLOCK_REALTIME);
}

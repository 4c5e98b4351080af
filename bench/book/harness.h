/*
 * harness.h: what the programs of this benchmark share: time, quiet, random ids, a device.
 *
 * Two switches come from the environment, set by bench/book/run: MEMOIR_BENCH_PIN=0 leaves threads to
 * the scheduler, MEMOIR_BENCH_REALTIME=0 leaves them at normal priority. Programs print one JSON object
 * a line for each repetition; run adds what the rows have in common. All calls end the program with a
 * message when something fails: half a measurement is none.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

uint64_t bench_now_ns(void);

/* splitmix64: every 64-bit number once, so ids never repeat. */
uint64_t bench_random(uint64_t *state);

/* 256 B to 1 MB in powers of two, by the id. */
static inline uint64_t bench_size(uint64_t id)
{
    return UINT64_C(256) << (id >> 32) % 13;
}

/* Let the calling thread run on the n-th CPU that we may use, and only there. */
void bench_pin(unsigned n);
unsigned bench_cpus(void);

/* Between the two the calling thread, if it may, is not preempted by other programs. Keep it under half a
 * second: bench_quiet_end() sleeps a while, so that the kernel's limit on real-time work never throttles
 * us in the middle of a measurement, and other programs get on. */
void bench_quiet_begin(void);
void bench_quiet_end(void);

/* Device number ORDINAL, with capacities, as libmemoir numbers it. */
int bench_device(int ordinal);

/* Numbers from the command line. */
uint64_t bench_number(const char *text);

/* Start PROGRAM with `argv`; its output `fd_from` is the pipe returned. */
pid_t bench_start(char *const argv[], int fd_from, int *ret_pipe);

__attribute__((noreturn, format(printf, 1, 2))) void bench_fail(const char *format, ...);

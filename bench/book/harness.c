/* See harness.h. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <memoir/memoir.h>

extern char **environ;

static _Thread_local uint64_t quiet_since_ns;

uint64_t bench_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t bench_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static bool switched_on(const char *name)
{
    const char *value = getenv(name);
    return !value || strcmp(value, "0") != 0;
}

/* ---- quiet ---- */

unsigned bench_cpus(void)
{
    cpu_set_t set;
    return sched_getaffinity(getpid(), sizeof(set), &set) < 0 ? 1 : (unsigned)CPU_COUNT(&set);
}

void bench_pin(unsigned n)
{
    static cpu_set_t usable; /* as it was before the first thread was pinned */
    if (!switched_on("MEMOIR_BENCH_PIN"))
        return;
    if (CPU_COUNT(&usable) == 0 && sched_getaffinity(0, sizeof(usable), &usable) < 0)
        return;
    n %= (unsigned)CPU_COUNT(&usable);
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &usable) || n-- > 0)
            continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        (void)sched_setaffinity(0, sizeof(one), &one);
        return;
    }
}

void bench_quiet_begin(void)
{
    if (switched_on("MEMOIR_BENCH_REALTIME"))
        (void)sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 10});
    quiet_since_ns = bench_now_ns();
}

void bench_quiet_end(void)
{
    uint64_t took_ns = bench_now_ns() - quiet_since_ns;
    if (!switched_on("MEMOIR_BENCH_REALTIME"))
        return;
    (void)sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){0});
    /* The kernel lets real-time work have 950 ms of each second. */
    took_ns /= 8;
    nanosleep(&(struct timespec){(time_t)(took_ns / 1000000000), (long)(took_ns % 1000000000)},
              NULL);
}

/* ---- the rest ---- */

int bench_device(int ordinal)
{
    char uid[32];
    snprintf(uid, sizeof(uid), "BENCH-%d", ordinal);
    int device = memoir_device(&(struct memoir_device_options){
        .struct_size = sizeof(struct memoir_device_options),
        .kind = MEMOIR_DEVICE_SIMULATED,
        .ordinal = ordinal,
        .name = "Benchmark device",
        .uid = uid,
        .capacity = {{MEMOIR_SPACE_DRAM, UINT64_C(64) << 30}, {MEMOIR_SPACE_L1, 128 << 20}},
    });
    if (device == MEMOIR_HOST)
        bench_fail("cannot declare a device");
    return device;
}

uint64_t bench_number(const char *text)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || end == text || *end)
        bench_fail("not a number: '%s'", text);
    return value;
}

pid_t bench_start(char *const argv[], int fd_from, int *ret_pipe)
{
    int ends[2];
    pid_t pid;
    posix_spawn_file_actions_t actions;
    if (pipe2(ends, O_CLOEXEC) < 0)
        bench_fail("cannot make a pipe: %m");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], fd_from);
    int error = posix_spawn(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error)
        bench_fail("cannot start '%s': %s", argv[0], strerror(error));
    *ret_pipe = ends[0];
    return pid;
}

void bench_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fflush(stdout);
    fputs("bench: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

/* cases.h: a program of cases, each run in a process of its own by the same program, so that one that crashes or hangs
 * is one failure and each begins with a fresh heap. Speaks TAP.
 *
 *   program            all cases
 *   program NAME...    these, here and now: for a debugger
 *
 * MALLOC_UNDER_TEST names the file that malloc must come from: a library that could not be preloaded is only a
 * warning of the loader, and the tests would hold against another allocator. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct test_case {
    const char *name;
    void (*run)(void);
};

/* Waits are limits for a broken allocator, never a measure: the machine may be busy. */
enum { CASE_SECONDS = 120 };

int cases_main(int argc, char **argv, const struct test_case *cases, size_t count);

/* Ends this case: it cannot be tried here, and why. */
void case_skip(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* fork() for a test: the child cannot hang for ever, and dies when something is not true. */
pid_t case_fork(void);

/* The child ended by itself with status 0. */
void case_reap(pid_t child);

/* Bytes resident, as the kernel counts them now. */
size_t case_resident(void);

/* The same sequence for the same seed. */
static inline uint64_t case_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

void case_fail(const char *file, int line, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));

/* Our own assertion: works in every build, and allocates nothing, which matters here. */
#define MUST(condition)                                                \
    do {                                                               \
        if (!(condition))                                              \
            case_fail(__FILE__, __LINE__, "not true: %s", #condition); \
    } while (0)

/* The same, with the values that tell which of many it was. */
#define MUST_SAY(condition, ...)                        \
    do {                                                \
        if (!(condition))                               \
            case_fail(__FILE__, __LINE__, __VA_ARGS__); \
    } while (0)

#ifdef __cplusplus
}
#endif

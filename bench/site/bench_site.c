/* What taking a call stack costs: nanoseconds per unwind at 8, 16 and 32 frames.
 *
 * Every way runs at the bottom of a recursion of the wanted depth, warm, in shuffled order of rounds;
 * the table shows the median and the fastest round. libunwind is measured if it is on the machine. */
#include <dlfcn.h>
#include <execinfo.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "site/key.h"
#include "site/module.h"
#include "site/unwind.h"

enum { ROUNDS = 31, FRAMES_MAX = 64 };

static struct unwind_cache cache;
static int (*libunwind_backtrace)(void **, int);
static uintptr_t sink;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static size_t way_frame_pointers(uintptr_t *pcs, size_t max)
{
    return unwind_frame_pointers(pcs, max, (uintptr_t)__builtin_frame_address(0));
}

static size_t way_cached(uintptr_t *pcs, size_t max)
{
    return unwind_stack(&cache, pcs, max);
}

static size_t way_uncached(uintptr_t *pcs, size_t max)
{
    return unwind_stack(NULL, pcs, max);
}

static size_t way_libunwind(uintptr_t *pcs, size_t max)
{
    return (size_t)libunwind_backtrace((void **)pcs, (int)max);
}

static size_t way_glibc(uintptr_t *pcs, size_t max)
{
    return (size_t)backtrace((void **)pcs, (int)max);
}

static size_t way_identity(uintptr_t *pcs, size_t max)
{
    pcs[0] = (uintptr_t)__builtin_return_address(0);
    sink += unwind_identity(&cache, pcs[0]);
    return 1;
}

static size_t way_module(uintptr_t *pcs, size_t max)
{
    struct module_info info;
    pcs[0] = (uintptr_t)__builtin_return_address(0);
    sink += (uintptr_t)module_find(pcs[0], &info);
    return 1;
}

static const struct way {
    const char *name;
    size_t (*take)(uintptr_t *, size_t);
    unsigned repeats;
} ways[] = {
    {"frame pointers", way_frame_pointers, 20000},
    {"cached", way_cached, 20000},
    {"uncached", way_uncached, 300},
    {"libunwind unw_backtrace", way_libunwind, 5000},
    {"glibc backtrace()", way_glibc, 500},
    {"identity of one address", way_identity, 20000},
    {"module of one address", way_module, 2000},
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

static __attribute__((noinline)) double measure(const struct way *way, size_t max, size_t *ret_n)
{
    uintptr_t pcs[FRAMES_MAX];
    size_t n = 0;
    double start = now_ns();
    for (unsigned i = 0; i < way->repeats; i++)
        n = way->take(pcs, max);
    double end = now_ns();
    sink += pcs[0];
    *ret_n = n;
    return (end - start) / way->repeats;
}

static __attribute__((noinline)) double descend(unsigned depth, const struct way *way, size_t max,
                                                size_t *ret_n)
{
    if (depth == 0)
        return measure(way, max, ret_n);
    double d = descend(depth - 1, way, max, ret_n);
    sink++; /* no tail call */
    return d;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    static const unsigned depths[] = {8, 16, 32};
    static double took[WAYS][3][ROUNDS];
    static size_t frames[WAYS][3];
    void *lib = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
    if (lib)
        *(void **)&libunwind_backtrace = dlsym(lib, "unw_backtrace");

    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned d = 0; d < 3; d++) {
            for (unsigned i = 0; i < WAYS; i++) {
                unsigned w = (i * 3 + round) % WAYS;
                if (ways[w].take == way_libunwind && !libunwind_backtrace)
                    continue;
                took[w][d][round] = descend(depths[d], &ways[w], depths[d], &frames[w][d]);
            }
        }
    }
    printf("%-26s %22s %22s %22s\n", "ns per stack (frames got)", "8 frames", "16 frames",
           "32 frames");
    for (unsigned w = 0; w < WAYS; w++) {
        if (frames[w][0] == 0)
            continue;
        printf("%-26s", ways[w].name);
        for (unsigned d = 0; d < 3; d++) {
            qsort(took[w][d], ROUNDS, sizeof(double), by_value);
            printf("  %7.1f min %6.1f (%2zu)", took[w][d][ROUNDS / 2], took[w][d][0], frames[w][d]);
        }
        printf("\n");
    }
    return sink == 42;
}

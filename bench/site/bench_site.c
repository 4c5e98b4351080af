/* What call stacks and names cost.
 *
 * Usage: bench_site [ROUNDS.csv]
 *
 * Every way of taking a stack runs at the bottom of a recursion of the wanted depth, warm, the ways
 * taking turns; the table shows the median and the fastest of all rounds, the file has every round.
 * libunwind is measured if it is on the machine. */
#include <dlfcn.h>
#include <execinfo.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "site/module.h"
#include "site/symbols.h"
#include "site/unwind.h"

enum { ROUNDS = 31, FRAMES_MAX = 64 };

static struct unwind_cache cache;
static int (*libunwind_backtrace)(void **, int);
static uintptr_t sink;

static double read_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double now_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
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

/* The first thing in a library that was not loaded with the program. */
static uintptr_t unloadable_pc;

static size_t way_identity_unloadable(uintptr_t *pcs, size_t max)
{
    pcs[0] = unloadable_pc;
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
    {"  in an unloadable module", way_identity_unloadable, 20000},
    {"module of one address", way_module, 2000},
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

static __attribute__((noinline)) double measure(const struct way *way, size_t max, size_t *ret_n)
{
    uintptr_t pcs[FRAMES_MAX];
    size_t n = 0;
    /* Time of this thread only: others on the machine do not count. */
    double start = read_ns(CLOCK_THREAD_CPUTIME_ID);
    for (unsigned i = 0; i < way->repeats; i++)
        n = way->take(pcs, max);
    double end = read_ns(CLOCK_THREAD_CPUTIME_ID);
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

/* The same question again, and questions that are new to a module already open. */
static void bench_symbols(void)
{
    enum { KNOWN = 200000, NEW = 2000 };
    struct module_info info;
    struct symbolizer *symbolizer;
    const struct symbol_frame *frames;
    size_t n;
    char exe[4096] = {0};
    if (readlink("/proc/self/exe", exe, sizeof(exe) - 1) < 0 ||
        module_find((uintptr_t)bench_symbols, &info) < 0 || symbolizer_new(NULL, &symbolizer) < 0)
        return;
    struct symbol_query query = {.path = exe,
                                 .build_id = info.build_id,
                                 .build_id_len = info.build_id_len,
                                 .offset = module_offset(&info, (uintptr_t)bench_symbols) + 4};
    double start = now_ns();
    int r = symbolizer_resolve(symbolizer, &query, &frames, &n);
    double first = now_ns() - start;
    start = now_ns();
    for (int i = 0; i < KNOWN; i++)
        symbolizer_resolve(symbolizer, &query, &frames, &n);
    double known = (now_ns() - start) / KNOWN;
    start = now_ns();
    for (int i = 0; i < NEW; i++) {
        query.offset++;
        symbolizer_resolve(symbolizer, &query, &frames, &n);
    }
    double fresh = (now_ns() - start) / NEW;
    printf("\nnames: %s\n  first address of a module %10.0f ns\n  another address %21.0f ns\n"
           "  the same address again %14.1f ns\n",
           r == 0 && frames[0].file ? "with lines" : "without lines", first, fresh, known);
    symbolizer_free(symbolizer);
}

static void find_unloadable(void)
{
    static const struct {
        const char *library;
        const char *symbol;
    } candidates[] = {{"libunwind.so.8", "unw_backtrace"},
                      {"libz.so.1", "zlibVersion"},
                      {"libbz2.so.1.0", "BZ2_bzlibVersion"}};
    for (size_t i = 0; i < 3 && unloadable_pc == 0; i++) {
        void *lib = dlopen(candidates[i].library, RTLD_NOW | RTLD_LOCAL);
        if (lib)
            unloadable_pc = (uintptr_t)dlsym(lib, candidates[i].symbol) + 1;
    }
}

static double took[WAYS][3][ROUNDS];
static size_t frames_got[WAYS][3];
static const unsigned depths[3] = {8, 16, 32};

static bool way_possible(const struct way *way)
{
    return !(way->take == way_libunwind && !libunwind_backtrace) &&
           !(way->take == way_identity_unloadable && unloadable_pc == 0);
}

static void print_table(FILE *raw)
{
    printf("%-26s %22s %22s %22s\n", "ns per stack (frames got)", "8 frames", "16 frames",
           "32 frames");
    for (unsigned w = 0; w < WAYS; w++) {
        if (!way_possible(&ways[w]))
            continue;
        printf("%-26s", ways[w].name);
        for (unsigned d = 0; d < 3; d++) {
            for (unsigned round = 0; raw && round < ROUNDS; round++)
                fprintf(raw, "%s,%u,%u,%.2f\n", ways[w].name, depths[d], round, took[w][d][round]);
            qsort(took[w][d], ROUNDS, sizeof(double), by_value);
            printf("  %7.1f min %6.1f (%2zu)", took[w][d][ROUNDS / 2], took[w][d][0],
                   frames_got[w][d]);
        }
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    FILE *raw = argc > 1 ? fopen(argv[1], "w") : NULL;
    void *lib = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
    if (lib)
        *(void **)&libunwind_backtrace = dlsym(lib, "unw_backtrace");
    find_unloadable();
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned d = 0; d < 3; d++) {
            for (unsigned i = 0; i < WAYS; i++) {
                unsigned w = (i * 3 + round) % WAYS;
                if (way_possible(&ways[w]))
                    took[w][d][round] = descend(depths[d], &ways[w], depths[d], &frames_got[w][d]);
            }
        }
    }
    if (raw)
        fprintf(raw, "way,frames,round,ns\n");
    print_table(raw);
    if (raw)
        fclose(raw);
    bench_symbols();
    return sink == 42;
}

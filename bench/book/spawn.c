/* What a preloaded library adds to the shortest program there is.
 *
 * Usage: bench_book_spawn PROGRAM RUNS BLOCKS EMPTY.so LIBMEMOIR.so
 *
 * A block starts PROGRAM RUNS times each way: bare, with the empty library, with libmemoir. The ways take
 * turns run by run, in an order that rotates, so that a change of the machine's mood meets them alike.
 * Everything happens on one CPU: a child that wakes up elsewhere costs what chance says. */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "harness.h"

enum { WAYS = 3, ENVIRONMENT_MAX = 256, BATCH = 50 };

extern char **environ;

static const char *const way_names[WAYS] = {"bare", "empty", "memoir"};
static char *environments[WAYS][ENVIRONMENT_MAX + 2];

static void environments_init(const char *const libraries[WAYS])
{
    for (unsigned w = 0; w < WAYS; w++) {
        unsigned n = 0;
        for (char **e = environ; *e && n < ENVIRONMENT_MAX; e++)
            if (strncmp(*e, "LD_PRELOAD=", 11) != 0)
                environments[w][n++] = *e;
        if (libraries[w] && asprintf(&environments[w][n], "LD_PRELOAD=%s", libraries[w]) < 0)
            bench_fail("out of memory");
    }
}

static uint64_t run_ns(char *program, char *const environment[])
{
    char *argv[] = {program, NULL};
    pid_t pid;
    int status;
    uint64_t begin = bench_now_ns();
    int error = posix_spawn(&pid, program, NULL, NULL, argv, environment);
    if (error)
        bench_fail("cannot start '%s': %s", program, strerror(error));
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            bench_fail("cannot wait: %m");
    uint64_t end = bench_now_ns();
    if (status != 0)
        bench_fail("'%s' ended with status %d", program, status);
    return end - begin;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void run_block(char *program, uint64_t runs, uint64_t *took[WAYS])
{
    for (uint64_t i = 0; i < runs; i++) {
        if (i % BATCH == 0)
            bench_quiet_begin();
        for (unsigned k = 0; k < WAYS; k++) {
            unsigned w = (unsigned)(i + k) % WAYS;
            took[w][i] = run_ns(program, environments[w]);
        }
        if (i % BATCH == BATCH - 1 || i == runs - 1)
            bench_quiet_end();
    }
}

static void print_block(uint64_t block, uint64_t runs, uint64_t *took[WAYS])
{
    printf("{\"block\":%llu,\"runs\":%llu", (unsigned long long)block, (unsigned long long)runs);
    for (unsigned w = 0; w < WAYS; w++) {
        uint64_t sum = 0;
        for (uint64_t i = 0; i < runs; i++)
            sum += took[w][i];
        qsort(took[w], runs, sizeof(uint64_t), by_value);
        printf(",\"%s_ns\":%llu,\"%s_median_ns\":%llu,\"%s_min_ns\":%llu", way_names[w],
               (unsigned long long)sum, way_names[w], (unsigned long long)took[w][runs / 2],
               way_names[w], (unsigned long long)took[w][0]);
    }
    printf("}\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    uint64_t *took[WAYS];
    if (argc != 6)
        bench_fail("usage: bench_book_spawn PROGRAM RUNS BLOCKS EMPTY.so LIBMEMOIR.so");
    uint64_t runs = bench_number(argv[2]), blocks = bench_number(argv[3]);
    environments_init((const char *const[WAYS]){NULL, argv[4], argv[5]});
    for (unsigned w = 0; w < WAYS; w++) {
        took[w] = calloc(runs, sizeof(uint64_t));
        if (!took[w])
            bench_fail("out of memory");
    }
    bench_pin(1);
    run_block(argv[1], runs < 20 ? runs : 20, took); /* page cache, branch predictors */
    for (uint64_t block = 1; block <= blocks; block++) {
        run_block(argv[1], runs, took);
        print_block(block, runs, took);
    }
    for (unsigned w = 0; w < WAYS; w++)
        free(took[w]);
    return 0;
}

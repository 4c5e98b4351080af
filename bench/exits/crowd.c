/* What a process costs that does nothing: fork, exit, wait, N times. bench_exits_crowd N
 *
 * Prints {"processes": N, "ns_each": X, "cpu_ns_each": Y}. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

static uint64_t cpu_ns(int who)
{
    struct rusage usage;
    getrusage(who, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * NS_PER_S +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * NS_PER_US;
}

int main(int argc, char **argv)
{
    long n = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
    if (n <= 0)
        return 2;
    uint64_t begin = clock_monotonic_ns(), cpu = cpu_ns(RUSAGE_SELF) + cpu_ns(RUSAGE_CHILDREN);
    for (long i = 0; i < n; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        if (pid < 0 || waitpid(pid, NULL, 0) != pid)
            return 1;
    }
    uint64_t ns = clock_monotonic_ns() - begin;
    cpu = cpu_ns(RUSAGE_SELF) + cpu_ns(RUSAGE_CHILDREN) - cpu;
    printf("{\"processes\":%ld,\"ns_each\":%.1f,\"cpu_ns_each\":%.1f}\n", n, (double)ns / (double)n,
           (double)cpu / (double)n);
    return 0;
}

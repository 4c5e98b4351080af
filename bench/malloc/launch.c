/*
 * launch.c: runs a program under an allocator and says what it took.
 *
 * Usage: bench_malloc_launch SECONDS RESULT PRELOAD COMMAND...     PRELOAD may be empty
 *
 * The kernel carries the largest resident size of whoever starts a program over into its account, so a Python that starts one
 * would be measured in its place. This one is smaller than anything it starts. It is not preloaded itself, and the program
 * dies with it: after so many seconds both end.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

static double seconds(struct timeval tv)
{
    return (double)tv.tv_sec + (double)tv.tv_usec / 1e6;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: bench_malloc_launch SECONDS RESULT PRELOAD COMMAND...\n");
        return 2;
    }
    alarm((unsigned)atoi(argv[1]));
    uint64_t begun_ns = clock_monotonic_ns();
    pid_t pid = fork();
    if (pid < 0) {
        fprintf(stderr, "bench_malloc_launch: cannot fork: %s\n", strerror(errno));
        return 1;
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (argv[3][0] != 0)
            setenv("LD_PRELOAD", argv[3], 1);
        execvp(argv[4], argv + 4);
        fprintf(stderr, "bench_malloc_launch: cannot run %s: %s\n", argv[4], strerror(errno));
        _exit(127);
    }
    int status;
    struct rusage usage;
    while (wait4(pid, &status, 0, &usage) < 0)
        if (errno != EINTR)
            return 1;
    uint64_t wall_ns = clock_monotonic_ns() - begun_ns;
    FILE *result = fopen(argv[2], "w");
    if (!result) {
        fprintf(stderr, "bench_malloc_launch: cannot write %s: %s\n", argv[2], strerror(errno));
        return 1;
    }
    fprintf(
        result,
        "{\"wall_s\": %.6f, \"user_s\": %.6f, \"system_s\": %.6f, \"rss_bytes\": %ld, \"faults\": %ld, "
        "\"switches\": %ld, \"status\": %d}\n",
        (double)wall_ns / 1e9, seconds(usage.ru_utime), seconds(usage.ru_stime),
        usage.ru_maxrss * 1024L, usage.ru_minflt, usage.ru_nvcsw + usage.ru_nivcsw,
        WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
    return fclose(result) == 0 ? 0 : 1;
}

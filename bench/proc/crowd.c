/* A machine full of processes: N children that sleep, of which some touch and give back memory every second.
 * Says "ready" and stays until its input ends.
 *
 * Usage: bench_proc_crowd CHILDREN CHANGING */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { STEP_BYTES = 64 << 10, STEPS = 16, PAUSE_US = 500000 };

static void change_for_ever(void)
{
    char *memory =
        mmap(NULL, STEP_BYTES * STEPS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return;
    for (int step = 0;; step = (step + 1) % STEPS) {
        if (step == 0)
            madvise(memory, STEP_BYTES * STEPS, MADV_DONTNEED);
        memset(memory + step * STEP_BYTES, 1, STEP_BYTES);
        usleep(PAUSE_US);
    }
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 0, changing = argc > 2 ? atoi(argv[2]) : 0;
    if (n <= 0 || changing < 0 || changing > n) {
        fprintf(stderr, "usage: bench_proc_crowd CHILDREN CHANGING\n");
        return 2;
    }
    for (int i = 0; i < n; i++) {
        pid_t pid = fork();
        if (pid < 0) {
            fprintf(stderr, "bench_proc_crowd: cannot start child %d: %s\n", i, strerror(errno));
            return 1;
        }
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (i < changing)
                change_for_ever();
            for (;;)
                pause();
        }
    }
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}

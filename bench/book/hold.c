/* A process that holds BLOCKS buffers on one device, in four spaces, until it is killed.
 *
 * Usage: bench_book_hold ORDINAL BLOCKS
 *
 * Prints "ready" when it holds them. One more for each SIGUSR1, so that a reader can be asked whether
 * it saw the change; each is answered by a line. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "harness.h"

static const int spaces[] = {MEMOIR_SPACE_DRAM, MEMOIR_SPACE_L1, MEMOIR_SPACE_CB,
                             MEMOIR_SPACE_KERNEL};

static void say(const char *line, size_t len)
{
    if (write(STDOUT_FILENO, line, len) < 0)
        exit(1);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        bench_fail("usage: bench_book_hold ORDINAL BLOCKS");
    int device = bench_device((int)bench_number(argv[1]));
    uint64_t blocks = bench_number(argv[2]), random = (uint64_t)getpid() << 32;
    sigset_t wake;
    sigemptyset(&wake);
    sigaddset(&wake, SIGUSR1);
    sigprocmask(SIG_BLOCK, &wake, NULL);
    if (memoir_open(0) < 0)
        bench_fail("cannot make a book");
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t id = bench_random(&random);
        memoir_alloc(device, spaces[i % 4], id, bench_size(id));
    }
    say("ready\n", 6);
    for (int number; sigwait(&wake, &number) == 0;) {
        memoir_alloc(device, MEMOIR_SPACE_DRAM, bench_random(&random), 4096);
        say("more\n", 5);
    }
    return 0;
}

/* How old an answer can be.
 *
 * Usage: bench_server_fresh WAY ROUNDS SOCKET
 *
 * Another process reports one more buffer on device 0, into its own book (WAY `book`) or over the Tenstorrent
 * socket (`tt`), and notes the time when it has done so: with `tt`, when it has an answer behind it. We
 * ask back to back for the totals until they show it. A question that was sent after that time and whose
 * answer does not show it was answered from figures that were as old as the difference: printed is the
 * largest, 0 where there was none. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "../book/harness.h"
#include "lines.h"
#include "wire.h"

enum { DEVICE = 0, BYTES = 4096, PATIENCE_S = 10 };

/* Shared with the reporter, which writes it. */
static struct {
    _Atomic uint64_t done;    /* rounds */
    _Atomic uint64_t done_ns; /* when the last one was; before `done` counts it */
} * shared;

static pid_t reporter;

static void end_reporter(void)
{
    if (reporter > 0)
        kill(reporter, SIGKILL);
}

__attribute__((noreturn)) static void be_reporter(const char *way, const char *socket, int wake)
{
    int book = strcmp(way, "book") == 0, fd = book ? -1 : wire_connect(socket);
    int device = book ? lines_device_of_libmemoir() : 0;
    char byte;
    if (book && memoir_open(0) < 0)
        bench_fail("cannot make a book");
    for (uint64_t id = 1; read(wake, &byte, 1) == 1; id++) {
        if (book) {
            memoir_alloc(device, MEMOIR_SPACE_DRAM, id, BYTES);
        } else {
            struct wire_message message;
            struct wire_totals answer;
            wire_make_alloc(&message, DEVICE, (int32_t)getpid(), id, WIRE_DRAM, BYTES);
            wire_send(fd, &message, sizeof(message));
            wire_query(fd, DEVICE, &answer);
        }
        atomic_store(&shared->done_ns, bench_now_ns());
        atomic_store(&shared->done, id);
    }
    _exit(0);
}

static uint64_t one_round(int fd, uint64_t round, uint64_t before, int wake)
{
    struct wire_totals answer;
    uint64_t oldest_ns = 0, begin = bench_now_ns();
    if (write(wake, "", 1) != 1)
        bench_fail("the reporter is gone");
    for (;;) {
        uint64_t done = atomic_load(&shared->done), done_ns = atomic_load(&shared->done_ns);
        uint64_t asked_ns = bench_now_ns();
        wire_query(fd, DEVICE, &answer);
        if (answer.bytes[WIRE_DRAM] >= before + BYTES)
            return oldest_ns;
        if (done == round && asked_ns - done_ns > oldest_ns)
            oldest_ns = asked_ns - done_ns;
        if (asked_ns - begin > UINT64_C(1000000000) * PATIENCE_S)
            bench_fail("a report does not show after %d s", PATIENCE_S);
    }
}

int main(int argc, char **argv)
{
    int ends[2];
    if (argc != 4 || (strcmp(argv[1], "book") != 0 && strcmp(argv[1], "tt") != 0))
        bench_fail("usage: bench_server_fresh book|tt ROUNDS SOCKET");
    uint64_t rounds = bench_number(argv[2]);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || pipe(ends) < 0)
        bench_fail("cannot share memory: %m");
    atexit(end_reporter);
    reporter = fork();
    if (reporter == 0) {
        close(ends[1]);
        be_reporter(argv[1], argv[3], ends[0]);
    }
    close(ends[0]);
    int fd = wire_connect(argv[3]);
    struct wire_totals answer;
    wire_query(fd, DEVICE, &answer);
    uint64_t before = answer.bytes[WIRE_DRAM];
    /* The first is not counted: a book is made, and found. */
    for (uint64_t round = 1; round <= rounds + 1; round++, before += BYTES) {
        uint64_t oldest_ns = one_round(fd, round, before, ends[1]);
        if (round > 1)
            printf("{\"way\":\"%s\",\"round\":%llu,\"oldest_ns\":%llu}\n", argv[1],
                   (unsigned long long)(round - 1), (unsigned long long)oldest_ns);
        nanosleep(&(struct timespec){0, 1000000 + (long)(round * 7919 % 1000) * 1000}, NULL);
    }
    return 0;
}

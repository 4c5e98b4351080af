/* Many clients at once, each a process of its own that has reported.
 *
 * Usage: bench_server_crowd CLIENTS SOCKET
 *
 * Forks CLIENTS processes, each of which connects, reports two buffers, a CB and a kernel, and stays. When the
 * server's totals show all of them, prints a line with the time it took; then waits for a line on its
 * input, asks once more, and ends them all. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../book/harness.h"
#include "wire.h"

enum { DEVICE = 0, CLIENTS_MAX = 30000, AT_ONCE = 64, PATIENCE_MS = 30000, SETTLE_MS = 3000 };

static const enum wire_space reported[] = {WIRE_DRAM, WIRE_L1, WIRE_CB, WIRE_KERNEL};
enum { REPORTED = sizeof(reported) / sizeof(reported[0]) };

static pid_t clients[CLIENTS_MAX];
static uint64_t n_clients;

static void end_clients(void)
{
    for (uint64_t i = 0; i < n_clients; i++)
        kill(clients[i], SIGKILL);
    for (uint64_t i = 0; i < n_clients; i++)
        while (waitpid(clients[i], NULL, 0) < 0 && errno == EINTR)
            ;
    n_clients = 0;
}

static uint64_t size_of(uint64_t client, uint64_t i)
{
    return wire_size_of((client * REPORTED + i + 1) << 20);
}

__attribute__((noreturn)) static void be_client(const char *path, uint64_t number, int told)
{
    struct wire_message messages[REPORTED];
    struct wire_totals answer;
    n_clients = 0; /* they are the parent's */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int fd = wire_connect(path);
    for (uint64_t i = 0; i < REPORTED; i++)
        wire_make_alloc(&messages[i], DEVICE, (int32_t)getpid(), i + 1, reported[i],
                        size_of(number, i));
    wire_send(fd, messages, sizeof(messages));
    wire_query(fd, DEVICE, &answer); /* answered, so it is counted */
    if (write(told, "", 1) != 1)
        _exit(1);
    close(told);
    for (;;)
        pause();
}

static void wait_told(int fd, uint64_t n)
{
    char bytes[256];
    while (n > 0) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, PATIENCE_MS) <= 0)
            bench_fail("a client ended early, or the server does not answer");
        ssize_t got = read(fd, bytes, n < sizeof(bytes) ? n : sizeof(bytes));
        if (got <= 0)
            bench_fail("a client ended early");
        n -= (uint64_t)got;
    }
}

/* With so many books figures are older than a millisecond: memoird does not read them all the time. */
static void check(int fd, const struct wire_totals *wanted)
{
    struct wire_totals answer;
    uint64_t end = bench_now_ns() + UINT64_C(1000000) * SETTLE_MS;
    do {
        wire_query(fd, DEVICE, &answer);
        if (memcmp(&answer, wanted, sizeof(answer)) == 0)
            return;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    } while (bench_now_ns() < end);
    wire_check("the server", wanted, &answer);
}

int main(int argc, char **argv)
{
    struct wire_totals wanted = {0};
    int ends[2];
    if (argc != 3)
        bench_fail("usage: bench_server_crowd CLIENTS SOCKET");
    uint64_t n = bench_number(argv[1]);
    if (n > CLIENTS_MAX || pipe(ends) < 0)
        bench_fail("cannot have %llu clients", (unsigned long long)n);
    atexit(end_clients);
    uint64_t begin = bench_now_ns();
    for (uint64_t i = 0, told = 0; i < n; i++) {
        pid_t pid = fork();
        if (pid < 0)
            bench_fail("cannot fork for client %llu: %m", (unsigned long long)i);
        if (pid == 0)
            be_client(argv[2], i, ends[1]);
        clients[n_clients++] = pid;
        for (uint64_t k = 0; k < REPORTED; k++)
            wanted.bytes[reported[k]] += size_of(i, k);
        /* A listener's queue is short. */
        if (i + 1 - told >= AT_ONCE || i + 1 == n) {
            wait_told(ends[0], i + 1 - told);
            told = i + 1;
        }
    }
    uint64_t took_ns = bench_now_ns() - begin;
    int fd = wire_connect(argv[2]);
    check(fd, &wanted);
    printf("{\"clients\":%llu,\"took_ns\":%llu}\n", (unsigned long long)n,
           (unsigned long long)took_ns);
    fflush(stdout);
    (void)getchar();
    check(fd, &wanted);
    return 0;
}

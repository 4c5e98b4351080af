/* From kill -9 of a client to zero in the answer to another client's query.
 *
 * Usage: bench_server_kill KILLS BUFFERS CBS KERNELS NAME=SOCKET
 *
 * Again and again a process connects, reports, and asks for the totals, so that all of it is counted; then
 * it is killed, and another connection asks back to back until the totals of the device are zero in every
 * space. The clock starts before kill(), so the kernel's own work of ending a process is in it, and stops
 * when the answer is there. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../book/harness.h"
#include "wire.h"

enum { DEVICE = 0, PATIENCE_S = 60 };

struct load {
    uint64_t n[WIRE_SPACES];
    struct wire_totals totals;
};

static pid_t victim;

static void end_victim(void)
{
    if (victim > 0)
        kill(victim, SIGKILL);
}

/* In the child: report all, see it counted, tell the parent, wait for death. */
__attribute__((noreturn)) static void be_victim(const char *path, const struct load *load, int told)
{
    struct wire_totals answer;
    int fd = wire_connect(path);
    uint64_t id = 1;
    for (int space = 0; space < WIRE_SPACES; space++)
        for (uint64_t i = 0; i < load->n[space]; i++, id++) {
            struct wire_message message;
            wire_make_alloc(&message, DEVICE, (int32_t)getpid(), id, (enum wire_space)space,
                            wire_size_of(id << 20));
            wire_send(fd, &message, sizeof(message));
        }
    wire_query(fd, DEVICE, &answer);
    wire_check("the server", &load->totals, &answer);
    if (write(told, "", 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

static void start_victim(const char *path, const struct load *load)
{
    int ends[2];
    char byte;
    if (pipe(ends) < 0)
        bench_fail("cannot make a pipe: %m");
    fflush(stdout);
    victim = fork();
    if (victim < 0)
        bench_fail("cannot fork: %m");
    if (victim == 0) {
        victim = 0;
        close(ends[0]);
        be_victim(path, load, ends[1]);
    }
    close(ends[1]);
    if (read(ends[0], &byte, 1) != 1)
        bench_fail("a client ended early");
    close(ends[0]);
}

static bool is_zero(const struct wire_totals *totals)
{
    static const struct wire_totals zero;
    return memcmp(totals, &zero, sizeof(zero)) == 0;
}

static void one_kill(const struct wire_server *server, const struct load *load, uint64_t number)
{
    struct wire_totals answer;
    uint64_t queries = 0, now;
    start_victim(server->path, load);
    wire_query(server->fd, DEVICE, &answer);
    wire_check(server->name, &load->totals, &answer);
    /* Let everybody come to rest. */
    nanosleep(&(struct timespec){0, 10000000}, NULL);
    bench_quiet_begin();
    uint64_t begin = bench_now_ns();
    if (kill(victim, SIGKILL) < 0)
        bench_fail("cannot kill a client: %m");
    do {
        wire_query(server->fd, DEVICE, &answer);
        now = bench_now_ns();
        queries++;
        if (now - begin > UINT64_C(1000000000) * PATIENCE_S)
            bench_fail("%s still counts a dead client after %d s", server->name, PATIENCE_S);
        /* Who polls for seconds need not do it all the time. */
        if (now - begin > 100000000)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
    } while (!is_zero(&answer));
    bench_quiet_end();
    printf("{\"server\":\"%s\",\"kill\":%llu,\"zero_ns\":%llu,\"queries\":%llu}\n", server->name,
           (unsigned long long)number, (unsigned long long)(now - begin),
           (unsigned long long)queries);
    fflush(stdout);
    victim = 0;
}

int main(int argc, char **argv)
{
    struct wire_server server;
    struct load load = {0};
    if (argc != 6)
        bench_fail("usage: bench_server_kill KILLS BUFFERS CBS KERNELS NAME=SOCKET");
    uint64_t kills = bench_number(argv[1]), buffers = bench_number(argv[2]), id = 1;
    load.n[WIRE_DRAM] = buffers - buffers / 4;
    load.n[WIRE_L1] = buffers / 4;
    load.n[WIRE_CB] = bench_number(argv[3]);
    load.n[WIRE_KERNEL] = bench_number(argv[4]);
    for (int space = 0; space < WIRE_SPACES; space++)
        for (uint64_t i = 0; i < load.n[space]; i++, id++)
            load.totals.bytes[space] += wire_size_of(id << 20);
    atexit(end_victim);
    /* Whoever dies is reaped at once, as a shell would: the re-creation takes a zombie for alive. */
    signal(SIGCHLD, SIG_IGN);
    wire_server_open(&server, argv[5]);
    /* The first is not counted: nothing is warm. */
    for (uint64_t i = 0; i <= kills; i++)
        one_kill(&server, &load, i);
    return 0;
}

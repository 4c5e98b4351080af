/* How long a question takes: the totals of a device, beside a server that sends back what it gets.
 *
 * Usage: bench_server_latency WAY ROUNDS REPETITIONS GAP_US NAME=SOCKET...
 *
 * WAY is `query`, or `report` for one report and a query behind it in one write: the time until a report is
 * certainly counted. The servers are asked in turn, question by question, each round beginning with another one,
 * with GAP_US of sleep before each: 2000 finds everybody asleep and all figures older than a millisecond.
 * 0 asks after SETTLE_US without sleep, in which the server before finishes what it does after its answer:
 * on the same CPU it would be charged to the next one. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../book/harness.h"
#include "wire.h"

enum { DEVICE = 0, SERVERS_MAX = 4, SETTLE_US = 20 };

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static uint32_t percentile(const uint32_t *sorted, uint64_t n, double share)
{
    uint64_t at = (uint64_t)((double)n * share / 100);
    return sorted[at < n ? at : n - 1];
}

static void print(const char *server, const char *way, uint64_t gap_us, uint64_t repetition,
                  uint32_t *took_ns, uint64_t n)
{
    static const double shares[] = {1, 10, 25, 50, 75, 90, 99, 99.9};
    qsort(took_ns, n, sizeof(*took_ns), by_value);
    printf("{\"server\":\"%s\",\"way\":\"%s\",\"gap_us\":%llu,\"repetition\":%llu,\"rounds\":%llu",
           server, way, (unsigned long long)gap_us, (unsigned long long)repetition,
           (unsigned long long)n);
    for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++)
        printf(",\"p%g_ns\":%u", shares[i], percentile(took_ns, n, shares[i]));
    printf(",\"max_ns\":%u}\n", took_ns[n - 1]);
    fflush(stdout);
}

/* Messages in one write, of which the last is answered. */
static uint32_t ask(const struct wire_server *server, struct wire_message *messages, size_t n)
{
    struct wire_message answer;
    uint64_t begin = bench_now_ns();
    wire_send(server->fd, messages, n * sizeof(*messages));
    wire_receive(server->fd, &answer, sizeof(answer));
    uint64_t took_ns = bench_now_ns() - begin;
    if (answer.type != WIRE_RESPONSE)
        bench_fail("%s answers with type %u", server->name, answer.type);
    return took_ns < UINT32_MAX ? (uint32_t)took_ns : UINT32_MAX;
}

/* A buffer that comes and goes, so that the server is left as it was. */
static void next_report(struct wire_message *message, uint64_t round)
{
    uint64_t id = 1 + round / 2;
    if (round % 2 == 0)
        wire_make_alloc(message, DEVICE, (int32_t)getpid(), id, WIRE_DRAM, 4096);
    else
        wire_make_free(message, DEVICE, (int32_t)getpid(), id, WIRE_DRAM, 4096);
}

static void rest(uint64_t gap_us)
{
    struct timespec gap = {(time_t)(gap_us / 1000000), (long)(gap_us % 1000000 * 1000)};
    uint64_t begin = bench_now_ns();
    if (gap_us)
        nanosleep(&gap, NULL);
    else
        while (bench_now_ns() - begin < SETTLE_US * 1000)
            ;
}

static void one_repetition(const struct wire_server *servers, int n, const char *way,
                           uint64_t rounds, uint64_t gap_us, uint64_t repetition, uint32_t *took_ns)
{
    bool report = strcmp(way, "report") == 0;
    struct wire_message messages[2] = {
        [1] = {.type = WIRE_QUERY, .device = DEVICE, .pid = (int32_t)getpid()}};
    bench_quiet_begin();
    for (uint64_t round = 0; round < rounds; round++) {
        if (report)
            next_report(&messages[0], round);
        for (int turn = 0; turn < n; turn++) {
            int i = (int)((round + (uint64_t)turn) % (uint64_t)n);
            rest(gap_us);
            bool both = report && strcmp(servers[i].name, "echo") != 0;
            took_ns[(uint64_t)i * rounds + round] =
                ask(&servers[i], both ? messages : messages + 1, both ? 2 : 1);
        }
    }
    bench_quiet_end();
    for (int i = 0; i < n && repetition > 0; i++)
        print(servers[i].name, way, gap_us, repetition, took_ns + (uint64_t)i * rounds, rounds);
}

int main(int argc, char **argv)
{
    struct wire_server servers[SERVERS_MAX];
    int n = argc - 5;
    if (n < 1 || n > SERVERS_MAX ||
        (strcmp(argv[1], "query") != 0 && strcmp(argv[1], "report") != 0))
        bench_fail("usage: bench_server_latency query|report ROUNDS REPETITIONS GAP_US "
                   "NAME=SOCKET...");
    uint64_t rounds = bench_number(argv[2]) / 2 * 2, repetitions = bench_number(argv[3]);
    uint64_t gap_us = bench_number(argv[4]);
    uint32_t *took_ns = calloc((size_t)n * (rounds + 1), sizeof(*took_ns));
    if (!took_ns || rounds == 0)
        bench_fail("nothing to do");
    for (int i = 0; i < n; i++)
        wire_server_open(&servers[i], argv[5 + i]);
    bench_pin(0);
    for (uint64_t repetition = 0; repetition <= repetitions; repetition++)
        one_repetition(servers, n, argv[1], rounds, gap_us, repetition, took_ns);
    free(took_ns);
    return 0;
}

/* Reports of one client over the Tenstorrent socket, as fast as the server takes them.
 *
 * Usage: bench_server_stream LIVE REPORTS REPETITIONS WRITE NAME=SOCKET...
 *
 * Holds LIVE buffers, CBs and kernels with random ids. Then, again and again, a random one is freed and a new
 * one comes, until REPORTS or a few more are sent in writes of WRITE bytes (144: one message each, as the
 * original client does). The clock runs from the first write to the answer to a query behind the last
 * report, so everything in it was applied; and the totals of the answer must be right. The servers take turns.
 * All messages are made before the clock starts. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../book/harness.h"
#include "script.h"
#include "wire.h"

enum { DEVICE = 0, SERVERS_MAX = 4, WRITE_MAX = 4 << 20 };

/* The messages of both halves of the script, 2 * live each. */
static struct wire_message *messages[2];

static void make_messages(const struct script *script)
{
    int32_t pid = (int32_t)getpid();
    for (int half = 0; half < 2; half++) {
        struct wire_message *message = calloc(2 * script->live, sizeof(*message));
        if (!message)
            bench_fail("out of memory");
        messages[half] = message;
        for (uint64_t i = 0; i < script->live; i++) {
            uint64_t goes = script->half[half].goes[i], comes = script->half[half].comes[i];
            wire_make_free(message++, DEVICE, pid, goes, wire_space_of(goes), wire_size_of(goes));
            wire_make_alloc(message++, DEVICE, pid, comes, wire_space_of(comes),
                            wire_size_of(comes));
        }
    }
}

static void send_first(const struct script *script, const struct wire_server *server)
{
    struct wire_message message;
    struct wire_totals answer;
    for (uint64_t i = 0; i < script->live; i++) {
        uint64_t id = script->half[0].goes[i];
        wire_make_alloc(&message, DEVICE, (int32_t)getpid(), id, wire_space_of(id),
                        wire_size_of(id));
        wire_send(server->fd, &message, sizeof(message));
    }
    wire_query(server->fd, DEVICE, &answer);
    wire_check(server->name, &script->half[0].before, &answer);
}

static void send_half(int fd, const struct script *script, int which, size_t write_bytes)
{
    const uint8_t *at = (const uint8_t *)messages[which];
    size_t left = 2 * script->live * sizeof(struct wire_message);
    while (left > 0) {
        size_t n = left < write_bytes ? left : write_bytes;
        wire_send(fd, at, n);
        at += n;
        left -= n;
    }
}

/* `state` is the set that the server holds; gives the one that it holds then. */
static int one_stream(const struct script *script, const struct wire_server *server, int state,
                      uint64_t halves, size_t write_bytes, uint64_t repetition)
{
    struct wire_totals answer;
    bench_quiet_begin();
    uint64_t begin = bench_now_ns();
    for (uint64_t i = 0; i < halves; i++, state = !state)
        send_half(server->fd, script, state, write_bytes);
    wire_query(server->fd, DEVICE, &answer);
    uint64_t took_ns = bench_now_ns() - begin;
    bench_quiet_end();
    wire_check(server->name, &script->half[state].before, &answer);
    uint64_t reports = halves * 2 * script->live;
    printf("{\"server\":\"%s\",\"live\":%llu,\"write_bytes\":%zu,\"repetition\":%llu,"
           "\"reports\":%llu,\"took_ns\":%llu,\"per_second\":%.0f}\n",
           server->name, (unsigned long long)script->live, write_bytes,
           (unsigned long long)repetition, (unsigned long long)reports, (unsigned long long)took_ns,
           (double)reports * 1e9 / (double)took_ns);
    fflush(stdout);
    return state;
}

int main(int argc, char **argv)
{
    struct wire_server servers[SERVERS_MAX];
    int states[SERVERS_MAX] = {0}, n = argc - 5;
    if (n < 1 || n > SERVERS_MAX)
        bench_fail("usage: bench_server_stream LIVE REPORTS REPETITIONS WRITE NAME=SOCKET...");
    uint64_t live = bench_number(argv[1]), reports = bench_number(argv[2]);
    uint64_t repetitions = bench_number(argv[3]), write_bytes = bench_number(argv[4]);
    if (write_bytes < 1 || write_bytes > WRITE_MAX)
        bench_fail("writes have 1 to %d bytes", WRITE_MAX);
    struct script script;
    script_init(&script, live);
    make_messages(&script);
    uint64_t halves = script_halves(&script, reports);
    for (int i = 0; i < n; i++) {
        wire_server_open(&servers[i], argv[5 + i]);
        send_first(&script, &servers[i]);
    }
    bench_pin(0);
    /* The first round is not counted: tables grow, nothing is warm. */
    for (uint64_t repetition = 0; repetition <= repetitions; repetition++)
        for (int i = 0; i < n; i++)
            states[i] =
                one_stream(&script, &servers[i], states[i], halves, write_bytes, repetition);
    for (int half = 0; half < 2; half++)
        free(messages[half]);
    script_release(&script);
    return 0;
}

/* Reports of one client over the native socket: JSON lines, LINES_BATCH reports each.
 *
 * Usage: bench_server_native LIVE REPORTS REPETITIONS SOCKET
 *
 * As bench_server_stream: LIVE buffers with random ids, of which a random one is freed and a new one comes, over
 * and over; all text is made before the clock starts; the clock runs from the first write to the answer to a
 * ping behind the last report; then the totals must be right. */
#include <stdio.h>

#include "../book/harness.h"
#include "lines.h"
#include "script.h"
#include "wire.h"

enum { WRITE_BYTES = 256 << 10 };

/* The text of both halves of the script. */
static struct lines text[2];

static void make_text(const struct script *script)
{
    for (int half = 0; half < 2; half++) {
        for (uint64_t i = 0; i < script->live; i++) {
            uint64_t goes = script->half[half].goes[i], comes = script->half[half].comes[i];
            lines_free(&text[half], goes, wire_space_of(goes));
            lines_alloc(&text[half], comes, wire_space_of(comes), wire_size_of(comes));
        }
        lines_end(&text[half]);
    }
}

static void check(int fd, const struct wire_totals *wanted)
{
    struct wire_totals answer;
    lines_query(fd, &answer);
    wire_check("memoird", wanted, &answer);
}

static void send_first(const struct script *script, int fd)
{
    struct lines lines = {0};
    for (uint64_t i = 0; i < script->live; i++) {
        uint64_t id = script->half[0].goes[i];
        lines_alloc(&lines, id, wire_space_of(id), wire_size_of(id));
    }
    lines_send(&lines, fd);
    lines_release(&lines);
    lines_ping(fd);
    check(fd, &script->half[0].before);
}

static void send_half(int fd, const struct lines *half)
{
    for (size_t at = 0; at < half->len; at += WRITE_BYTES)
        wire_send(fd, half->text + at, half->len - at < WRITE_BYTES ? half->len - at : WRITE_BYTES);
}

static int one_stream(const struct script *script, int fd, int state, uint64_t halves,
                      uint64_t repetition)
{
    uint64_t bytes = 0;
    bench_quiet_begin();
    uint64_t begin = bench_now_ns();
    for (uint64_t i = 0; i < halves; i++, state = !state) {
        send_half(fd, &text[state]);
        bytes += text[state].len;
    }
    lines_ping(fd);
    uint64_t took_ns = bench_now_ns() - begin;
    bench_quiet_end();
    check(fd, &script->half[state].before);
    uint64_t reports = halves * 2 * script->live;
    printf("{\"server\":\"memoird\",\"live\":%llu,\"batch\":%d,\"repetition\":%llu,"
           "\"reports\":%llu,\"bytes\":%llu,\"took_ns\":%llu,\"per_second\":%.0f}\n",
           (unsigned long long)script->live, LINES_BATCH, (unsigned long long)repetition,
           (unsigned long long)reports, (unsigned long long)bytes, (unsigned long long)took_ns,
           (double)reports * 1e9 / (double)took_ns);
    fflush(stdout);
    return state;
}

int main(int argc, char **argv)
{
    struct script script;
    if (argc != 5)
        bench_fail("usage: bench_server_native LIVE REPORTS REPETITIONS SOCKET");
    uint64_t live = bench_number(argv[1]), reports = bench_number(argv[2]);
    uint64_t repetitions = bench_number(argv[3]);
    int state = 0, fd = wire_connect(argv[4]);
    script_init(&script, live);
    make_text(&script);
    uint64_t halves = script_halves(&script, reports);
    lines_begin(fd);
    send_first(&script, fd);
    bench_pin(0);
    for (uint64_t repetition = 0; repetition <= repetitions; repetition++)
        state = one_stream(&script, fd, state, halves, repetition);
    lines_release(&text[0]);
    lines_release(&text[1]);
    script_release(&script);
    return 0;
}

/* A process that holds BLOCKS buffers on device 0 until it is killed, reported in one of three ways.
 *
 * Usage: bench_server_hold BLOCKS book
 *        bench_server_hold BLOCKS tt SOCKET
 *        bench_server_hold BLOCKS native SOCKET
 *
 * `book` writes its own book by libmemoir. When all is reported, and over a socket applied, it prints what it
 * holds in each space. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "../book/harness.h"
#include "lines.h"
#include "wire.h"

enum { DEVICE = 0 };

static const int spaces[WIRE_SPACES] = {MEMOIR_SPACE_DRAM,  MEMOIR_SPACE_L1, MEMOIR_SPACE_L1_SMALL,
                                        MEMOIR_SPACE_TRACE, MEMOIR_SPACE_CB, MEMOIR_SPACE_KERNEL};

static struct {
    enum { BOOK, TT, NATIVE } way;
    int fd;     /* of the socket */
    int device; /* of libmemoir */
    struct lines lines;
} to;

static void report(uint64_t id, enum wire_space space, uint64_t size)
{
    struct wire_message message;
    switch (to.way) {
    case BOOK:
        memoir_alloc(to.device, spaces[space], id, size);
        break;
    case TT:
        wire_make_alloc(&message, DEVICE, (int32_t)getpid(), id, space, size);
        wire_send(to.fd, &message, sizeof(message));
        break;
    case NATIVE:
        lines_alloc(&to.lines, id, space, size);
        break;
    }
}

/* Wait until everything is applied. */
static void barrier(void)
{
    struct wire_totals answer;
    if (to.way == TT)
        wire_query(to.fd, DEVICE, &answer);
    if (to.way == NATIVE) {
        lines_send(&to.lines, to.fd);
        lines_ping(to.fd);
    }
}

static void open_way(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[2], "book") == 0) {
        to.device = lines_device_of_libmemoir();
        if (memoir_open(0) < 0)
            bench_fail("cannot make a book");
        return;
    }
    if (argc != 4 || (strcmp(argv[2], "tt") != 0 && strcmp(argv[2], "native") != 0))
        bench_fail("usage: bench_server_hold BLOCKS book|tt|native [SOCKET]");
    to.way = strcmp(argv[2], "tt") == 0 ? TT : NATIVE;
    to.fd = wire_connect(argv[3]);
    if (to.way == NATIVE)
        lines_begin(to.fd);
}

int main(int argc, char **argv)
{
    struct wire_totals totals = {0};
    if (argc < 3)
        bench_fail("usage: bench_server_hold BLOCKS book|tt|native [SOCKET]");
    uint64_t blocks = bench_number(argv[1]), random = (uint64_t)getpid() << 32;
    open_way(argc, argv);
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t id = bench_random(&random);
        report(id, wire_space_of(id), wire_size_of(id));
        wire_totals_add(&totals, id);
    }
    barrier();
    printf("{\"way\":\"%s\"", argv[2]);
    for (int i = 0; i < WIRE_SPACES; i++)
        printf(",\"%s\":%llu", wire_space_names[i], (unsigned long long)totals.bytes[i]);
    puts("}");
    fflush(stdout);
    for (;;)
        pause();
}

/* A client whose memory behaves in a known way, by the clock rather than by how often it runs, so that a busy machine
 * changes nothing:
 *
 *     leak_client leak RATE       4 KiB blocks that are never freed, RATE bytes a second
 *     leak_client steady RATE     as many, of which the last 100 are kept
 *     leak_client warm RATE MS    grows like a leak from a line on standard input on, for MS milliseconds
 *
 * Says "ready", and ends with its standard input. */
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <memoir/memoir.h>

enum { BLOCK = 4096, TICK_MS = 5, KEPT = 100 };

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

__attribute__((noinline)) static void keep_block(uint64_t id)
{
    memoir_alloc(MEMOIR_HOST, MEMOIR_SPACE_PINNED, id, BLOCK);
    __asm__ volatile(""); /* no jump instead of the call, which would make it the caller's site */
}

int main(int argc, char **argv)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    bool steady = argc > 1 && strcmp(argv[1], "steady") == 0;
    bool warm = argc > 1 && strcmp(argv[1], "warm") == 0;
    uint64_t rate = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    uint64_t until_ms = argc > 3 ? strtoull(argv[3], NULL, 10) : UINT64_MAX;
    uint64_t begin_ms = warm ? 0 : now_ms() - 50, made = 0; /* something is there at once */
    memoir_open(0);
    memoir_alloc(MEMOIR_HOST, MEMOIR_SPACE_HEAP, 1, 100000); /* a book, whatever comes */
    for (bool ready = false;; ready = true) {
        uint64_t passed_ms = begin_ms ? now_ms() - begin_ms : 0;
        if (passed_ms > until_ms)
            passed_ms = until_ms;
        for (; made < rate * passed_ms / 1000 / BLOCK; made++) {
            keep_block(made + 1);
            if (steady && made >= KEPT)
                memoir_free(MEMOIR_HOST, MEMOIR_SPACE_PINNED, made + 1 - KEPT);
        }
        if (!ready) {
            puts("ready");
            fflush(stdout);
        }
        char byte;
        if (poll(&input, 1, TICK_MS) <= 0)
            continue;
        if (read(STDIN_FILENO, &byte, 1) <= 0)
            return 0;
        if (!begin_ms)
            begin_ms = now_ms();
    }
}

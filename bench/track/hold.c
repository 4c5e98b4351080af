/*
 * hold.c: what it costs in memory to hold many blocks.
 *
 * Usage: bench_track_hold BLOCKS
 *
 * Allocates that many blocks of 16 to 256 bytes from 16 lines, as a fixed sequence has them, touches each, and
 * prints how many live and what the process then has in memory of its own (anonymous and shared, in bytes).
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_1 malloc(bytes)
#define LINES_4(n)     \
    case n:            \
        return LINE_1; \
    case n + 1:        \
        return LINE_1; \
    case n + 2:        \
        return LINE_1; \
    case n + 3:        \
        return LINE_1

static void *allocate(unsigned which, size_t bytes)
{
    switch (which) {
        LINES_4(0);
        LINES_4(4);
        LINES_4(8);
    default:
        return malloc(bytes);
    }
}

/* In kB, or 0. */
static uint64_t status_of(const char *text, const char *field)
{
    const char *at = strstr(text, field);
    return at ? strtoull(at + strlen(field), NULL, 10) : 0;
}

int main(int argc, char **argv)
{
    size_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    static char text[8192];
    void **blocks = calloc(n + 1, sizeof(*blocks));
    uint64_t state = 88172645463325252ull;
    if (n == 0 || !blocks) {
        fprintf(stderr, "usage: bench_track_hold BLOCKS\n");
        return 2;
    }
    for (size_t i = 0; i < n; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        size_t bytes = 16 + (state >> 40) % 241;
        blocks[i] = allocate(state % 16, bytes);
        if (!blocks[i])
            return 1;
        memset(blocks[i], 1, bytes);
    }
    FILE *file = fopen("/proc/self/status", "r");
    if (!file || fread(text, 1, sizeof(text) - 1, file) == 0)
        return 1;
    fclose(file);
    printf("{\"blocks\": %zu, \"memory_bytes\": %llu}\n", n,
           (unsigned long long)(status_of(text, "RssAnon:") + status_of(text, "RssShmem:")) * 1024);
    return 0;
}

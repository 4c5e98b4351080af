/* own.h: what a test program counts itself, to be compared with its book: only what the program's own code
 * asks for. `say()` prints the count and waits for a line, so that somebody can look. */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static uint64_t own_alloc_bytes, own_alloc_blocks, own_freed_bytes, own_freed_blocks;

static inline void own_got(size_t bytes)
{
    __atomic_fetch_add(&own_alloc_bytes, bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(&own_alloc_blocks, 1, __ATOMIC_RELAXED);
}

static inline void own_gave(size_t bytes)
{
    __atomic_fetch_add(&own_freed_bytes, bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(&own_freed_blocks, 1, __ATOMIC_RELAXED);
}

/* Without stdio's buffers, which would be allocated meanwhile. */
static inline void own_tell(const char *who)
{
    char line[256];
    int n = snprintf(line, sizeof(line),
                     "{\"who\":\"%s\",\"pid\":%d,\"alloc_bytes\":%ju,\"alloc_blocks\":%ju,"
                     "\"freed_bytes\":%ju,\"freed_blocks\":%ju}\n",
                     who, (int)getpid(), (uintmax_t)own_alloc_bytes, (uintmax_t)own_alloc_blocks,
                     (uintmax_t)own_freed_bytes, (uintmax_t)own_freed_blocks);
    if (write(STDOUT_FILENO, line, (size_t)n) != n)
        _exit(3);
}

static inline void own_say(const char *who)
{
    char byte;
    ssize_t n;
    own_tell(who);
    do {
        n = read(STDIN_FILENO, &byte, 1);
    } while (n < 0 && errno == EINTR);
    if (n <= 0)
        _exit(0);
}

/* Our own assertion: works in every build. */
#define MUST(condition)                                                               \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            exit(2);                                                                  \
        }                                                                             \
    } while (0)

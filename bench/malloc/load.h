/*
 * load.h: what the synthetic loads share.
 *
 * A load is a fixed amount of work for whatever malloc the process has: sizes, slots and life times come from a
 * fixed sequence, so that each allocator has to do the same. Loads touch what they allocate, as programs do: an
 * allocator that spreads blocks over more pages pays for them here.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS_MAX = 64 };

struct load {
    const char *name, *help;
    int threads;   /* unless others are asked for */
    uint64_t work; /* of a run that takes about half a second; the unit is the load's own */
    void (*run)(uint64_t work, int threads);
};

extern const struct load loads_single[], loads_shared[], loads_stress[], loads_large[],
    loads_change[];

/* xorshift: cheap beside a malloc, and the same everywhere. */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

static inline uint64_t random_seed(int thread)
{
    return UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)(thread + 1);
}

/* From low to high, both included. */
static inline size_t random_range(uint64_t *state, size_t low, size_t high)
{
    return low + (random_next(state) >> 20) % (high - low + 1);
}

/* What objects of a program measure: mostly 16 to 64 bytes, up to 512. */
static inline size_t size_small(uint64_t *state)
{
    uint64_t random = random_next(state);
    return 8 + (random >> 20) % (UINT64_C(24) << (random & 7) % 5);
}

/* What a program asks for: as size_small, with strings, buffers and now and then a table; up to 1 MiB. */
static inline size_t size_realistic(uint64_t *state)
{
    uint64_t random = random_next(state), kind = random % 1024;
    size_t spread = (size_t)(random >> 20);
    if (kind < 640)
        return 8 + spread % 56;
    if (kind < 900)
        return 64 + spread % 448;
    if (kind < 1000)
        return 512 + spread % 3584;
    if (kind < 1020)
        return 4096 + spread % 28672;
    if (kind < 1023)
        return 32768 + spread % 229376;
    return 262144 + spread % 786432;
}

/* Writes to each page. */
static inline void block_touch(void *block, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 4096)
        ((volatile unsigned char *)block)[at] = 1;
}

/* A block that was written to, in each of its pages and at its end: programs use what they ask for. Out of memory ends the
 * process. */
static inline void *block_new(size_t bytes)
{
    unsigned char *block = malloc(bytes);
    if (!block)
        abort();
    block_touch(block, bytes);
    block[bytes - 1] = (unsigned char)bytes;
    return block;
}

/* Run `body` once for each of so many threads and wait for all. `arguments` is an array of structs of that size. */
void threads_run(int threads, void *(*body)(void *), void *arguments, size_t size_bytes);

/* A bounded queue of pointers that blocks at both ends. */
struct queue {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    size_t used, first;
    void *slots[64];
};

void queue_init(struct queue *queue);
void queue_put(struct queue *queue, void *pointer);
void *queue_take(struct queue *queue);

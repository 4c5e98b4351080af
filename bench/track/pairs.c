/*
 * pairs.c: what a pair of malloc() and free() costs in a tight loop.
 *
 * Usage: bench_track_pairs THREADS PAIRS     measure in this process, whatever is preloaded
 *
 * Each thread keeps 1,024 live blocks of 16 to 4,096 bytes in slots, and in each round frees the block of a random
 * slot and allocates another: sizes and slots come from a fixed sequence, so every run does the same. The calls
 * stand eight deep, as they do in programs. Prints the nanoseconds of a pair.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

enum { SLOTS = 1024, SIZES = 4096, THREADS_MAX = 64, DEPTH = 8 };

struct work {
    uint64_t pairs, seed;
    double ns;
};

static pthread_barrier_t barrier;

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static __attribute__((noinline)) uint64_t rounds(struct work *work)
{
    void *slots[SLOTS] = {0};
    uint64_t state = work->seed, begun = clock_monotonic_ns();
    for (uint64_t i = 0; i < work->pairs; i++) {
        uint64_t random = next(&state);
        void **slot = &slots[random % SLOTS];
        free(*slot);
        *slot = malloc(16 + (random >> 32) % (SIZES - 15));
        if (*slot)
            *(volatile char *)*slot = 1;
    }
    uint64_t ns = clock_monotonic_ns() - begun;
    for (int i = 0; i < SLOTS; i++)
        free(slots[i]);
    return ns;
}

static __attribute__((noinline)) uint64_t deeper(struct work *work, int depth)
{
    uint64_t ns = depth > 0 ? deeper(work, depth - 1) : rounds(work);
    __asm__ volatile("" ::: "memory"); /* no tail call */
    return ns;
}

static void *run(void *argument)
{
    struct work *work = argument;
    pthread_barrier_wait(&barrier);
    work->ns = (double)deeper(work, DEPTH) / (double)work->pairs;
    return NULL;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    uint64_t pairs = argc > 2 ? strtoull(argv[2], NULL, 10) : 10000000;
    if (threads < 1 || threads > THREADS_MAX || pairs == 0) {
        fprintf(stderr, "usage: bench_track_pairs THREADS PAIRS\n");
        return 2;
    }
    static struct work work[THREADS_MAX];
    pthread_t thread[THREADS_MAX];
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        work[i] = (struct work){.pairs = pairs, .seed = 88172645463325252ull + (uint64_t)i};
        if (pthread_create(&thread[i], NULL, run, &work[i]) != 0)
            return 1;
    }
    double sum = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
        sum += work[i].ns;
    }
    printf("%.2f\n", sum / threads);
    return 0;
}

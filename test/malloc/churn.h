/* churn.h: threads that allocate and free without end, also each other's blocks, while a test does something to the
 * process: forks, ends it, takes signals. Each block's contents say whose it is. */
#pragma once

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "cases.h"

enum { CHURN_THREADS = 4, CHURN_SHARED = 256, CHURN_OWN = 64 };

static _Atomic(unsigned char *) churn_shared[CHURN_SHARED];
static atomic_bool churn_stop;
static _Atomic uint64_t churn_rounds;
static pthread_t churn_ids[CHURN_THREADS];

/* The first word of a block is its size; all else follows from it. */
static inline unsigned char *churn_new(size_t bytes)
{
    bytes += sizeof(bytes) + 1;
    unsigned char *block = malloc(bytes);
    MUST(block);
    memcpy(block, &bytes, sizeof(bytes));
    size_t end = bytes < 300 ? bytes : 300;
    memset(block + sizeof(bytes), (int)(bytes * 7), end - sizeof(bytes));
    block[bytes - 1] = (unsigned char)(bytes * 7);
    return block;
}

static inline void churn_check(const unsigned char *block)
{
    size_t bytes;
    memcpy(&bytes, block, sizeof(bytes));
    size_t end = bytes < 300 ? bytes : 300;
    for (size_t i = sizeof(bytes); i < end; i++)
        MUST_SAY(block[i] == (unsigned char)(bytes * 7), "byte %zu of %zu at %p was overwritten", i,
                 bytes, (const void *)block);
}

static inline void churn_free(unsigned char *block)
{
    if (block)
        churn_check(block);
    free(block);
}

static inline size_t churn_size(uint64_t *random)
{
    uint64_t r = case_random(random);
    return r >> 32 & (r % 64 == 0 ? 0x3fffff : r % 8 == 0 ? 0x7fff : 0x1ff);
}

static inline void *churn_work(void *number)
{
    unsigned char *own[CHURN_OWN] = {NULL};
    uint64_t random = (uintptr_t)number + 1;
    while (!atomic_load_explicit(&churn_stop, memory_order_relaxed)) {
        for (size_t i = 0; i < CHURN_OWN; i++) {
            churn_free(own[i]);
            own[i] = churn_new(churn_size(&random));
            if (i % 4 == 0) /* in exchange for a block of somebody else's */
                own[i] =
                    atomic_exchange(&churn_shared[case_random(&random) % CHURN_SHARED], own[i]);
        }
        atomic_fetch_add(&churn_rounds, 1);
    }
    for (size_t i = 0; i < CHURN_OWN; i++)
        churn_free(own[i]);
    return NULL;
}

/* They have all begun when it returns. */
static inline void churn_start(void)
{
    atomic_store(&churn_stop, false);
    for (size_t i = 0; i < CHURN_THREADS; i++)
        MUST(pthread_create(&churn_ids[i], NULL, churn_work, (void *)i) == 0);
    uint64_t begun = atomic_load(&churn_rounds);
    while (atomic_load(&churn_rounds) < begun + 8)
        sched_yield();
}

static inline void churn_end(void)
{
    atomic_store(&churn_stop, true);
    for (size_t i = 0; i < CHURN_THREADS; i++)
        MUST(pthread_join(churn_ids[i], NULL) == 0);
    for (size_t i = 0; i < CHURN_SHARED; i++)
        churn_free(atomic_exchange(&churn_shared[i], NULL));
}

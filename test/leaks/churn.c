/*
 * churn.c: threads that allocate, resize, hand over and free without a pause, and count it all themselves.
 *
 * Usage: leak_churn THREADS
 *
 * For each line on standard input all threads stand still between two calls, and what was allocated and freed until
 * then is printed; they go on at the next line, which is not answered. The end of the input ends it.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS_MAX = 64, SLOTS = 256, SHARED = 128, BATCH = 500 };

/* Every block knows its size, since another thread may free it. */
struct block {
    uint64_t bytes;
    uint64_t more;
};
struct counts {
    uint64_t alloc_blocks, alloc_bytes, freed_blocks, freed_bytes;
};
struct worker {
    pthread_t thread;
    uint64_t random;
    struct counts counts;
    struct block *slots[SLOTS];
};

static struct worker workers[THREADS_MAX];
static int n_workers;
static _Atomic(struct block *) shared[SHARED];
static _Atomic int ending;
static pthread_rwlock_t gate;

static uint64_t next(struct worker *w)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return w->random;
}

static struct block *got(struct worker *w, struct block *block, size_t bytes)
{
    if (!block)
        abort();
    block->bytes = bytes;
    w->counts.alloc_blocks++;
    w->counts.alloc_bytes += bytes;
    return block;
}

static struct block *gone(struct worker *w, struct block *block)
{
    if (block) {
        w->counts.freed_blocks++;
        w->counts.freed_bytes += block->bytes;
    }
    return block;
}

static struct block *allocate(struct worker *w, unsigned how, size_t bytes)
{
    switch (how) {
    case 0:
        return got(w, calloc(1, bytes), bytes);
    case 1:
        return got(w, aligned_alloc(64, bytes), bytes);
    case 2:
        return got(w, memalign(256, bytes), bytes);
    default:
        return got(w, malloc(bytes), bytes);
    }
}

static void *work_briefly(void *argument)
{
    struct worker *w = argument; /* whose owner waits */
    struct block *block = allocate(w, 3, 100);
    block = gone(w, block);
    free(block);
    return NULL;
}

static void step(struct worker *w)
{
    uint64_t random = next(w);
    struct block **slot = &w->slots[random % SLOTS];
    size_t bytes = sizeof(struct block) + (random >> 16) % (random % 61 ? 500 : 200000);
    switch (random >> 40 & 15) {
    case 0: /* grow or shrink */
        *slot = gone(w, *slot);
        *slot = got(w, realloc(*slot, bytes), bytes);
        break;
    case 1: { /* hand over */
        struct block *other = atomic_exchange(&shared[random >> 48 & (SHARED - 1)], *slot);
        *slot = other;
        break;
    }
    case 2:
        free(gone(w, *slot));
        *slot = NULL;
        break;
    default:
        free(gone(w, *slot));
        *slot = allocate(w, (unsigned)(random >> 44 & 15), bytes);
    }
}

static void *work(void *argument)
{
    struct worker *w = argument;
    while (!atomic_load(&ending)) {
        pthread_rwlock_rdlock(&gate);
        for (int i = 0; i < BATCH; i++)
            step(w);
        pthread_t brief;
        if (next(w) % 64 == 0 && pthread_create(&brief, NULL, work_briefly, w) == 0)
            pthread_join(brief, NULL);
        pthread_rwlock_unlock(&gate);
    }
    return NULL;
}

static void tell(void)
{
    struct counts sum = {0};
    for (int i = 0; i < n_workers; i++) {
        const struct counts *c = &workers[i].counts;
        sum.alloc_blocks += c->alloc_blocks;
        sum.alloc_bytes += c->alloc_bytes;
        sum.freed_blocks += c->freed_blocks;
        sum.freed_bytes += c->freed_bytes;
    }
    dprintf(STDOUT_FILENO, "[%llu, %llu, %llu, %llu]\n", (unsigned long long)sum.alloc_blocks,
            (unsigned long long)sum.alloc_bytes, (unsigned long long)sum.freed_blocks,
            (unsigned long long)sum.freed_bytes);
}

int main(int argc, char **argv)
{
    pthread_rwlockattr_t attributes;
    char byte;
    n_workers = argc > 1 ? atoi(argv[1]) : 4;
    if (n_workers < 1 || n_workers > THREADS_MAX)
        return 2;
    pthread_rwlockattr_init(&attributes); /* else who wants all to stand still may wait for ever */
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&gate, &attributes);
    for (int i = 0; i < n_workers; i++) {
        workers[i].random = 88172645463325252ull + (uint64_t)i * 7919;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            return 1;
    }
    while (read(STDIN_FILENO, &byte, 1) == 1) {
        pthread_rwlock_wrlock(&gate);
        tell();
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        pthread_rwlock_unlock(&gate);
        if (n != 1)
            break;
    }
    atomic_store(&ending, 1);
    for (int i = 0; i < n_workers; i++)
        pthread_join(workers[i].thread, NULL);
    return 0;
}

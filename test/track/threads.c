/* threads.c [relay]: threads that allocate, free each other's blocks, end, and allocate while they end. */
#include <string.h>

#include "own.h"

enum { THREADS = 6, ROUNDS = 200, EACH = 64, SHORT = 300, CROWD = 100 };
enum { BATCHES = 200, BATCH = 256, BATCH_BYTES = 2000 };

static pthread_key_t key;
static void *hand_over[THREADS][EACH];
static pthread_barrier_t barrier;

static void *block_of(size_t bytes)
{
    void *block = malloc(bytes);
    MUST(block);
    own_got(bytes);
    return memset(block, 1, bytes);
}

static void gone(void *block, size_t bytes)
{
    own_gave(bytes);
    free(block);
}

/* Frees what its neighbour allocated. */
static void *exchange(void *number)
{
    size_t self = (size_t)number;
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < EACH; i++)
            hand_over[self][i] = block_of(i * 13 + self);
        pthread_barrier_wait(&barrier);
        size_t other = (self + 1) % THREADS;
        for (size_t i = 0; i < EACH; i++)
            gone(hand_over[other][i], i * 13 + other);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

/* Frees what main() allocates, batch by batch: many times as much as lives at any moment. */
static void *batch[BATCH];

static void *takes_batches(void *unused)
{
    for (int i = 0; i < BATCHES; i++) {
        pthread_barrier_wait(&barrier);
        for (size_t k = 0; k < BATCH; k++)
            gone(batch[k], BATCH_BYTES);
        pthread_barrier_wait(&barrier);
    }
    return unused;
}

static void relay(void)
{
    pthread_t other;
    pthread_barrier_init(&barrier, NULL, 2);
    MUST(pthread_create(&other, NULL, takes_batches, NULL) == 0);
    for (int i = 0; i < BATCHES; i++) {
        for (size_t k = 0; k < BATCH; k++)
            batch[k] = block_of(BATCH_BYTES);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
    }
    pthread_join(other, NULL);
}

/* Allocates and frees in a destructor, round after round, also after everybody else's has run. */
static void destructor(void *value)
{
    size_t left = (size_t)value;
    gone(block_of(300), 300);
    block_of(7);
    if (left > 1)
        pthread_setspecific(key, (void *)(left - 1));
}

static void *short_life(void *unused)
{
    pthread_setspecific(key, (void *)4);
    gone(block_of(1000), 1000);
    return unused;
}

/* More threads than have counters of their own. */
static void *crowd(void *unused)
{
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < 500; i++)
        gone(block_of(i), i);
    block_of(11);
    pthread_barrier_wait(&barrier);
    return unused;
}

static void run(size_t n, void *(*body)(void *))
{
    static pthread_t threads[CROWD];
    for (size_t i = 0; i < n; i++)
        MUST(pthread_create(&threads[i], NULL, body, (void *)i) == 0);
    for (size_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    block_of(100000);
    if (argc > 1 && strcmp(argv[1], "relay") == 0) {
        relay();
        own_say("relay");
        return 0;
    }
    pthread_key_create(&key, destructor);
    pthread_barrier_init(&barrier, NULL, THREADS);
    run(THREADS, exchange);
    own_say("exchange");
    for (int i = 0; i < SHORT / 10; i++)
        run(10, short_life);
    own_say("ends");
    pthread_barrier_destroy(&barrier);
    pthread_barrier_init(&barrier, NULL, CROWD);
    run(CROWD, crowd);
    own_say("crowd");
    return 0;
}

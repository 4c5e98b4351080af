/* A thread that waits while the program ends holds the only pointer, on its stack. */
#include "truth.h"

static pthread_barrier_t barrier;

static void *work(void *unused)
{
    char *volatile local = MALLOC(500); /* HELD */
    pthread_barrier_wait(&barrier);
    for (;;)
        local[0]++, pause();
    return unused;
}

static void step(int number)
{
    pthread_t thread;
    if (number != 0)
        return;
    pthread_barrier_init(&barrier, NULL, 2);
    if (pthread_create(&thread, NULL, work, NULL) == 0)
        pthread_barrier_wait(&barrier);
}

TRUTH_MAIN(step)

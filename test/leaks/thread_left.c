/* A thread ends itself, or is ended, before it comes to the line that frees. */
#include "truth.h"

static void *work(void *ended)
{
    char *buffer = MALLOC(144); /* LEAK */
    buffer[0] = 1;
    if (ended) {
        for (;;)
            pause(); /* where it is cancelled */
    }
    if (buffer[0])
        pthread_exit(NULL);
    FREE(buffer);
    return NULL;
}

static void step(int number)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, number % 2 ? &thread : NULL) != 0)
        return;
    if (number % 2)
        pthread_cancel(thread);
    pthread_join(thread, NULL);
}

TRUTH_MAIN(step)

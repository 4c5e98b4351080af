/* One thread allocates, another one frees. */
#include "truth.h"

static void *consume(void *p)
{
    FREE(p);
    return NULL;
}

static void step(int number)
{
    pthread_t thread;
    char *parcel = MALLOC(64 + (size_t)number % 9);
    if (pthread_create(&thread, NULL, consume, parcel) == 0)
        pthread_join(thread, NULL);
}

TRUTH_MAIN(step)

/* What a thread's own variable points to is lost when the thread ends. */
#include "truth.h"

static __thread char *scratch;

static void *work(void *unused)
{
    (void)unused;
    scratch = MALLOC(72); /* LEAK */
    scratch[0] = 1;
    return NULL;
}

static void step(int number)
{
    pthread_t thread;
    (void)number;
    if (pthread_create(&thread, NULL, work, NULL) == 0)
        pthread_join(thread, NULL);
}

TRUTH_MAIN(step)

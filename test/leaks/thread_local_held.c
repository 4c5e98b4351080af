/* What the threads that live hold in their own variables and under keys, of which only the first 32 have room in the thread
 * itself. */
#include "truth.h"

enum { KEYS = 40 };
static __thread char *own;
static pthread_key_t keys[KEYS];
static pthread_barrier_t barrier;

static void *work(void *unused)
{
    own = MALLOC(200);                                  /* HELD */
    pthread_setspecific(keys[1], MALLOC(64));           /* HELD */
    pthread_setspecific(keys[KEYS - 1], CALLOC(1, 48)); /* HELD */
    pthread_barrier_wait(&barrier);
    for (;;)
        pause();
    return unused;
}

static void step(int number)
{
    pthread_t thread;
    if (number != 0)
        return;
    for (int i = 0; i < KEYS; i++)
        pthread_key_create(&keys[i], NULL);
    pthread_barrier_init(&barrier, NULL, 2);
    own = MALLOC(300);                               /* HELD */
    pthread_setspecific(keys[KEYS - 2], MALLOC(32)); /* HELD */
    if (pthread_create(&thread, NULL, work, NULL) == 0)
        pthread_barrier_wait(&barrier);
}

TRUTH_MAIN(step)

/* The destructor of what a thread keeps under a key makes a copy of it, and forgets the copy. */
#include "truth.h"

static pthread_key_t key;

static void give_back(void *p)
{
    char *copy = MALLOC(56); /* LEAK */
    memcpy(copy, p, 56);
    FREE(p);
}

static void *work(void *unused)
{
    (void)unused;
    char *own = MALLOC(72);
    memset(own, 1, 72);
    pthread_setspecific(key, own);
    return NULL;
}

static void step(int number)
{
    pthread_t thread;
    if (number == 0)
        pthread_key_create(&key, give_back);
    if (pthread_create(&thread, NULL, work, NULL) == 0)
        pthread_join(thread, NULL);
}

TRUTH_MAIN(step)

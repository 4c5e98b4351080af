/* What a thread keeps under a key is freed by the key's destructor. */
#include "truth.h"

static pthread_key_t key;

static void give_back(void *p)
{
    FREE(p);
}

static void *work(void *unused)
{
    (void)unused;
    pthread_setspecific(key, MALLOC(72));
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

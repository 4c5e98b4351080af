/* A batch grows until it is sent, then all of it goes. */
#include "truth.h"

enum { BATCH = 40 };
static char *batch[BATCH];
static int n_batch;

static void step(int number)
{
    if (n_batch == BATCH)
        while (n_batch > 0)
            FREE(batch[--n_batch]);
    batch[n_batch++] = MALLOC(300 + (size_t)number % 5); /* HELD */
}

TRUTH_MAIN(step)

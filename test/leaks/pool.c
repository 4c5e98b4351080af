/* Small objects are cut from one large block and go back to it: the heap stands still. */
#include "truth.h"

enum { OBJECTS = 256, BYTES = 64 };
static char *pool;
static int free_list[OBJECTS], n_free;

static void step(int number)
{
    if (!pool) {
        pool = MALLOC(OBJECTS * BYTES); /* HELD */
        for (int i = 0; i < OBJECTS; i++)
            free_list[n_free++] = i;
    }
    int taken = free_list[--n_free];
    pool[taken * BYTES] = (char)number;
    free_list[n_free++] = taken;
}

TRUTH_MAIN(step)

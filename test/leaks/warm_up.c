/* Grows for a while, until everything that it needs is there. */
#include "truth.h"

enum { NEEDED = 80 };
static char *tables[NEEDED];

static void step(int number)
{
    char **table = &tables[number % NEEDED];
    if (!*table)
        *table = MALLOC(512); /* HELD */
    (*table)[0]++;
}

TRUTH_MAIN(step)

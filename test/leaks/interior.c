/* The only pointer that is kept points into the middle of the block. */
#include "truth.h"

static char *middle;

static void step(int number)
{
    if (number == 0)
        middle = (char *)MALLOC(4096) + 2048; /* HELD */
    middle[number % 100] = 1;
}

TRUTH_MAIN(step)

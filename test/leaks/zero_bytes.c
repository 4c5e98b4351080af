/* Blocks of no bytes: each of them costs, none of them has a size. */
#include "truth.h"

static void step(int number)
{
    (void)number;
    MALLOC(0); /* LEAK */
}

TRUTH_MAIN(step)

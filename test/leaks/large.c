/* Blocks large enough for mappings of their own. */
#include "truth.h"

static void step(int number)
{
    if (number % 50 == 0)
        ((char *)MALLOC(1 << 20))[0] = 1; /* LEAK */
    FREE(MALLOC(1 << 19));
}

TRUTH_MAIN(step)

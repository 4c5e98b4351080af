/* Pointers with something in the bits that they do not need: the lowest, and the upper 16. */
#include "truth.h"

static uintptr_t low, high;

static void step(int number)
{
    if (number != 0)
        return;
    low = (uintptr_t)MALLOC(96) | 3;                              /* HELD */
    high = (uintptr_t)MALLOC(160) | (uintptr_t)UINT64_C(7) << 48; /* HELD */
}

TRUTH_MAIN(step)

/* Zeroed records that nobody keeps. */
#include "truth.h"

static void step(int number)
{
    int *counts = CALLOC(10, sizeof(int)); /* LEAK */
    counts[number % 10]++;
}

TRUTH_MAIN(step)

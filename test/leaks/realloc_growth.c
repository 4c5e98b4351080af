/* A buffer grows piece by piece and goes in the end. */
#include "truth.h"

static void step(int number)
{
    char *text = MALLOC(16);
    for (size_t n = 32; n <= 4096; n *= 2)
        text = REALLOC(text, n + (size_t)number % 3);
    FREE(text);
}

TRUTH_MAIN(step)

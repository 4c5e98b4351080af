/* The array is freed, what its elements point to is not. */
#include "truth.h"

enum { ROWS = 8 };

static void step(int number)
{
    char **rows = MALLOC(ROWS * sizeof(*rows));
    for (int i = 0; i < ROWS; i++)
        rows[i] = MALLOC(20 + (size_t)number % 2); /* LEAK */
    FREE(rows);
}

TRUTH_MAIN(step)

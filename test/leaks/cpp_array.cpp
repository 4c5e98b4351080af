/* new[] without delete[]. */
#include "truth.hpp"

static void step(int number)
{
    int *values = NEW_ARRAY(int, 25); /* LEAK */
    values[number % 25] = number;
}

TRUTH_MAIN(step)

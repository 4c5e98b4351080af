/* One request in ten fails, and its buffer stays. */
#include "truth.h"

static int handle(int number)
{
    char *buffer = MALLOC(500); /* LEAK */
    snprintf(buffer, 500, "request %d", number);
    if (number % 10 == 3)
        return -1;
    FREE(buffer);
    return 0;
}

static void step(int number)
{
    (void)handle(number);
}

TRUTH_MAIN(step)

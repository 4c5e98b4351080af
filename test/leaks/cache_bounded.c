/* A cache that drops the oldest of its items for each new one. */
#include "truth.h"

enum { ITEMS = 50 };
static char *items[ITEMS];

static void step(int number)
{
    char **slot = &items[number % ITEMS];
    FREE(*slot);
    *slot = MALLOC(200 + (size_t)number % 7); /* HELD */
}

TRUTH_MAIN(step)

/* A ring of messages in a steady state, each a little larger or smaller than the one that it replaces. */
#include "truth.h"

enum { SLOTS = 32 };
static char *slots[SLOTS];

static void step(int number)
{
    for (int i = 0; i < 4; i++) {
        int at = (number * 4 + i) % SLOTS;
        FREE(slots[at]);
        slots[at] = MALLOC(64 + (size_t)(number * 37 + i) % 64); /* HELD */
    }
}

TRUTH_MAIN(step)

/* A table that doubles when it is full: ever rarer, ever larger. Its entries are 1 in 8 steps. */
#include "truth.h"

static int *table;
static size_t room, used;

static void step(int number)
{
    if (number % 8 != 0 && number > 0)
        return;
    if (used == room) {
        room = room ? 2 * room : 4;
        table = REALLOC(table, room * sizeof(*table)); /* HELD */
    }
    table[used++] = number;
    if (used > 64)
        used = 0; /* keys come again */
}

TRUTH_MAIN(step)

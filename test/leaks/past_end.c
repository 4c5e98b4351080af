/* The only pointer that is kept points right behind the block: a stack that grows down, or the end of a range. Nobody can
 * tell it from a pointer to what comes next. */
#include "truth.h"

enum { SIZES = 40 };
static char *end[SIZES];

static void step(int number)
{
    if (number >= SIZES)
        return;
    size_t bytes =
        16 + (size_t)number; /* so that some fill what the allocator gives, and some do not */
    end[number] = (char *)MALLOC(bytes) + bytes; /* HELD hidden */
    end[number][-1] = 1;
}

TRUTH_MAIN(step)

/* Two buffers swap their roles; the older one is replaced each time. */
#include "truth.h"

static char *front, *back;

static void step(int number)
{
    FREE(back);
    back = front;
    front = MALLOC(2000 + (size_t)number % 3); /* HELD */
}

TRUTH_MAIN(step)

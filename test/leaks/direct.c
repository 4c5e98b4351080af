/* A block whose only pointer is a local variable. */
#include "truth.h"

static void step(int number)
{
    char *message = MALLOC(48); /* LEAK */
    snprintf(message, 48, "step %d", number);
}

TRUTH_MAIN(step)

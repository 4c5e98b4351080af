/* A copy of a string that nobody frees: the C library asks for it, in the name of the line. */
#include "truth.h"

static void step(int number)
{
    char name[32];
    snprintf(name, sizeof(name), "user-%04d", number % 10000);
    char *copy = strdup(name); /* LEAK by libc */
    truth_got(copy, strlen(name) + 1, __LINE__ - 1);
}

TRUTH_MAIN(step)

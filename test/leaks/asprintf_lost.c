/* Formatted text that nobody frees. */
#include "truth.h"

static void step(int number)
{
    char *text = NULL;
    int n = asprintf(&text, "request %06d", number % 1000000); /* LEAK by libc */
    if (n > 0)
        truth_got(text, (size_t)n + 1, __LINE__ - 2);
}

TRUTH_MAIN(step)

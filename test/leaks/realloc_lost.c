/* The grown buffer is kept in a variable that the caller does not have. */
#include "truth.h"

static void grow(char *text, size_t bytes)
{
    text = REALLOC(text, bytes); /* LEAK */
    text[bytes - 1] = 0;
}

static void step(int number)
{
    char *text = MALLOC(8);
    text[0] = (char)number;
    grow(text, 300);
}

TRUTH_MAIN(step)

/* An error jumps over the line that frees. */
#include <setjmp.h>

#include "truth.h"

static jmp_buf failed;

static void parse(int number)
{
    char *buffer = MALLOC(160); /* LEAK */
    buffer[0] = (char)number;
    if (number % 4 == 0)
        longjmp(failed, 1);
    FREE(buffer);
}

static void step(int number)
{
    if (setjmp(failed) == 0)
        parse(number);
}

TRUTH_MAIN(step)

/* Blocks of several sizes that only data of the C library points to: spare room in its standard streams. */
#include "truth.h"

static const size_t sizes[] = {1, 8, 9, 16, 24, 100};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* The two last words of a stream are nobody's. */
static void **spare(int number)
{
    FILE *streams[] = {stdin, stdout, stderr};
    FILE *stream = streams[number / 2];
    return (void **)(stream + 1) - 1 - number % 2;
}

static void step(int number)
{
    if (number < SIZES)
        *spare(number) = MALLOC(sizes[number]); /* HELD */
}

TRUTH_MAIN(step)

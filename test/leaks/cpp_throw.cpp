/* An exception passes the line that deletes. */
#include "truth.hpp"

static void work(int number)
{
    char *buffer = NEW_ARRAY(char, 64); /* LEAK */
    buffer[0] = 1;
    if (number % 5 == 0)
        throw number;
    DELETE_ARRAY(buffer);
}

static void step(int number)
{
    try {
        work(number);
    } catch (int) {
    }
}

TRUTH_MAIN(step)

/* A constructor that throws: its object is given back, what it had made for itself by then is not. */
#include "truth.hpp"

struct connection {
    char *buffer;
    explicit connection(int number)
    {
        buffer = NEW_ARRAY(char, 120); /* LEAK */
        buffer[0] = 1;
        if (number % 4 == 0)
            throw number;
    }
    ~connection()
    {
        DELETE_ARRAY(buffer);
    }
};

static void step(int number)
{
    try {
        connection made(number);
    } catch (int) {
    }
}

TRUTH_MAIN(step)

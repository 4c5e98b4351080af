/* An object is made, used, and forgotten, with what it owns. */
#include "truth.hpp"

struct Session {
    char *buffer;
    Session()
    {
        buffer = NEW_ARRAY(char, 80); /* LEAK indirect */
    }
    ~Session()
    {
        DELETE_ARRAY(buffer);
    }
};

static void step(int number)
{
    Session *session = NEW(Session); /* LEAK */
    session->buffer[0] = static_cast<char>(number);
    if (number % 2 == 0)
        DELETE(session);
}

TRUTH_MAIN(step)

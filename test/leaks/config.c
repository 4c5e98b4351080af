/* Settings that are read at the start and kept to the end. */
#include "truth.h"

enum { SETTINGS = 64 };
static char *settings[SETTINGS];

static void step(int number)
{
    if (number == 0)
        for (int i = 0; i < SETTINGS; i++)
            settings[i] = MALLOC(100); /* HELD */
    char *work = MALLOC(32);
    snprintf(work, 32, "%s", settings[number % SETTINGS] ? "set" : "unset");
    FREE(work);
}

TRUTH_MAIN(step)

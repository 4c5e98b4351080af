/* Held to the end, and freed there. */
#include "truth.h"

static char *logbook;

static void finish(void)
{
    FREE(logbook);
    truth_tell();
}

static void step(int number)
{
    if (!logbook)
        logbook = MALLOC(1024);
    logbook[number % 1024] = 1;
}

int main(int argc, char **argv)
{
    atexit(finish);
    truth_run(argc, argv, step);
    return 0;
}

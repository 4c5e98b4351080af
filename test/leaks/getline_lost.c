/* getline() makes a buffer for each call, and nobody frees it. */
#include "truth.h"

static void step(int number)
{
    char text[] = "one line of text\n";
    FILE *file = fmemopen(text, sizeof(text) - 1, "r");
    char *line = NULL;
    size_t room = 0;
    (void)number;
    if (getline(&line, &room, file) > 0)     /* LEAK by libc */
        truth_got(line, room, __LINE__ - 1); /* it asks for as much as it says */
    fclose(file);
}

TRUTH_MAIN(step)

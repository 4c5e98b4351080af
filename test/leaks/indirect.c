/* A lost record takes with it what only it points to. */
#include "truth.h"

struct record {
    char *name;
    struct record *detail;
};

static void step(int number)
{
    struct record *record = MALLOC(sizeof(*record)); /* LEAK */
    record->name = MALLOC(24);                       /* LEAK indirect */
    record->detail = NULL;
    snprintf(record->name, 24, "record %d", number);
}

TRUTH_MAIN(step)

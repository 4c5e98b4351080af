/* A list that is only ever added to: every block can be reached, none is ever used again. */
#include "truth.h"

struct entry {
    struct entry *next;
    char text[56];
};
static struct entry *entries;

static void step(int number)
{
    struct entry *entry = MALLOC(sizeof(*entry)); /* LEAK reachable */
    snprintf(entry->text, sizeof(entry->text), "entry %d", number);
    entry->next = entries;
    entries = entry;
}

TRUTH_MAIN(step)

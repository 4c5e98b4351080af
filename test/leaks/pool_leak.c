/* Objects never go back to their pool, so it needs a new block every now and then. */
#include "truth.h"

enum { PER_SLAB = 4 };
struct slab {
    struct slab *next;
    char objects[PER_SLAB][60];
};
static struct slab *slabs;
static int used = PER_SLAB;

static void step(int number)
{
    if (used == PER_SLAB) {
        struct slab *slab = MALLOC(sizeof(*slab)); /* LEAK reachable */
        slab->next = slabs;
        slabs = slab;
        used = 0;
    }
    snprintf(slabs->objects[used++], 60, "object %d", number);
}

TRUTH_MAIN(step)

/* A page of the heap is not for core files: what lies around it is three mappings then, and all of it is held. */
#include <stdint.h>
#include <sys/mman.h>

#include "truth.h"

enum { NODES = 100, PAGE = 4096 };

struct node {
    struct node *next;
    char bytes[248];
};

static struct node *first;

static void step(int number)
{
    if (number > 0)
        return;
    for (int i = 0; i < NODES; i++) {
        struct node *n = MALLOC(sizeof(*n)); /* HELD */
        n->next = first;
        first = n;
    }
    madvise((void *)((uintptr_t)first & ~(uintptr_t)(PAGE - 1)), PAGE, MADV_DONTDUMP);
}

TRUTH_MAIN(step)

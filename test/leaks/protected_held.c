/* Pages of the heap, and of the program's data, that the program has protected from itself: blocks in them are held, and pointers in them count. */
#include <stdint.h>
#include <sys/mman.h>

#include "truth.h"

enum { NODES = 400, PAGE = 4096 };

struct node {
    struct node *next;
    char bytes[248];
};

static __attribute__((aligned(4096))) union {
    struct node *first;
    char page[PAGE];
} data;

static void *page_of(void *address)
{
    return (void *)((uintptr_t)address & ~(uintptr_t)(PAGE - 1));
}

static void step(int number)
{
    struct node *all[NODES];
    if (number > 0)
        return;
    for (int i = 0; i < NODES; i++) {
        all[i] = MALLOC(sizeof(struct node)); /* HELD */
        all[i]->next = i ? all[i - 1] : NULL;
    }
    data.first = all[NODES - 1];
    mprotect(page_of(all[100]), PAGE, PROT_NONE);
    mprotect(page_of(all[200]), PAGE, PROT_READ);
    mprotect(page_of(all[300]), 2 * PAGE, PROT_NONE);
    mprotect(&data, PAGE, PROT_NONE);
}

TRUTH_MAIN(step)

/* A pointer is kept where nobody recognises it: mixed with a mask. It is used again, so nothing is lost. */
#include "truth.h"

enum { BOXES = 16 };
static uintptr_t hidden[BOXES];
static const uintptr_t mask = (uintptr_t)UINT64_C(0x5aa5a55a3cc3c33c);

static void step(int number)
{
    int at = number % BOXES;
    if (!hidden[at])
        hidden[at] = (uintptr_t)MALLOC(88) ^ mask; /* HELD hidden */
    ((char *)(hidden[at] ^ mask))[0]++;
}

TRUTH_MAIN(step)

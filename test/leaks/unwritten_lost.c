/* Blocks that the program never writes, of which it keeps every second one and loses the others: the links that its allocator left in those that
 * are kept must not lead to the lost ones. Blocks of the same size were freed before, so that some of its lists are full. */
#include "truth.h"

enum { SIZES = 8, EACH = TRUTH_STEPS / SIZES };
static const size_t sizes[SIZES] = {8, 16, 24, 40, 64, 200, 1000, 5000};
static void *kept[TRUTH_STEPS];

static __attribute__((noinline)) void fill_lists(size_t bytes)
{
    static void *blocks[EACH];
    for (int i = 0; i < EACH; i++)
        blocks[i] = MALLOC(bytes); /* freed below */
    for (int i = 0; i < EACH; i++) {
        FREE(blocks[i * 7 % EACH]);
        blocks[i * 7 % EACH] = NULL;
    }
}

static __attribute__((noinline)) void lose(size_t bytes)
{
    void *volatile p = MALLOC(bytes); /* LEAK */
    (void)p;
    p = NULL;
}

static void step(int number)
{
    size_t bytes = sizes[number / EACH % SIZES];
    if (number % EACH == 0)
        fill_lists(bytes);
    if (number < TRUTH_STEPS)
        kept[number] = MALLOC(bytes); /* HELD */
    lose(bytes);
}

TRUTH_MAIN(step)

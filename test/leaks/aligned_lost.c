/* Every way to ask for an alignment, and none to free. */
#include "truth.h"

static void step(int number)
{
    void *block = NULL;
    size_t bytes = 256 + (size_t)(number % 4) * 64;
    memset(ALIGNED(64, bytes), 1, bytes);        /* LEAK */
    memset(MEMALIGN(32, bytes), 1, bytes);       /* LEAK */
    if (posix_memalign(&block, 128, bytes) == 0) /* LEAK */
        truth_got(block, bytes, __LINE__ - 1);
}

TRUTH_MAIN(step)

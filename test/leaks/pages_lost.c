/* Whole pages by valloc() and pvalloc(). The latter rounds up, so that is what was asked. */
#include "truth.h"

static void step(int number)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (number % 10 != 0)
        return;
    TRUTH_OF(valloc(truth_bytes_), 1000); /* LEAK */
    FREE(TRUTH_OF(pvalloc(truth_bytes_), 2 * page));
}

TRUTH_MAIN(step)

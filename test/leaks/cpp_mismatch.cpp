/* Freed by another function than the one that allocated: wrong, but nothing stays. */
#include "truth.hpp"

static void step(int number)
{
    int *by_new = NEW(int);
    void *by_malloc = MALLOC(40);
    *by_new = number;
    void *volatile one = by_new, *volatile other = by_malloc; /* the compiler would complain */
    FREE(one);
    truth_gone(other);
    operator delete(other);
}

TRUTH_MAIN(step)

/* Sums of what others say: they stop at the largest number rather than begin anew at 0, so that who lies about
 * how much he holds never makes a total look small. */
#pragma once

#include <stdint.h>

static inline void sum_add(uint64_t *sum, uint64_t n)
{
    if (__builtin_add_overflow(*sum, n, sum))
        *sum = UINT64_MAX;
}

/* Inside the query core: the bytes of a partial result, between machines.
 *
 *     "MPQ" 2                          magic and version of the layout
 *     table by where show sort         the spec: texts (length, bytes)
 *     limit others                     of it; others is 0 or 1
 *     node viewer time                 text; 0 for one who sees all, else uid + 1; nanoseconds since 1970
 *     keys columns {name kind}         how many columns of --by, how many in all; for each its name and its kind
 *     pruned left_out flags missing    counters; 1: incomplete; bits of columns that other parts lacked
 *     has_others [cells]               0 or 1, and the sum of the rows that a limit dropped
 *     rows {cells}
 *
 * Numbers are varints. A cell is one byte (state, marks << 3, 0x20: `per` follows, 0x40: `per` is 1) and, where it is
 * known, its value: a number (rates: zigzag), a text, or the points of a series (how many, then the differences of
 * their times and their values). The bytes of another machine are untrusted. */
#pragma once

#include "base/varint.h"
#include "query/result.h"

enum {
    PARTIAL_VERSION = 2,
    PARTIAL_PER = 0x20,
    PARTIAL_PER_ONE = 0x40,
    PARTIAL_MARKS_SHIFT = 3,
    PARTIAL_INCOMPLETE = 1,
};
#define PARTIAL_MAGIC "MPQ"

static inline uint64_t partial_zigzag(uint64_t n)
{
    return n << 1 ^ (uint64_t)((int64_t)n >> 63);
}
static inline uint64_t partial_unzigzag(uint64_t n)
{
    return n >> 1 ^ -(n & 1);
}

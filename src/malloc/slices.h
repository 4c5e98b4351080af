/*
 * slices.h: sets of a macro-block's slices, as 128 bits: bit i is slice i.
 */
#pragma once

#include <stdint.h>

#include "malloc/macro.h"

typedef unsigned __int128 slice_bits;

static inline slice_bits bits_of(const uint64_t *words)
{
    return (slice_bits)words[1] << 64 | words[0];
}

static inline void bits_store(uint64_t *words, slice_bits bits)
{
    words[0] = (uint64_t)bits;
    words[1] = (uint64_t)(bits >> 64);
}

/* Where there is no instruction for it, the compiler's library would be called, at the far end of our code. */
static inline unsigned word_count(uint64_t word)
{
    word -= word >> 1 & UINT64_C(0x5555555555555555);
    word = (word & UINT64_C(0x3333333333333333)) + (word >> 2 & UINT64_C(0x3333333333333333));
    word = (word + (word >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (unsigned)(word * UINT64_C(0x0101010101010101) >> 56);
}

static inline unsigned bits_count(slice_bits bits)
{
    return word_count((uint64_t)bits) + word_count((uint64_t)(bits >> 64));
}

/* The lowest; there is one. */
static inline unsigned bits_first(slice_bits bits)
{
    uint64_t low = (uint64_t)bits;
    return low ? (unsigned)__builtin_ctzll(low)
               : 64 + (unsigned)__builtin_ctzll((uint64_t)(bits >> 64));
}

/* The highest; there is one. */
static inline unsigned bits_last(slice_bits bits)
{
    uint64_t high = (uint64_t)(bits >> 64);
    return high ? 127 - (unsigned)__builtin_clzll(high)
                : 63 - (unsigned)__builtin_clzll((uint64_t)bits);
}

/* n slices in a row, at least one, all of them of the macro-block. By words: a shift of 128 bits by any number takes a dozen instructions. */
static inline slice_bits bits_run(unsigned first, unsigned n)
{
    unsigned last = first + n - 1;
    uint64_t from = ~UINT64_C(0) << first % 64, to = ~UINT64_C(0) >> (63 - last % 64);
    if (last < 64)
        return from & to;
    return first < 64 ? (slice_bits)to << 64 | from : (slice_bits)(from & to) << 64;
}

/* Is slice i one of them? There is none after the last. */
static inline bool words_have(const uint64_t *words, unsigned i)
{
    return i < MACRO_SLICES && (words[i / 64] >> i % 64 & 1);
}

/* Of both. */
static inline bool words_both_have(const uint64_t *words, const uint64_t *others, unsigned i)
{
    return i < MACRO_SLICES && ((words[i / 64] & others[i / 64]) >> i % 64 & 1);
}

/* Of the run of ones around slice i, which is one of them: its first slice, and the one after its last. Slice 0 is never free, so
 * a run of free ones begins after it. */
static inline unsigned run_begin(slice_bits bits, unsigned i)
{
    uint64_t low = ~(uint64_t)bits, high = ~(uint64_t)(bits >> 64);
    uint64_t below = (UINT64_C(1) << i % 64) - 1;
    if (i < 64)
        low &= below;
    else if (high & below)
        return 128 - (unsigned)__builtin_clzll(high & below);
    return low ? 64 - (unsigned)__builtin_clzll(low) : 0;
}

static inline unsigned run_end(slice_bits bits, unsigned i)
{
    uint64_t low = ~(uint64_t)bits, high = ~(uint64_t)(bits >> 64);
    uint64_t from = ~UINT64_C(0) << i % 64;
    if (i >= 64)
        high &= from;
    else if (low & from)
        return (unsigned)__builtin_ctzll(low & from);
    return high ? 64 + (unsigned)__builtin_ctzll(high) : MACRO_SLICES;
}

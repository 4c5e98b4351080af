/* Bits in bytes, the low ones first, for packed chunks. The reader trusts nothing: past the end it gives
 * zeros and remembers that it did. */
#pragma once

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- writing: the caller has made sure that there is room ---- */

struct bit_writer {
    uint8_t *to;
    size_t len;      /* whole bytes written */
    uint64_t held;   /* bits not yet written, the low `n_held` of it */
    unsigned n_held; /* below 8 between calls */
};

/* The low `n` bits of `value`, at most 56; the others must be 0. */
static inline void bits_put_short(struct bit_writer *w, uint64_t value, unsigned n)
{
    w->held |= value << w->n_held;
    w->n_held += n;
    for (; w->n_held >= 8; w->n_held -= 8, w->held >>= 8)
        w->to[w->len++] = (uint8_t)w->held;
}

/* The same, up to 64. */
static inline void bits_put(struct bit_writer *w, uint64_t value, unsigned n)
{
    if (n > 32) {
        bits_put_short(w, value & UINT32_MAX, 32);
        value >>= 32;
        n -= 32;
    }
    bits_put_short(w, value, n);
}

/* Fill the last byte with zeros; the length in bytes. */
static inline size_t bits_finish(struct bit_writer *w)
{
    if (w->n_held)
        w->to[w->len++] = (uint8_t)w->held;
    w->n_held = 0;
    return w->len;
}

/* ---- reading ---- */

struct bit_reader {
    const uint8_t *from;
    size_t len, at; /* bytes, and how many of them were taken into `held` */
    uint64_t held;
    unsigned n_held;
    bool past_end;
};

static inline void bits_fill(struct bit_reader *r)
{
    while (r->n_held <= 56 && r->at < r->len) {
        r->held |= (uint64_t)r->from[r->at++] << r->n_held;
        r->n_held += 8;
    }
}

/* `n` bits, at most 56. */
static inline uint64_t bits_get_short(struct bit_reader *r, unsigned n)
{
    if (r->n_held < n) {
        bits_fill(r);
        if (r->n_held < n) {
            r->past_end = true;
            r->held = 0;
            r->n_held = 0;
            return 0;
        }
    }
    uint64_t value = r->held & ((UINT64_C(1) << n) - 1);
    r->held >>= n;
    r->n_held -= n;
    return value;
}

static inline uint64_t bits_get(struct bit_reader *r, unsigned n)
{
    if (n <= 32)
        return bits_get_short(r, n);
    uint64_t low = bits_get_short(r, 32);
    return low | bits_get_short(r, n - 32) << 32;
}

/* How many ones stand before the first zero, which is taken too; at most `limit` (below 32), after
 * which no zero follows. */
static inline unsigned bits_get_ones(struct bit_reader *r, unsigned limit)
{
    bits_fill(r);
    uint64_t flipped = ~r->held;
    unsigned n = (unsigned)__builtin_ctzll(flipped | UINT64_C(1) << limit);
    unsigned used = n < limit ? n + 1 : limit;
    bits_get_short(r, used);
    return n;
}

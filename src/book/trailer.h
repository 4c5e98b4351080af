/*
 * trailer.h: what a tracked heap block carries, and how anybody finds it again.
 *
 * libmemoir-track asks the program's allocator for 16 bytes more and keeps two words there, in the last
 * bytes of the block's usable size. So a block's address and alignment are the allocator's own, nothing
 * has to be looked up when it is freed, and whoever can read the memory of the process finds all its live
 * blocks by looking at every multiple of 8: a trailer names the start of its block, the bytes asked, the
 * site and the time, and is bound to its own address by a check. It is cleared when the block is freed.
 *
 *   word 0   bits  0-43  bytes asked
 *            bits 44-63  number of the site in the book (0: unknown)
 *   word 1   bits  0-27  check
 *            bits 28-35  pad: words of 8 bytes between the asked bytes (rounded up to words) and the
 *                        trailer; 255: as many as the word before the trailer says, 255 or more
 *            bit  36     sampled: the block is in the book's table of blocks, too
 *            bits 37-63  time, in units of 2^27 ns (134 ms) since header.created_monotonic_ns;
 *                        2^27 - 1 means then or later (208 days)
 *
 * The check is a hash over the trailer's address, both words and header.trailer_key, plus the generation
 * of the process: a child made by fork has its parent's key and the next generation, so it tells its own
 * blocks from those that it inherited, which its book counts as one figure and whose sites are its
 * parent's. A word pair of garbage passes by chance once in 2^28 (for each generation); the rest of what
 * it says has to make sense as well: see book_trailer_read().
 *
 * The words are a stranger's. Nothing here looks at memory but the words that it is given.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    BOOK_TRAILER_FORMAT = 1, /* in header.trailer_format; 0: the process has none */
    BOOK_TRAILER_BYTES = 16,
    BOOK_TRAILER_TIME_SHIFT = 27,
    BOOK_TRAILER_TIME_MAX = (1 << 27) - 1,
    BOOK_TRAILER_PAD_FAR = 255,
    BOOK_TRAILER_CHECK_BITS = 28,
    BOOK_TRAILER_GENERATIONS_MAX = 1 << 16, /* forks of forks; beyond it nothing is tracked */
};
#define BOOK_TRAILER_SIZE_MAX   ((UINT64_C(1) << 44) - 1)
#define BOOK_TRAILER_CHECK_MASK ((UINT64_C(1) << BOOK_TRAILER_CHECK_BITS) - 1)

/* How the trailers of one process are made; from its book. */
struct book_trailer_key {
    uint64_t key;
    uint32_t generation;
};

struct book_trailer {
    uint64_t start; /* address of the block */
    uint64_t bytes; /* asked */
    uint32_t site;
    uint32_t time;      /* in units of 2^27 ns */
    bool sampled;       /* look for it in the table of blocks */
    bool inherited;     /* made by an ancestor: site and time are of its book, */
    uint32_t ancestors; /* so many forks ago */
};

/* Bytes to ask an allocator for, so that a block of `bytes` has room. Does not overflow below 2^63. */
static inline uint64_t book_trailer_request(uint64_t bytes)
{
    return ((bytes + 7) & ~UINT64_C(7)) + BOOK_TRAILER_BYTES;
}

/* Address of the trailer of a block with so many usable bytes, 16 or more. */
static inline uint64_t book_trailer_place(uint64_t start, uint64_t usable)
{
    return (start + usable - BOOK_TRAILER_BYTES) & ~UINT64_C(7);
}

/* Words between the asked bytes and the trailer. */
static inline uint64_t book_trailer_pad(uint64_t start, uint64_t at, uint64_t bytes)
{
    return (at - start - ((bytes + 7) & ~UINT64_C(7))) >> 3;
}

/* Bytes that the program may use of a block whose trailer is there. */
static inline uint64_t book_trailer_usable(uint64_t start, uint64_t at, uint64_t bytes)
{
    return at - start - (book_trailer_pad(start, at, bytes) >= BOOK_TRAILER_PAD_FAR ? 8 : 0);
}

static inline uint64_t book_trailer_hash(uint64_t key, uint64_t at, uint64_t word0, uint64_t word1)
{
    uint64_t said = (word0 + (word1 & ~BOOK_TRAILER_CHECK_MASK)) ^ UINT64_C(0x9e3779b97f4a7c15);
    unsigned __int128 product = (unsigned __int128)(at + key) * said;
    return ((uint64_t)product ^ (uint64_t)(product >> 64)) >> (64 - BOOK_TRAILER_CHECK_BITS);
}

/* Word 1 for a block; `time` and `pad` must be within their limits. */
static inline uint64_t book_trailer_seal(struct book_trailer_key k, uint64_t at, uint64_t word0,
                                         uint64_t pad, uint32_t time, bool sampled)
{
    uint64_t word1 = (uint64_t)time << 37 | (uint64_t)sampled << 36 | pad << 28;
    if (__builtin_expect((word0 | word1) == 0, 0))
        word1 = UINT64_C(1) << 37; /* memory is full of zeros: they are no trailer */
    uint64_t check = book_trailer_hash(k.key, at, word0, word1) + k.generation;
    return word1 | (check & BOOK_TRAILER_CHECK_MASK);
}

/* Store a trailer at `at` (also as an address: it may be a copy elsewhere). words[-1] is used if the
 * pad is far. The site has 20 bits, `bytes` 44. */
static inline void book_trailer_write(uint64_t *words, struct book_trailer_key k, uint64_t at,
                                      uint64_t start, uint64_t bytes, uint32_t site, uint32_t time,
                                      bool sampled)
{
    uint64_t pad = book_trailer_pad(start, at, bytes);
    if (__builtin_expect(pad >= BOOK_TRAILER_PAD_FAR, 0)) {
        words[-1] = pad;
        pad = BOOK_TRAILER_PAD_FAR;
    }
    words[0] = bytes | (uint64_t)site << 44;
    words[1] = book_trailer_seal(k, at, words[0], pad, time, sampled);
}

static inline uint64_t book_trailer_bytes(uint64_t word0)
{
    return word0 & BOOK_TRAILER_SIZE_MAX;
}

static inline uint32_t book_trailer_site(uint64_t word0)
{
    return (uint32_t)(word0 >> 44);
}

static inline bool book_trailer_sampled(uint64_t word1)
{
    return word1 >> 36 & 1;
}

static inline uint32_t book_trailer_time(uint64_t word1)
{
    return (uint32_t)(word1 >> 37);
}

/* How many generations ago these words were made a trailer at that address: 0 by this process; -1 if
 * they are none. */
static inline int32_t book_trailer_age(struct book_trailer_key k, uint64_t at, uint64_t word0,
                                       uint64_t word1)
{
    uint64_t made = (word1 - book_trailer_hash(k.key, at, word0, word1)) & BOOK_TRAILER_CHECK_MASK;
    if ((word0 | word1 >> BOOK_TRAILER_CHECK_BITS) == 0 || made == 0 || made > k.generation)
        return -1;
    return (int32_t)(k.generation - (uint32_t)made);
}

/* The same as a question: of this process itself? For who frees a block, and is in a hurry: zeros may pass, once in
 * 2^28 times. */
static inline bool book_trailer_own(struct book_trailer_key k, uint64_t at, uint64_t word0,
                                    uint64_t word1)
{
    uint64_t made = word1 - book_trailer_hash(k.key, at, word0, word1);
    return (made & BOOK_TRAILER_CHECK_MASK) == k.generation;
}

/* For the owner, who knows where the block starts: is this its trailer? As book_trailer_age(). */
static inline int32_t book_trailer_check(struct book_trailer_key k, uint64_t start, uint64_t at,
                                         const uint64_t words[2])
{
    uint64_t bytes = book_trailer_bytes(words[0]);
    uint64_t pad = words[1] >> 28 & 0xff;
    if (bytes > at - start)
        return -1;
    uint64_t real = book_trailer_pad(start, at, bytes);
    if (pad != (real < BOOK_TRAILER_PAD_FAR ? real : BOOK_TRAILER_PAD_FAR))
        return -1;
    return book_trailer_age(k, at, words[0], words[1]);
}

/* For anybody: what the words at address `at` (a multiple of 8) say. words[-1] must be readable. False
 * if they are no trailer, or one whose block would begin before `lowest`, the start of the mapping. The
 * caller checks the site against the book. */
static inline bool book_trailer_read(struct book_trailer_key k, uint64_t at, const uint64_t *words,
                                     uint64_t lowest, struct book_trailer *ret)
{
    int32_t age = book_trailer_age(k, at, words[0], words[1]);
    if (__builtin_expect(age < 0, 1))
        return false;
    uint64_t bytes = book_trailer_bytes(words[0]);
    uint64_t pad = words[1] >> 28 & 0xff;
    if (pad == BOOK_TRAILER_PAD_FAR) {
        pad = words[-1];
        if (pad < BOOK_TRAILER_PAD_FAR || pad > BOOK_TRAILER_SIZE_MAX)
            return false;
    }
    uint64_t behind = ((bytes + 7) & ~UINT64_C(7)) + pad * 8;
    if (at < lowest || behind > at - lowest)
        return false;
    *ret = (struct book_trailer){
        .start = at - behind,
        .bytes = bytes,
        .site = book_trailer_site(words[0]),
        .time = book_trailer_time(words[1]),
        .sampled = book_trailer_sampled(words[1]),
        .inherited = age > 0,
        .ancestors = (uint32_t)age,
    };
    return true;
}

/*
 * words.h: what accounting keeps of each block: beside it, not in it.
 *
 * A slab whose blocks are accounted has an array of words, one of 6 bytes for each block, so that sizes and addresses are what they
 * are without accounting. The number of a block comes from its place by a multiplication. Arrays lie in lots (lots.h), which are
 * mapped for them alone: they are packed there, go back with their slab, and serve the next one that needs as many. The word of a large
 * block is in its descriptor. Huge blocks carry a trailer (book/trailer.h) in the last bytes of their pages.
 *
 *   low    bits  0-12  time, see word_time_pack()
 *          bits 13-31  number of the site in the book
 *   high   bits  0-5   generation of the process that made the block (book/trailer.h); 0: no block. What is left of the word is then
 *                      of the block that was freed there last: so a second free is known
 *          bit   6     odd: some of the bits above mean something else
 *          bits  7-15  slack: bytes between the asked ones and the block's end
 *
 *   odd    bits  7-13  slack
 *          bit  14     far: instead, the bytes asked stand in the last 4 of the block, and the program is not told of the last 8
 *          bit  15     sampled: the block is in the book's table of blocks, too
 *
 * Who allocates a block stores its low half, then the high one, with release; who frees it clears the generation. A block that is given out without
 * being accounted has no word: all of it is cleared. Whoever may read the memory of the
 * process finds all arrays by the descriptors of slabs (root.h). For him the words are a stranger's: word_read() believes nothing.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"
#include "book/trailer.h"
#include "malloc/lots.h"
#include "malloc/macro.h"

enum {
    WORD_SITE_SHIFT = 13,
    WORD_SITES = 1 << 19,
    WORD_TIME_FRACTION = 8,    /* bits of a time behind its leading one */
    WORD_GENERATIONS_MAX = 64, /* forks of forks; beyond it nothing is accounted */
    WORD_GENERATION_MASK = WORD_GENERATIONS_MAX - 1,
    WORD_ODD = 1 << 6,
    WORD_SLACK_SHIFT = 7,
    WORD_SLACK_MAX = (1 << 9) - 1,
    WORD_ODD_SLACK_MAX = (1 << 7) - 1,
    WORD_FAR = 1 << 14,
    WORD_SAMPLED = 1 << 15,
    WORD_FAR_BYTES = 8,
    WORD_NEAR_MAX = WORD_ODD_SLACK_MAX, /* a block of so many bytes is never far */
};
static_assert(WORD_SITE_SHIFT >= 5 + WORD_TIME_FRACTION, "the power of a time has 5 bits");

/* ---- one word ---- */

/* 13 bits for 26, with a relative error of 1 in 256 at most (book/trailer.h). */
static inline uint32_t word_time_pack(uint32_t time)
{
    return book_time_pack(time, WORD_TIME_FRACTION);
}

static inline uint32_t word_time_unpack(uint32_t packed)
{
    return book_time_unpack(packed, WORD_TIME_FRACTION);
}

/* Does the block itself tell how much was asked? */
static inline bool word_is_far(struct word word)
{
    return (word.high & (WORD_ODD | WORD_FAR)) == (WORD_ODD | WORD_FAR);
}

/* What a word says of a block of `room` bytes at `start`. `far`: what stands in the last 4 bytes of it, if word_is_far(). False if it
 * is no word of such a block. */
static inline bool word_read(struct word word, uint32_t generation, uint64_t start, uint64_t room,
                             uint64_t far, struct book_trailer *ret)
{
    uint32_t made = word.high & WORD_GENERATION_MASK;
    uint64_t slack = word.high >> WORD_SLACK_SHIFT;
    bool odd = word.high & WORD_ODD, is_far = word_is_far(word);
    if (odd)
        slack &= WORD_ODD_SLACK_MAX;
    uint64_t bytes = is_far ? far : room - slack;
    uint32_t time = word.low & ((1 << WORD_SITE_SHIFT) - 1);
    if (made == 0 || made > generation || bytes > room ||
        time > word_time_pack(BOOK_TRAILER_TIME_MAX))
        return false;
    *ret = (struct book_trailer){
        .start = start,
        .bytes = bytes,
        .usable = is_far ? room - WORD_FAR_BYTES : room,
        .site = word.low >> WORD_SITE_SHIFT,
        .time = word_time_unpack(time),
        .sampled = odd && (word.high & WORD_SAMPLED),
        .inherited = made < generation,
        .ancestors = generation - made,
    };
    return true;
}

/* ---- words of slabs ---- */

/* One multiplication of a block's distance from the start of its slab tells both: its upper half is the number of the block, and so of its
 * word; the lower half is smaller than the factor where a block starts, and only there (size_divides()). */

/* For slab.magic: 2^32 divided by the size of the blocks, rounded up. test_malloc_words.c tries all sizes at all places. */
static inline uint32_t words_magic(uint32_t block_bytes)
{
    return (uint32_t)(((UINT64_C(1) << 32) + block_bytes - 1) / block_bytes);
}

/* That product, for an address in a slab that has words with this magic. */
static inline __attribute__((always_inline)) uint64_t words_product(uint32_t magic,
                                                                    const struct slab *s,
                                                                    const void *block)
{
    return (uint64_t)slab_distance(s, block) * magic;
}

/* Does a block start there? */
static inline bool words_starts(uint32_t magic, uint64_t product)
{
    return (uint32_t)product < magic;
}

/* The word of a block of a slab that has `words`. For an address that is no block's this may be no word's, but is in the array. */
static inline __attribute__((always_inline)) struct word *words_at(struct word *words,
                                                                   const struct slab *s,
                                                                   const void *block)
{
    return &words[words_product(load_relaxed(&s->magic), s, block) >> 32];
}

/* Bytes of an array; two words more, for an address that is no block's, in what is left over at the end of a slab. */
static inline size_t words_bytes(const struct slab *s)
{
    static_assert((SLICE_BYTES / SIZE_STEP + 2) * sizeof(struct word) <= LOT_ARRAY_MAX,
                  "the smallest blocks");
    return ((size_t)s->limit + 2) * sizeof(struct word);
}

/* The word of a block that starts in a macro-block; NULL: it has none. */
static inline struct word *words_find(const void *block)
{
    struct slab *s = slab_of(block);
    if (s->class == SLAB_LARGE)
        return &s->large_word;
    struct word *words = load_acquire(&s->words);
    return words && s->class < SIZE_CLASSES ? words_at(words, s, block) : NULL;
}

/* Give a slab its words, if it has none. Any thread that has a block of it, or its owner. False: no memory. */
bool words_attach(struct slab *s);

/* Take them from a slab of which no block is in use. */
void words_detach_now(struct slab *s);

static inline void words_detach(struct slab *s)
{
    if (__builtin_expect(s->words != NULL, 0))
        words_detach_now(s);
}

/* The slab begins anew, with blocks of that size. */
static inline void words_begin(struct slab *s, uint32_t block_bytes)
{
    if (__builtin_expect(s->words != NULL, 0) && s->block_bytes != block_bytes)
        words_detach_now(s);
}

/* ---- a block of a macro-block's, by who has it ---- */

/* Store what it is. `low`: site and time. False if it has no word. */
bool words_put(void *block, size_t bytes, uint32_t low, uint32_t generation, bool sampled);

/* Take its word away: where it was, what it was, and what it says; NULL: it has none, or is not known. */
struct word *words_take(void *block, uint32_t generation, struct word *ret_word,
                        struct book_trailer *ret);

/* A block that is given out, and may not be accounted, is not the one that was freed there. */
void words_forget(void *block);

/* Was the block freed, and nothing given out there since? */
static inline bool word_is_freed(struct word word)
{
    return (word.high & WORD_GENERATION_MASK) == 0 && (word.low || word.high);
}

/* How many bytes at its end are not the program's. */
size_t words_inside(const void *block);

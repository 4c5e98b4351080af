/*
 * trailer.h: what a tracked heap block carries, and how anybody finds it again.
 *
 * libmemoir-track asks the program's allocator for a few bytes more and keeps a word or two there, in the
 * last bytes of the block's usable size. So a block's address and alignment are the allocator's own, nothing
 * has to be looked up when it is freed, and whoever can read the memory of the process finds all its live
 * blocks by looking at every multiple of 8: a trailer names the start of its block, the bytes asked, the
 * site and the time, and is bound to its own address by a check. It is cleared when the block is freed.
 *
 * Small blocks are most blocks, and allocators round sizes up: one word often fits into what they would give
 * anyway. So there are two forms, told apart by the highest bit of the last word. Short, for blocks up to 1,016
 * bytes of the first 16,384 sites:
 *
 *   word     bits  0-21  check
 *            bits 22-26  slack: bytes between the asked bytes and the trailer, 0 to 31
 *            bits 27-33  extent: words of 8 bytes between the block's start and the trailer
 *            bits 34-48  time, see book_trailer_time_pack()
 *            bits 49-62  number of the site in the book (0: unknown)
 *            bit  63     1
 *
 * Long, for all others:
 *
 *   word 0   bits  0-43  bytes asked
 *            bits 44-63  number of the site
 *   word 1   bits  0-27  check
 *            bits 28-35  pad: words of 8 bytes between the asked bytes (rounded up to words) and the
 *                        trailer; 255: as many as the word before the trailer says, 255 or more
 *            bit  36     sampled: the block is in the book's table of blocks, too
 *            bits 37-62  time, in units of 2^27 ns (134 ms) since header.created_monotonic_ns;
 *                        2^26 - 1 means then or later (104 days)
 *            bit  63     0
 *
 * The check is a hash over the trailer's address, its words and header.trailer_key, and the generation
 * of the process: a child made by fork has its parent's key and the next generation, so it tells its own
 * blocks from those that it inherited, which its book counts as one figure and whose sites are its
 * parent's. Garbage passes by chance once in 2^22 words that look short, and 2^28 pairs that look long (for each
 * generation); the rest of what it says has to make sense as well: see book_trailer_read(). Where the allocator
 * is glibc's (BOOK_TRAILER_FORMAT_GLIBC), the word before a short block tells its size once more.
 *
 * Where glibc has no byte to spare, a word more makes a small block larger: by a quarter, and it then comes
 * from another of glibc's lists, so that blocks lie in another order than without us. So in most of glibc's
 * heap (BOOK_TRAILER_FORMAT_BESIDE) blocks up to 984 bytes have their words in an array beside: 8 bytes for
 * each 32 bytes of address space from header.beside_heap on. No two blocks begin within 32 bytes, so each
 * has its own word. The address of a block and the word that glibc keeps before it tell whether it is one of
 * these. Only the tracker writes there, so there is no check. 0 is no block.
 *
 *   word     bits  0-15  generation of the process that made it
 *            bits 16-21  upper bits of the number of the site
 *            bit  22     sampled
 *            bits 23-32  bytes asked
 *            bit  33     1: the block begins in the second half of its 32 bytes
 *            bits 34-48  time, and 49-62 lower bits of the site, both as in a short trailer
 *            bit  63     1
 *
 * The words are a stranger's. Nothing here looks at memory but the words that it is given.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    /* In header.trailer_format; 0: the process has none, 1: an older form. */
    BOOK_TRAILER_FORMAT = 2,
    BOOK_TRAILER_FORMAT_GLIBC = 3, /* the same in blocks of glibc's: book_trailer_chunk_fits() */
    /* 4: words beside for blocks up to 56 bytes only. */
    BOOK_TRAILER_FORMAT_WORDS =
        5, /* those of huge blocks of libmemoir-malloc's; others have words: malloc/words.h */
    BOOK_TRAILER_FORMAT_BESIDE = 6, /* as _GLIBC, and small blocks have words beside */

    BOOK_TRAILER_TIME_SHIFT = 27,
    BOOK_TRAILER_TIME_MAX = (1 << 26) - 1,

    BOOK_TRAILER_SHORT_BYTES = 8,
    BOOK_TRAILER_SHORT_MAX = 984, /* blocks up to this size are asked for with room for no more */
    BOOK_TRAILER_SHORT_EXTENT_MAX = 127 * 8,
    BOOK_TRAILER_SHORT_SITES = 1 << 14,
    BOOK_TRAILER_SHORT_CHECK_BITS = 22,
    BOOK_TRAILER_SLACK_SHIFT = 22,
    BOOK_TRAILER_SLACK_MAX = 31,
    BOOK_TRAILER_SHORT_TIME_SHIFT = 34,
    BOOK_TRAILER_SHORT_SITE_SHIFT = 49,
    BOOK_TRAILER_TIME_FRACTION = 11, /* bits of a short time behind its leading one */

    BOOK_TRAILER_LONG_BYTES = 16,
    BOOK_TRAILER_LONG_SITE_SHIFT = 44,
    BOOK_TRAILER_PAD_FAR = 255,
    BOOK_TRAILER_CHECK_BITS = 28,

    BOOK_TRAILER_GENERATIONS_MAX = 1 << 16, /* forks of forks; beyond it nothing is tracked */

    BOOK_BESIDE_GRAIN = 32,      /* bytes of the heap for a word */
    BOOK_BESIDE_CHUNK_MAX = 992, /* glibc's size of a block that has its word beside, */
    BOOK_BESIDE_BYTES_MAX = 984, /* and the most that it can hold */
    BOOK_BESIDE_SITE_SHIFT = 16,
    BOOK_BESIDE_SITE_BITS = 6,
    BOOK_BESIDE_SAMPLED = 1 << 22,
    BOOK_BESIDE_BYTES_SHIFT = 23,
    BOOK_BESIDE_BYTES_MASK = 1023,
    /* In the word of a block that this process made and that is not sampled, these bits are the
     * generation, whatever its site. */
    BOOK_BESIDE_PLAIN_MASK = BOOK_BESIDE_SAMPLED | ((1 << BOOK_BESIDE_SITE_SHIFT) - 1),
    /* The same if its site is one of the first BOOK_TRAILER_SHORT_SITES as well. */
    BOOK_BESIDE_USUAL_MASK = (1 << BOOK_BESIDE_BYTES_SHIFT) - 1,
};
/* Allocators give more than was asked for: whatever slack can be told, the extent can be. */
_Static_assert((int)BOOK_TRAILER_SHORT_MAX + (int)BOOK_TRAILER_SLACK_MAX <=
                   (int)BOOK_TRAILER_SHORT_EXTENT_MAX,
               "who looks at the slack of a block need not look at its extent");
_Static_assert((int)BOOK_BESIDE_BYTES_MAX == (int)BOOK_TRAILER_SHORT_MAX,
               "a block with a word beside has a short trailer elsewhere");
#define BOOK_BESIDE_SECOND_HALF       (UINT64_C(1) << 33)
#define BOOK_TRAILER_SIZE_MAX         ((UINT64_C(1) << 44) - 1)
#define BOOK_TRAILER_CHECK_MASK       ((UINT64_C(1) << BOOK_TRAILER_CHECK_BITS) - 1)
#define BOOK_TRAILER_SHORT_CHECK_MASK ((UINT64_C(1) << BOOK_TRAILER_SHORT_CHECK_BITS) - 1)
#define BOOK_TRAILER_SHORT_MARK       (UINT64_C(1) << 63)

/* How the trailers of one process are made; from its book. */
struct book_trailer_key {
    uint64_t key;
    uint32_t generation;
};

struct book_trailer {
    uint64_t start;  /* address of the block */
    uint64_t bytes;  /* asked */
    uint64_t usable; /* what the program may use of it */
    uint32_t site;
    uint32_t time;      /* in units of 2^27 ns */
    bool is_short;      /* one word; else two */
    bool sampled;       /* look for it in the table of blocks */
    bool inherited;     /* made by an ancestor: site and time are of its book, */
    uint32_t ancestors; /* so many forks ago */
};

static inline bool book_trailer_known(uint32_t format)
{
    return format == BOOK_TRAILER_FORMAT || format == BOOK_TRAILER_FORMAT_GLIBC ||
           format == BOOK_TRAILER_FORMAT_WORDS || format == BOOK_TRAILER_FORMAT_BESIDE;
}

/* Are its blocks glibc's? */
static inline bool book_trailer_glibc(uint32_t format)
{
    return format == BOOK_TRAILER_FORMAT_GLIBC || format == BOOK_TRAILER_FORMAT_BESIDE;
}

/* Are they libmemoir-malloc's, most of which have words beside them? */
static inline bool book_trailer_words(uint32_t format)
{
    return format == BOOK_TRAILER_FORMAT_WORDS;
}

/* ---- room ---- */

static inline uint64_t book_trailer_whole_words(uint64_t bytes)
{
    return (bytes + 7) & ~UINT64_C(7);
}

/* Bytes to ask an allocator for, so that a block of `bytes` has room: for a long trailer, or for one that is
 * short if it can be. Does not overflow below 2^63. */
static inline uint64_t book_trailer_request_long(uint64_t bytes)
{
    return book_trailer_whole_words(bytes) + BOOK_TRAILER_LONG_BYTES;
}

static inline uint64_t book_trailer_request(uint64_t bytes)
{
    return bytes <= BOOK_TRAILER_SHORT_MAX
               ? book_trailer_whole_words(bytes) + BOOK_TRAILER_SHORT_BYTES
               : book_trailer_request_long(bytes);
}

/* Address of the last word of a block with so many usable bytes, 8 or more: there a trailer ends. */
static inline uint64_t book_trailer_place(uint64_t start, uint64_t usable)
{
    return (start + usable - sizeof(uint64_t)) & ~UINT64_C(7);
}

/* ---- times ---- */

/* As a power and a fraction of so many bits, which tells the relative error at most: 1 in 2 to that. Never later than it was. A larger
 * time has a larger number. */
static inline uint32_t book_time_pack(uint32_t time, unsigned fraction_bits)
{
    uint32_t above = time >> fraction_bits;
    if (above == 0)
        return time;
    uint32_t power = 31 - (uint32_t)__builtin_clz(above);
    uint32_t fraction = (time >> power) - (UINT32_C(1) << fraction_bits);
    return (power + 1) << fraction_bits | fraction;
}

static inline uint32_t book_time_unpack(uint32_t packed, unsigned fraction_bits)
{
    uint32_t power = packed >> fraction_bits, whole = UINT32_C(1) << fraction_bits;
    uint32_t fraction = packed & (whole - 1);
    return power == 0 ? fraction : (fraction + whole) << (power - 1);
}

/* Of short trailers: 15 bits for 26, with a relative error of 1 in 2,048 at most. */
static inline uint32_t book_trailer_time_pack(uint32_t time)
{
    return book_time_pack(time, BOOK_TRAILER_TIME_FRACTION);
}

static inline uint32_t book_trailer_time_unpack(uint32_t packed)
{
    return book_time_unpack(packed, BOOK_TRAILER_TIME_FRACTION);
}

/* ---- short ---- */

/* The parts of a short trailer that do not change from block to block. */
static inline uint64_t book_trailer_short_stamp(uint32_t time)
{
    return (uint64_t)book_trailer_time_pack(time) << BOOK_TRAILER_SHORT_TIME_SHIFT;
}

static inline uint64_t book_trailer_short_site(uint32_t site, uint32_t generation)
{
    return BOOK_TRAILER_SHORT_MARK | (uint64_t)site << BOOK_TRAILER_SHORT_SITE_SHIFT | generation;
}

/* The last bits of a short trailer at that address. `said` is all the rest of it, with the generation in their
 * place. */
static inline uint64_t book_trailer_short_check(uint64_t key, uint64_t at, uint64_t said)
{
    return (at + key) * said >> (64 - BOOK_TRAILER_SHORT_CHECK_BITS);
}

/* The whole word: the generation is crossed with the check. */
static inline uint64_t book_trailer_short_seal(uint64_t key, uint64_t at, uint64_t said)
{
    return said ^ book_trailer_short_check(key, at, said);
}

static inline bool book_trailer_short_sealed(uint64_t key, uint32_t generation, uint64_t at,
                                             uint64_t word)
{
    uint64_t said = (word & ~BOOK_TRAILER_SHORT_CHECK_MASK) | generation;
    uint64_t check = book_trailer_short_check(key, at, said);
    return ((word ^ check) & BOOK_TRAILER_SHORT_CHECK_MASK) == generation;
}

static inline uint64_t book_trailer_short_extent(uint64_t word)
{
    return (word >> 24) & (127 << 3);
}

static inline uint64_t book_trailer_short_slack(uint64_t word)
{
    return (word >> BOOK_TRAILER_SLACK_SHIFT) & BOOK_TRAILER_SLACK_MAX;
}

/* Extent and slack in their places. The extent is a multiple of 8. */
static inline uint64_t book_trailer_short_shape(uint64_t extent, uint64_t slack)
{
    return (extent * 4 + slack) << BOOK_TRAILER_SLACK_SHIFT;
}

/* Can it be short, with a trailer so far from its start? */
static inline bool book_trailer_short_fits(uint64_t extent, uint64_t bytes, uint32_t site)
{
    return extent - bytes <= BOOK_TRAILER_SLACK_MAX && extent <= BOOK_TRAILER_SHORT_EXTENT_MAX &&
           site < BOOK_TRAILER_SHORT_SITES;
}

/* Does the word that glibc keeps before a block agree? Its lowest bits are flags; 2 is set for a mapping. */
static inline bool book_trailer_chunk_fits(uint64_t chunk, uint64_t usable)
{
    return (chunk & ~UINT64_C(5)) == usable + 2 * sizeof(uint64_t);
}

/* ---- long ---- */

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

/* ---- beside ---- */

/* Of a block that begins at `distance` bytes from header.beside_heap, or at 8 more. */
static inline uint64_t book_beside_offset(uint64_t distance)
{
    return distance / BOOK_BESIDE_GRAIN * sizeof(uint64_t);
}

static inline uint64_t book_beside_shape(uint64_t start, uint64_t bytes)
{
    return (bytes + (start & 16) * 64) << BOOK_BESIDE_BYTES_SHIFT;
}

/* The parts of a word that do not change from block to block of a site. The site has 20 bits. */
static inline uint64_t book_beside_site(uint32_t site, uint32_t generation)
{
    uint64_t low = site % BOOK_TRAILER_SHORT_SITES, high = site / BOOK_TRAILER_SHORT_SITES;
    return book_trailer_short_site((uint32_t)low, generation) | high << BOOK_BESIDE_SITE_SHIFT;
}

/* The number of the site, below 2^20 whatever the word is. */
static inline uint32_t book_beside_site_of(uint64_t word)
{
    uint32_t high = word >> BOOK_BESIDE_SITE_SHIFT & ((1 << BOOK_BESIDE_SITE_BITS) - 1);
    uint32_t low = word >> BOOK_TRAILER_SHORT_SITE_SHIFT & (BOOK_TRAILER_SHORT_SITES - 1);
    return high * BOOK_TRAILER_SHORT_SITES + low;
}

static inline uint64_t book_beside_word(struct book_trailer_key k, uint64_t start, uint64_t bytes,
                                        uint32_t site, uint64_t stamp, bool sampled)
{
    return book_beside_site(site, k.generation) | stamp | book_beside_shape(start, bytes) |
           (sampled ? BOOK_BESIDE_SAMPLED : 0);
}

/* What a word says whose 32 bytes begin at `grain`; false if there is no block. `usable` is not told. */
static inline bool book_beside_read(struct book_trailer_key k, uint64_t word, uint64_t grain,
                                    struct book_trailer *ret)
{
    uint32_t made = word % BOOK_TRAILER_GENERATIONS_MAX;
    uint64_t bytes = word >> BOOK_BESIDE_BYTES_SHIFT & BOOK_BESIDE_BYTES_MASK;
    if (!(word & BOOK_TRAILER_SHORT_MARK) || made == 0 || made > k.generation ||
        bytes > BOOK_BESIDE_BYTES_MAX)
        return false;
    *ret = (struct book_trailer){
        .start = grain + (word & BOOK_BESIDE_SECOND_HALF ? 16 : 0),
        .bytes = bytes,
        .site = book_beside_site_of(word),
        .time = book_trailer_time_unpack(word >> BOOK_TRAILER_SHORT_TIME_SHIFT & ((1 << 15) - 1)),
        .is_short = true,
        .sampled = word & BOOK_BESIDE_SAMPLED,
        .inherited = made < k.generation,
        .ancestors = k.generation - made,
    };
    return true;
}

/* Does the word that glibc keeps before a block agree? */
static inline bool book_beside_chunk_fits(uint64_t chunk, uint64_t bytes)
{
    uint64_t size = chunk & ~UINT64_C(5);
    return size % 16 == 0 && size <= BOOK_BESIDE_CHUNK_MAX && size >= 32 &&
           bytes + sizeof(uint64_t) <= size;
}

/* ---- both forms inside ---- */

/* Store a trailer whose last word is at address `at` (`last` may be a copy elsewhere, with two more words
 * before it). False if there is room for a short one only, and it cannot be short. The site has 20 bits,
 * `bytes` 44. */
static inline bool book_trailer_write(uint64_t *last, struct book_trailer_key k, uint64_t at,
                                      uint64_t start, uint64_t bytes, uint32_t site, uint32_t time,
                                      bool sampled)
{
    uint64_t extent = at - start, first = extent - sizeof(uint64_t);
    uint64_t whole = book_trailer_whole_words(bytes);
    if (!sampled && book_trailer_short_fits(extent, bytes, site)) {
        uint64_t said = book_trailer_short_site(site, k.generation) |
                        book_trailer_short_stamp(time) |
                        book_trailer_short_shape(extent, extent - bytes);
        *last = book_trailer_short_seal(k.key, at, said);
        return true;
    }
    if (extent < whole + sizeof(uint64_t))
        return false;
    uint64_t pad = (first - whole) / 8;
    if (__builtin_expect(pad >= BOOK_TRAILER_PAD_FAR, 0)) {
        last[-2] = pad;
        pad = BOOK_TRAILER_PAD_FAR;
    }
    last[-1] = bytes | (uint64_t)site << BOOK_TRAILER_LONG_SITE_SHIFT;
    last[0] = book_trailer_seal(k, at - sizeof(uint64_t), last[-1], pad, time, sampled);
    return true;
}

/* How many generations ago was this made a trailer: 0 by this process; -1 if it is none. `last` is its last
 * word, `before` the one before it. */
static inline int32_t book_trailer_age(struct book_trailer_key k, uint64_t at, uint64_t before,
                                       uint64_t last)
{
    if (last & BOOK_TRAILER_SHORT_MARK) {
        for (uint32_t age = 0; age < k.generation; age++)
            if (book_trailer_short_sealed(k.key, k.generation - age, at, last))
                return (int32_t)age;
        return -1;
    }
    uint64_t hash = book_trailer_hash(k.key, at - sizeof(uint64_t), before, last);
    uint64_t made = (last - hash) & BOOK_TRAILER_CHECK_MASK;
    if ((before | last >> BOOK_TRAILER_CHECK_BITS) == 0 || made == 0 || made > k.generation)
        return -1;
    return (int32_t)(k.generation - (uint32_t)made);
}

/* For anybody: what the word at address `at` (a multiple of 8) says, if it is the last of a trailer. The two words
 * before it must be readable unless it is short. False if it is none, or one whose block would begin before `lowest`, the start of
 * the mapping. The caller checks the site against the book. */
static inline bool book_trailer_read(struct book_trailer_key k, uint64_t at, const uint64_t *last,
                                     uint64_t lowest, struct book_trailer *ret)
{
    bool is_short = last[0] & BOOK_TRAILER_SHORT_MARK;
    int32_t age = book_trailer_age(k, at, is_short ? 0 : last[-1], last[0]);
    if (__builtin_expect(age < 0, 1))
        return false;
    struct book_trailer t = {
        .inherited = age > 0,
        .ancestors = (uint32_t)age,
        .is_short = is_short,
    };
    uint64_t extent;
    if (is_short) {
        uint64_t slack = book_trailer_short_slack(last[0]);
        extent = book_trailer_short_extent(last[0]);
        if (slack > extent)
            return false;
        t.bytes = extent - slack;
        t.usable = extent;
        t.site = (last[0] >> BOOK_TRAILER_SHORT_SITE_SHIFT) & (BOOK_TRAILER_SHORT_SITES - 1);
        t.time =
            book_trailer_time_unpack((last[0] >> BOOK_TRAILER_SHORT_TIME_SHIFT) & ((1 << 15) - 1));
    } else {
        uint64_t pad = last[0] >> 28 & 0xff;
        bool far = pad == BOOK_TRAILER_PAD_FAR;
        if (far) {
            pad = last[-2];
            if (pad < BOOK_TRAILER_PAD_FAR || pad > BOOK_TRAILER_SIZE_MAX)
                return false;
        }
        t.bytes = last[-1] & BOOK_TRAILER_SIZE_MAX;
        extent = book_trailer_whole_words(t.bytes) + (pad + 1) * 8;
        t.usable = extent - (far ? 16 : 8);
        t.site = (uint32_t)(last[-1] >> BOOK_TRAILER_LONG_SITE_SHIFT);
        t.time = (uint32_t)(last[0] >> 37);
        t.sampled = last[0] >> 36 & 1;
    }
    if (at < lowest || extent > at - lowest)
        return false;
    t.start = at - extent;
    *ret = t;
    return true;
}

/* For the owner, who knows where the block starts, and that its last word is at `at`: is this its trailer? As
 * book_trailer_age(). Looks at no word before the start. */
static inline int32_t book_trailer_check(struct book_trailer_key k, uint64_t start, uint64_t at,
                                         const uint64_t *last, struct book_trailer *ret)
{
    bool is_short = last[0] & BOOK_TRAILER_SHORT_MARK;
    bool far = (last[0] >> 28 & 0xff) == BOOK_TRAILER_PAD_FAR;
    if (at < start || (!is_short && at - start < (far ? 16 : 8)))
        return -1;
    if (!book_trailer_read(k, at, last, start, ret) || ret->start != start)
        return -1;
    return (int32_t)ret->ancestors;
}

/*
 * range_image.h: a heap as a stream of bytes.
 *
 * A header, an item for each macro-block and each huge block in any order, and an item that ends it. After the item of a macro-block come
 * its slabs, for each slab of small blocks the bits of those that are in use (whole words, the lowest bit first), the bits of the
 * pages that follow, and these pages. After the item of a huge block come runs of pages, each after its struct image_run,
 * and a run of none. A page that is not there is zero. All has the machine's own byte order and a multiple of 8 bytes.
 *
 * There is no pointer of the allocator's in it: lists and descriptors are made anew from the bits, so whatever an image says, what comes of
 * it is a heap that is whole. Pages are the program's, and are as trustworthy as who wrote the image.
 */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "malloc/macro.h"
#include "malloc/os.h"

enum {
    IMAGE_VERSION = 2,
    IMAGE_RUN_PAGES = 512, /* in one run of a huge block, at most */
    IMAGE_MACRO_PAGES = MACRO_BYTES / 4096,
    /* A word for each 64 blocks of 16 bytes, and one more for each slab that ends within one. */
    IMAGE_WORDS_MAX = MACRO_BYTES / SIZE_STEP / 64 + MACRO_SLICES,
};
static_assert(OS_PAGE_BYTES == 4096, "as images count them");

struct image_header {
    char magic[8];
    uint32_t version;
    uint32_t bytes;       /* of this struct */
    uint64_t layout;      /* IMAGE_LAYOUT */
    uint64_t base;        /* of the slot */
    uint64_t range_bytes; /* of it */
    uint32_t slot;
    uint32_t zero;
    uint64_t root;  /* what the program gave with it: 0, or an address in the slot */
    uint64_t check; /* of all before */
};
static_assert(sizeof(struct image_header) == 64, "without holes");
#define IMAGE_MAGIC "MEMOIRIM"

/* Changes with all that the meaning of an image depends on. */
#define IMAGE_LAYOUT                                                                             \
    ((uint64_t)SIZE_CLASSES << 48 | (uint64_t)SIZE_SMALL_MAX << 28 | (uint64_t)SIZE_STEP << 20 | \
     (uint64_t)SLICE_SHIFT << 14 | (OS_PAGE_MAX / OS_PAGE_BYTES - 1) << 8 |                      \
     (uint64_t)MACRO_SLICES)

enum image_kind { IMAGE_MACRO = 1, IMAGE_HUGE = 2, IMAGE_END = 3 };

struct image_item {
    uint32_t kind;
    uint32_t n;      /* slabs of a macro-block */
    uint64_t at;     /* where it begins; of the end: items before it */
    uint64_t bytes;  /* of a huge block: mapped; of the end: check of all before */
    uint64_t asked;  /* of a huge block */
    uint64_t offset; /* of a huge block: where its data begins */
};
static_assert(sizeof(struct image_item) == 40, "without holes");

struct image_slab {
    uint8_t class; /* a size class, or SLAB_LARGE */
    uint8_t first, slices;
    uint8_t zero;
    uint32_t made;  /* small blocks that have been carved */
    uint32_t start; /* of a large block: its distance from the first slice, */
    uint32_t asked; /* and the bytes asked for */
};
static_assert(sizeof(struct image_slab) == 16, "without holes");

struct image_run {
    uint64_t first, n; /* pages from the block's beginning */
};

/* Everything of one macro-block but its pages. */
struct image_macro {
    struct image_slab slabs[MACRO_SLICES_USABLE];
    uint64_t words[IMAGE_WORDS_MAX]; /* bits of the blocks in use, slab by slab */
    uint64_t pages[IMAGE_MACRO_PAGES / 64];
};

/* A stream, in one direction. Never reads more than it is asked for: an image may be a part of something longer. */
enum { IMAGE_BUFFER = 64 << 10 };
struct image_stream {
    int fd;
    uint64_t check; /* of all that went through */
    uint64_t items;
    size_t n; /* waiting to be written */
    char buffer[IMAGE_BUFFER];
};

/* 0, or a negative errno; a stream that ends too early is -EBADMSG. */
int image_put(struct image_stream *s, const void *data, size_t bytes);
int image_flush(struct image_stream *s);
int image_get(struct image_stream *s, void *data, size_t bytes);

/* The check of a header. */
uint64_t image_header_check(const struct image_header *h);

static inline size_t image_words(uint32_t made)
{
    return (made + 63) / 64;
}

static inline int bit_is(const uint64_t *words, size_t i)
{
    return words[i / 64] >> i % 64 & 1;
}

static inline void bit_set(uint64_t *words, size_t i)
{
    words[i / 64] |= UINT64_C(1) << i % 64;
}

static inline void bit_clear(uint64_t *words, size_t i)
{
    words[i / 64] &= ~(UINT64_C(1) << i % 64);
}

/* How many bits from i on are set, of n. */
static inline size_t bits_in_row(const uint64_t *words, size_t i, size_t n)
{
    size_t from = i;
    while (i < n && bit_is(words, i))
        i++;
    return i - from;
}

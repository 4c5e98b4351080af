/* The N largest of many blocks, by a heap whose root is the smallest kept. */
#pragma once

#include <stddef.h>

#include "book/reader.h"

struct ledger_book;

struct top_block {
    struct book_block_view view;
    struct ledger_book *book; /* whose block, site and tag numbers these are */
    uint32_t account;         /* the caller's */
};

struct top_blocks {
    struct top_block *blocks; /* room for `max` */
    size_t n, max;
};

int top_blocks_init(struct top_blocks *top, size_t max);
void top_blocks_release(struct top_blocks *top);

/* Constant time for a block that is too small to be kept. */
void top_blocks_add(struct top_blocks *top, const struct top_block *block);

/* What a block must have at least to be kept. */
uint64_t top_blocks_min(const struct top_blocks *top);

/* Largest first; ends the adding. */
void top_blocks_sort(struct top_blocks *top);

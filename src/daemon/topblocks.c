/* See topblocks.h. */
#include "daemon/topblocks.h"

#include <errno.h>
#include <stdlib.h>

int top_blocks_init(struct top_blocks *top, size_t max)
{
    *top = (struct top_blocks){.max = max};
    if (max == 0)
        return 0;
    top->blocks = calloc(max, sizeof(*top->blocks));
    return top->blocks ? 0 : -ENOMEM;
}

void top_blocks_release(struct top_blocks *top)
{
    free(top->blocks);
    *top = (struct top_blocks){0};
}

static uint64_t bytes_at(const struct top_blocks *top, size_t i)
{
    return top->blocks[i].view.bytes;
}

static void swap(struct top_blocks *top, size_t a, size_t b)
{
    struct top_block kept = top->blocks[a];
    top->blocks[a] = top->blocks[b];
    top->blocks[b] = kept;
}

void top_blocks_add(struct top_blocks *top, const struct top_block *block)
{
    if (top->n < top->max) {
        size_t i = top->n++;
        top->blocks[i] = *block;
        while (i > 0 && bytes_at(top, i) < bytes_at(top, (i - 1) / 2)) {
            swap(top, i, (i - 1) / 2);
            i = (i - 1) / 2;
        }
        return;
    }
    if (top->n == 0 || block->view.bytes <= bytes_at(top, 0))
        return;
    top->blocks[0] = *block;
    for (size_t i = 0;;) {
        size_t least = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < top->n; child++)
            if (bytes_at(top, child) < bytes_at(top, least))
                least = child;
        if (least == i)
            return;
        swap(top, i, least);
        i = least;
    }
}

uint64_t top_blocks_min(const struct top_blocks *top)
{
    return top->n < top->max || top->n == 0 ? 0 : bytes_at(top, 0) + 1;
}

static int larger_first(const void *a, const void *b)
{
    const struct book_block_view *x = &((const struct top_block *)a)->view;
    const struct book_block_view *y = &((const struct top_block *)b)->view;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return (x->time_ns > y->time_ns) - (x->time_ns < y->time_ns); /* the older one first */
}

void top_blocks_sort(struct top_blocks *top)
{
    if (top->n > 0)
        qsort(top->blocks, top->n, sizeof(*top->blocks), larger_first);
}

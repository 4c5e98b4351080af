/* holders.h: exact sums by holder (site, device, space, class), and by the line that copies. One thread.
 *
 * Both are tables that only grow: an entry keeps its number (from 1) for ever, and blocks refer to it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "trace/history.h"

struct holder {
    struct trace_holder sums;
    uint8_t line; /* of the timeline; 0: among the others */
};

/* Entries of any size behind an index of their hashes. */
struct trace_table {
    char *entries; /* [0] is there, but no entry */
    uint32_t *index;
    size_t entry_bytes;
    uint32_t n, cap; /* entries, [0] included */
    uint32_t n_index;
    uint32_t max;
};

struct trace_holders {
    struct trace_table holders, copiers;
    uint64_t unkept; /* events whose holder could not be added: counted under site 0 */
};

/* 0 or -ENOMEM. */
int holders_init(struct trace_holders *h, uint32_t max);
void holders_release(struct trace_holders *h);

/* The number of the holder, which is made if there is none. 0, an entry that nobody reads: no memory, not even for that of site 0. */
uint32_t holders_number(struct trace_holders *h, uint32_t site, int32_t device, uint8_t space,
                        uint8_t class);
uint32_t copiers_number(struct trace_holders *h, uint32_t site);

/* Borrowed until the next holders_number() or copiers_number(). */
static inline struct holder *holders_get(const struct trace_holders *h, uint32_t number)
{
    return (struct holder *)(h->holders.entries + number * sizeof(struct holder));
}

static inline struct trace_copier *copiers_get(const struct trace_holders *h, uint32_t number)
{
    return (struct trace_copier *)(h->copiers.entries + number * sizeof(struct trace_copier));
}

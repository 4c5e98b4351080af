/* Inside explain: the pages of one mapping that exist, and what stands at their starts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "explain/owner.h"
#include "explain/smaps.h"
#include "scan/memory.h"

enum {
    PAGES_HEADS = 128,        /* read at a time, at most */
    PAGES_READ_MAX = 1 << 17, /* in all: half a GB of pages that nothing is known of, about 20 ms */
    PAGES_RUNS_MAX = 1 << 20,
};

struct pages_run {
    uint64_t start, end;
};

struct pages {
    struct scan_memory *memory; /* NULL: it may not be read */
    bool readable;
    const struct smaps_mapping *mapping;
    struct pages_run *runs; /* of existing pages, by address */
    size_t n, room, at;     /* `at`: the run of the last question; questions go upwards */
    uint64_t heads_from;    /* page of the first head that was read */
    size_t n_heads, ahead;  /* how many to read the next time */
    uint64_t left;          /* reads that are still allowed */
    uint8_t heads[PAGES_HEADS * OWNER_HEAD];
};

/* Begin with another mapping. Without pagemap, or where everything is resident, all pages exist. -ENOMEM. */
int pages_of(struct pages *pages, const struct smaps_mapping *mapping);
void pages_release(struct pages *pages);

/* Bytes in [start, end) that exist. */
uint64_t pages_resident(struct pages *pages, uint64_t start, uint64_t end);

/* The first address from `at` on that exists; mapping->end: none. */
uint64_t pages_next(struct pages *pages, uint64_t at);

/* The first OWNER_HEAD bytes of the page at `at`; NULL: there is none, or it cannot be read. */
const void *pages_head(struct pages *pages, uint64_t at);

/* The last head was of something that is known: what follows it is read one by one again. */
void pages_hit(struct pages *pages);

/* The resident heap divided among the call sites that hold it, as the book of the process tells: an estimate. A site
 * is as resident as those of its blocks are that were sampled (resident.h), and as all others together where there are too few. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "explain/explain.h"

struct ledger_process;
struct site_names;

struct explain_site {
    char *text; /* "shop.c:79 receipt_print"; owned */
    char *
        via; /* what it calls to get its memory; NULL: nothing between it and the allocator; owned */
    uint64_t bytes, live_bytes, live_blocks;
};

/* The largest first; all sites that are not listed are one sum. The bytes of all sum to what explain_sum(EXPLAIN_HEAP) gives.
 * Zeroed it is empty: `all` is NULL, and no book tells. */
enum { EXPLAIN_SITES_TOP = 20 }; /* named, for programs and the page */

struct explain_sites {
    struct explain_site *all;
    size_t n, others;
    uint64_t others_bytes;
};

/* explain_live() with what the book of `process` tells. False: it tells nothing of the heap, or `process` is NULL. Call it at
 * most once. */
bool explain_live_by(struct explain *explain, const struct ledger_process *process);

/* After explain_live(), of a process of user `owner`. At most `top` are named, of those with a 500th of the heap or more, by `symbols` (NULL: without functions). -ENOENT: no book of the heap; -errno. */
int explain_sites_take(const struct ledger_process *process, uint32_t owner,
                       const struct explain *explain, size_t top, struct site_names *symbols,
                       struct explain_sites *ret_sites);
void explain_sites_release(struct explain_sites *sites);

/* The field "sites" of an open object, and "sites_left_out". NULL: null. */
void explain_sites_json(const struct explain_sites *sites, struct json *json);

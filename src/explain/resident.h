/* How much of what each call site holds is resident, by its blocks that were sampled.
 *
 * A block that was asked for and never touched is in use and not resident, and sites differ in that: a table that calloc()
 * made may be empty where lists are all there. The book of a tracker has the addresses of a sample of all bytes, so the
 * pages under them tell the share of each caller. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct book_sites;
struct ledger_book;

enum {
    RESIDENT_BLOCKS_MAX = 4096, /* looked at: 2 µs each; every nth where there are more */
    RESIDENT_BLOCKS_MIN = 3,    /* of a site, before its share is believed */
    RESIDENT_MS = 1000,
};

/* The share of each site (by number, n_sites of them) that is resident, from 0 to 1; below 0: not known. Reads pagemap in a
 * child. NULL: it may not be read, there are no samples, or no memory; for free(). */
double *resident_shares(pid_t pid, uint32_t owner, const struct ledger_book *book,
                        const struct book_sites *sites);

/* How much each call site of each book held, over time: the series that detect.h judges.
 *
 * A round looks at every book once: growth_begin(), growth_look() for each, growth_end(). A look takes the counters of
 * all sites of the book (no system call, about 1 µs for 128 sites and shard) and keeps a point for each site that is
 * worth it. Points go into tiers of rings, each coarser than the one before; a coarse slot keeps the point at which
 * the site held least in it, since low-water marks are what the detector looks at.
 *
 * Of a process whose heap is counted and that runs here, one more series is kept: how much of it is resident beyond
 * what the book counts (GROWTH_OUTSIDE), since growth of a runtime's own heap has no call site. Only its level is known:
 * all of it stands as allocated bytes.
 *
 * Bounded by what strangers cannot change: a site costs at most GROWTH_POINT_BYTES a point of its tiers, and there is a
 * limit of sites for each book, for each user and for all. Where a book has more, those that hold most are kept, so
 * that a leak gets in sooner or later. One thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ledger/detect.h"

struct growth;
struct ledger_book;

enum {
    GROWTH_TIERS_MAX = 4,
    GROWTH_POINT_BYTES = sizeof(struct detect_point),
    GROWTH_SITES_READ_MAX = 1 << 16, /* of one book; later ones are not watched, and counted */
    GROWTH_OUTSIDE = -1, /* as the number of a site: what is resident beyond what the book counts */
    GROWTH_IDLE_LOOKS = 60, /* that a site may hold next to nothing before it is dropped */
};

struct growth_tier {
    uint64_t step_ns; /* between two points */
    unsigned points;
};

struct growth_options {
    /* ended by 0 points; each covers a step of the next */
    struct growth_tier tiers[GROWTH_TIERS_MAX];
    size_t sites_max, sites_per_user_max, sites_per_book_max;
    /* sites are kept from the moment that they hold so much; 0: from their first block, and what was before,
     * which is nothing, takes part in the series */
    uint64_t bytes_min;
};

/* What memoird keeps: 2 min at 1 s, 15 min at 10 s, 2 h at 2 min, 1 day at 20 min, so that every horizon from half a
 * minute to a day has a point in most of its windows; of sites that hold 64 KiB and more. 342 points of 40 bytes: 28 MB
 * for the limit of 2,048 sites after a day, 10 MB in the first minutes. */
extern const struct growth_options growth_daemon;

int growth_new(const struct growth_options *options, struct growth **ret_growth);
void growth_free(struct growth *growth); /* NULL is fine */
void growth_freep(struct growth **growth);

void growth_begin(struct growth *growth);

/* Look at a book at this time (CLOCK_MONOTONIC), if its last point is old enough. -errno when it could not be read; it
 * is looked at again in the next round. */
int growth_look(struct growth *growth, const struct ledger_book *book, uint64_t now_ns);

/* Books that were looked at neither in this round nor in the one before are forgotten: a round that is done in pieces may
 * miss one while others come and go. */
void growth_end(struct growth *growth);

struct growth_counts {
    size_t books, sites;
    size_t left_out; /* sites past a limit, as of the last looks */
    size_t bytes;    /* of all series */
};
struct growth_counts growth_counts(const struct growth *growth);

/* ---- reading ---- */

/* A series: points from all tiers, in the order of time. */
struct growth_series {
    uint64_t dev, ino;                 /* of the book's file: ledger_book_find() */
    uint32_t site;                     /* or (uint32_t)GROWTH_OUTSIDE */
    const struct detect_point *points; /* good during the call */
    size_t n;
};

/* Call `each` for every series, book by book, until it returns non-zero (which is returned), or -ENOMEM. */
int growth_each(struct growth *growth,
                int (*each)(const struct growth_series *series, void *context), void *context);

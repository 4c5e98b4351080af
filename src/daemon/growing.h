/* memoird's watch over call sites: the series behind the table `leaks`.
 *
 * A round over all books, one a GROWING interval, in pieces that leave the loop to others; what it costs is at
 * most GROWING_SHARE of the time, so with many books rounds come less often. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct daemon;
struct growth_counts;
struct growth_series;
struct growing;
struct leaks;
struct leaks_options;

enum {
    GROWING_TURN_MS = 2, /* of one piece */
    GROWING_SHARE = 100, /* one part in so many of the time */
    GROWING_NEEDS = 30,  /* intervals until a verdict: half a minute for the usual second */
};

/* Every `interval_ns` from now on. */
int growing_new(struct daemon *daemon, uint64_t interval_ns, struct growing **ret_growing);
void growing_free(struct growing *growing); /* NULL is fine */

/* The series themselves: see growth_each(). NULL for `growing` has none. */
int growing_each(struct growing *growing,
                 int (*each)(const struct growth_series *series, void *context), void *context);

/* How much is watched, how often all of it was looked at, and how long it takes until there are verdicts; all 0 for
 * NULL. */
void growing_facts(const struct growing *growing, struct growth_counts *ret_counts,
                   uint64_t *ret_looks, uint64_t *ret_needs_ns);

/* What the series tell now: rows point into the ledger. How long they must be is set here. NULL for `growing` gives
 * nothing. */
int growing_leaks(struct growing *growing, const struct leaks_options *wish,
                  struct leaks *ret_leaks);

/*
 * source_free.h: the free slices of a source's macro-blocks, as runs listed by length.
 *
 * Memory that is free and still there is to be used before any is touched anew, and what is long shall stay long. So there are three sets
 * of lists, in each of which the shortest run that is long enough is found at once:
 *
 *   RUNS_DIRTY   free slices in a row that all have memory (dirty)
 *   RUNS_PARTLY  free slices in a row of which some have memory and some have none
 *   RUNS_CLEAN   free slices in a row of which none has
 *
 * A run of the last two is as long as it can be: a slab or the end is on either side. A dirty run is as long as its memory goes, and may be
 * a part of a run of RUNS_PARTLY. The links lie in the descriptor of a run's first slice, which is otherwise unused while
 * the slice is free; where a run's neighbours are is told by the macro-block's bits. So slices come and go in a hundred
 * instructions, however many there are.
 *
 * All under the source's lock. What is free, and the sums of it, change here alone.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "malloc/slices.h"

struct source;

enum runs_kind { RUNS_DIRTY, RUNS_PARTLY, RUNS_CLEAN, RUNS_KINDS };

/* Lists of one length each up to 16 slices, then four for each doubling. */
enum { RUNS_EXACT = 16, RUNS_BINS = RUNS_EXACT + 12 };

struct runs {
    uint32_t some; /* which lists have runs */
    struct {
        struct slab *first, *last; /* the newest, the oldest */
    } list[RUNS_BINS];
};

/* Slices that nobody had become free, or are free no more. Whether they are dirty is known by then, and changes only while they are
 * not free. */
void runs_insert(struct source *s, struct macro *m, unsigned first, unsigned n);
void runs_remove(struct source *s, struct macro *m, unsigned first, unsigned n);

/* The usual ways, at a third of the cost. Slices that were a slab's, and so are dirty, come back. */
void runs_give(struct source *s, struct macro *m, unsigned first, unsigned n);
/* A run of n slices that are free and dirty, where runs_find() would find it, is free no more. NULL: it would find none. */
struct slab *runs_take(struct source *s, unsigned n);

/* Where n slices are free in a row, from a multiple of `align`. A dirty run if there is one; else where most has memory; else the shortest
 * run. False: none was found, which without `thorough` does not say that there is none. */
bool runs_find(struct source *s, unsigned n, unsigned align, bool thorough, struct macro **ret,
               unsigned *ret_first);

/* Where n slices, up to RUNS_EXACT, are free in a row and none of them has memory: at either end of a short run. NULL: there are none, or they were
 * not looked for any further. */
struct slab *runs_find_clean(const struct source *s, unsigned n);

/* The dirty run that has been free for longest; NULL: none. */
struct slab *runs_oldest(const struct source *s, unsigned *ret_slices);

/* For who checks: the list where a run of that length belongs. */
unsigned runs_bin(unsigned slices);

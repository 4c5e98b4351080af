/* Sites put together by what they have in common, at one moment or at two.
 *
 * Figures are exact except by stack, where those of stacks that were found by sampling are estimates
 * (stacks.h), and for lines of the program that only sampling found: those that call through a library, an interpreter or a
 * function that forwards. Memory of different kinds or on different devices is never added up in one row, except by space
 * and by device. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profile/profile.h"
#include "profile/stacks.h"

enum rows_by {
    ROWS_BY_CALLER, /* the line that asked: that of the program's own code (headline.h) */
    ROWS_BY_STACK,
    ROWS_BY_FUNCTION, /* that asked */
    ROWS_BY_FILE,     /* that the line is in */
    ROWS_BY_MODULE,
    ROWS_BY_SPACE,
    ROWS_BY_DEVICE,
};
extern const char *const rows_by_words[]; /* in that order, ended by NULL */

enum rows_measure {
    ROWS_LIVE,      /* bytes held */
    ROWS_ALLOCATED, /* bytes asked for in all */
    ROWS_BLOCKS,    /* blocks held */
};

struct row {
    const struct profile *profile; /* what the numbers below are of */
    uint64_t key;
    const uint32_t *
        frames; /* of the largest stack in it, by stack from the innermost on, else from the line that asked; NULL:
                             * none is known */
    uint16_t n_frames;
    uint16_t inside; /* further frames inside of these, which lie before them */
    bool estimate;
    bool cut, bare; /* of that stack */
    uint32_t account;
    uint32_t sites; /* put together, of the later moment if there are two */
    uint64_t first_seen_ns;
    struct profile_figures now, before;
    uint64_t largest; /* live bytes of that stack */
};

struct rows {
    struct row *list;
    size_t n, room;
    struct numbers by_key;
    struct profile_figures now, before; /* sums of all rows */
    struct profile_figures estimated;   /* part of `now` whose rows are estimates */
    struct profile_figures bare; /* part of `now` of which no stack is known but others' are */
    struct stacks *stacks;       /* rows borrow them */
    size_t n_stacks;
};

/* Which sites take part. */
struct rows_filter {
    enum rows_by by;
    uint32_t space; /* enum memoir_space; 0: any */
};

/* Add a profile, as what is now or as what was before. Frames must have keys (profile_keys()), names for functions and
 * files, and for lines that asked those that headlines_find_all() looks up. Borrows the profile until the rows are released. 0 or -errno. */
int rows_add(struct rows *rows, const struct profile *profile, const struct rows_filter *filter,
             bool before);
void rows_release(struct rows *rows);

/* The largest first, at two moments those that grew most; equal ones in the same order every time. */
void rows_sort(struct rows *rows, enum rows_measure measure, bool growth);

/* The frame whose line speaks for a row; UINT32_MAX: none is known. */
uint32_t row_headline(const struct row *row, enum rows_by by);

uint64_t rows_value(const struct profile_figures *figures, enum rows_measure measure);

/* now - before, at the ends of what fits. */
int64_t rows_change(uint64_t now, uint64_t before);

/* Drop rows whose value (or change, whichever way) is less. */
void rows_min(struct rows *rows, enum rows_measure measure, bool growth, uint64_t min);

/*
 * peak.h: what each call site held when its account was at its peak.
 *
 * Nothing is added to a report. A thread that folds (report.h) knows what the account holds and what it held at most; so
 * the first one that finds it below the last peak by more than a part of header.peak_error writes down what every site
 * holds now: the sites then add up to the peak within that error. A peak that is hardly higher than the one written down
 * is not written down again, so there are at most as many copies as the peak has grown by such parts. A block that is
 * large itself would be gone before anyone folds: its copy is made before it is counted as freed.
 *
 * While an account stays near its peak there is no copy, and needs none: readers take what its sites hold now.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "book/writer.h"

enum {
    /* Blocks from this size on have the peak looked at before they are counted as freed. */
    BOOK_PEAK_LARGE_BYTES = BOOK_FOLD_BYTES / 2,
    /* How far below the peak it is written down, and how far above it again: this part of header.peak_error, and of
     * BOOK_FOLD_BYTES in a book that states none. The rest of the error is what threads have not folded yet. */
    BOOK_PEAK_PART = 8,
};

static inline uint64_t book_peak_error(const struct book_writer *w)
{
    uint64_t error = load_relaxed(&w->header->peak_error);
    return error > BOOK_FOLD_BYTES ? error : BOOK_FOLD_BYTES;
}

/* Is the peak to be written down, now that the account holds `live` bytes? */
static inline bool book_peak_is_due(const struct book_writer *w, const struct book_account *record,
                                    int64_t live)
{
    int64_t peak = (int64_t)load_relaxed(&record->peak_bytes);
    int64_t part = (int64_t)(book_peak_error(w) / BOOK_PEAK_PART);
    return live < peak - part && (int64_t)load_relaxed(&record->at_peak_of) < peak - part;
}

/* Write it down. Does nothing where there are no pages for that, and where other threads have freed so much meanwhile
 * that it would not be true. Inside a report; about 1 µs for 128 sites of a thread. */
void book_peak_save(struct book_writer *w, struct book_thread *t, uint32_t account);

/* The same, if it is due, for a block of at least BOOK_PEAK_LARGE_BYTES that is about to be counted as freed. */
void book_peak_before_free(struct book_writer *w, struct book_thread *t, uint32_t account,
                           uint64_t bytes);

/* In report.c: the counter page of a sort that begins with site or account `first`, made if `slot` is NULL, or NULL. */
void *book_counter_page_get(struct book_writer *w, struct book_thread *t, uint32_t what,
                            uint32_t first, void **slot);

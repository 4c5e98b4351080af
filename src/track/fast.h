/*
 * fast.h: the parts of the fast way (track.h) that are the same whichever allocator is below: a caller that is known, a
 * short trailer, counters. All is inline, and what is unusual ends in a call of track_done(), so that who needs only
 * these saves no registers.
 */
#pragma once

#include "book/report.h"
#include "track/track.h"

#define INLINE static inline __attribute__((always_inline))

/* Take from a counter of this thread's, in one instruction; true if nothing is left. */
INLINE bool charge(int64_t *left, size_t bytes)
{
#if defined(__x86_64__)
    bool less;
    __asm__("subq %2, %0" : "+m"(*left), "=@ccle"(less) : "r"(bytes));
    return less;
#else
    return (*left -= (int64_t)bytes) <= 0;
#endif
}

/* ---- counting ---- */

INLINE void count_alloc(struct track_thread *t, struct book_site_counters *site, size_t bytes)
{
    struct book_counters *account = t->account;
    book_add(&account->alloc_bytes, bytes);
    book_add(&account->alloc_blocks, 1);
    book_add(&site->alloc_bytes, bytes);
    book_add(&site->alloc_blocks, 1);
}

INLINE void count_free(struct track_thread *t, struct book_site_counters *site, size_t bytes)
{
    struct book_counters *account = t->account;
    book_add(&account->freed_bytes, bytes);
    book_add(&account->freed_blocks, 1);
    book_add(&site->freed_bytes, bytes);
    book_add(&site->freed_blocks, 1);
}

/* Is it time for track_settle()? For a thread with an account, after it has counted a block as freed. */
INLINE bool settle_due(const struct track_thread *t)
{
    return t->account->freed_bytes >= t->settle_at;
}

/* As track_settle(), where there is nothing to do, which is mostly so; else false. */
INLINE bool settle_quickly(struct track_thread *t)
{
    const struct book_counters *account = t->account;
    int64_t delta = (int64_t)(account->alloc_bytes - account->freed_bytes) - t->folded;
    if (t->inside || delta >= BOOK_FOLD_BYTES / 2 || delta <= -BOOK_FOLD_BYTES / 2)
        return false;
    t->settle_at = account->freed_bytes + TRACK_SETTLE_BYTES;
    return true;
}

/* The entry of a caller that this thread knows, or NULL. */
INLINE struct track_site *site_known(struct track_thread *t, uintptr_t caller)
{
    struct track_site *entry = track_site_entry(t, caller);
    const uint64_t flags = TRACK_KEY_WIDE | TRACK_KEY_CLOSE;
    if (likely((entry->key & ~flags) == caller))
        return entry;
    entry = track_site_beside(entry);
    return (entry->key & ~flags) == caller ? entry : NULL;
}

/* Does this thread know the caller as one whose number needs a long trailer? */
INLINE bool is_wide(struct track_thread *t, uintptr_t caller)
{
    const struct track_site *entry = site_known(t, caller);
    return entry && entry->key & TRACK_KEY_WIDE;
}

/* Count a block up to BOOK_TRAILER_SHORT_MAX that the budget has not been charged for: but for a call of track_done() where
 * anything is unusual, such as more to spare than a short trailer can tell. */
INLINE void *near_done(struct track_thread *t, void *block, uint64_t extent, size_t bytes,
                       uintptr_t caller)
{
    struct track_site *entry = track_site_entry(t, caller);
    uint64_t at = (uintptr_t)block + extent;
    if (unlikely(charge(&t->budget, bytes) || extent - bytes > BOOK_TRAILER_SLACK_MAX))
        return track_done(block, bytes, caller);
    if (unlikely(entry->key != caller)) {
        entry = track_site_beside(entry);
        if (entry->key != caller)
            return track_done(block, bytes, caller);
    }
    uint64_t said = entry->short_site + t->stamp + book_trailer_short_shape(extent, extent - bytes);
    *(uint64_t *)at = book_trailer_short_seal(t->key, at, said);
    count_alloc(t, entry->counters, bytes);
    return block;
}

/* The same for a larger one, which gets a long trailer; `extent` is that of its last word. */
INLINE void *far_done_at(struct track_thread *t, void *block, uint64_t extent, size_t bytes,
                         uintptr_t caller)
{
    struct track_site *entry = track_site_entry(t, caller);
    uint64_t at = (uintptr_t)block + extent - sizeof(uint64_t);
    uint64_t pad = (extent - sizeof(uint64_t) - book_trailer_whole_words(bytes)) / 8;
    if (unlikely(charge(&t->budget, bytes) || pad >= BOOK_TRAILER_PAD_FAR))
        return track_done(block, bytes, caller);
    if (unlikely((entry->key & ~TRACK_KEY_WIDE) != caller)) {
        entry = track_site_beside(entry);
        if ((entry->key & ~TRACK_KEY_WIDE) != caller)
            return track_done(block, bytes, caller);
    }
    uint64_t *words = (uint64_t *)at, site = t->site_numbers[entry - t->sites];
    struct book_trailer_key key = {t->key, (uint32_t)t->generation};
    words[0] = bytes | site << BOOK_TRAILER_LONG_SITE_SHIFT;
    words[1] = book_trailer_seal(key, at, words[0], pad, load_relaxed(&t->tracker->time), false);
    count_alloc(t, entry->counters, bytes);
    return block;
}

/* ---- trailers ---- */

/* Has a block of this process a short trailer so far from its start? `ret_word` is what is there then. */
INLINE bool short_here(struct track_thread *t, void *block, uint64_t extent, uint64_t *ret_word)
{
    uint64_t at = (uintptr_t)block + extent;
    if (unlikely(extent > BOOK_TRAILER_SHORT_EXTENT_MAX))
        return false;
    uint64_t word = *ret_word = *(uint64_t *)at;
    return likely((int64_t)word < 0 &&
                  book_trailer_short_sealed(t->key, (uint32_t)t->generation, at, word));
}

/* The same where the distance is a guess, so that it may be another block's; and where the block is going on, so that what looks
 * like a trailer must not be the program's own, in a block that we know nothing of. */
INLINE bool short_surely(struct track_thread *t, void *block, uint64_t extent, uint64_t *ret_word)
{
    return short_here(t, block, extent, ret_word) &&
           likely(book_trailer_short_extent(*ret_word) == extent);
}

/* The counters of the site that a word with the mark names, or NULL. */
INLINE struct book_site_counters *site_named(struct track_thread *t, uint64_t word)
{
    uint64_t site = word >> BOOK_TRAILER_SHORT_SITE_SHIFT; /* and the mark */
    struct book_site_counters *page =
        t->book.site_pages[site / BOOK_SITES_PER_PAGE -
                           BOOK_TRAILER_SHORT_SITES / BOOK_SITES_PER_PAGE];
    return likely(page) ? &page[site % BOOK_SITES_PER_PAGE] : NULL;
}

/* What was counted for a block with that trailer; the counters of its site, or NULL. */
INLINE struct book_site_counters *counted(struct track_thread *t, uint64_t word, uint64_t extent,
                                          size_t *ret_bytes)
{
    *ret_bytes = extent - book_trailer_short_slack(word);
    return site_named(t, word);
}

/* A trailer that was taken away, and where its block was counted. */
struct track_held {
    uint64_t *last, words[2];
    struct book_site_counters *site;
    size_t bytes;
    bool is_short;
};

/* Take away a short trailer that was found; false if it cannot be counted as freed at once: then it is as it was. */
INLINE bool held_short(struct track_thread *t, void *block, uint64_t extent, uint64_t word,
                       struct track_held *ret)
{
    struct book_site_counters *site = counted(t, word, extent, &ret->bytes);
    if (unlikely(!site))
        return false;
    ret->is_short = true;
    ret->site = site;
    ret->last = (uint64_t *)((uintptr_t)block + extent);
    ret->words[1] = word;
    *ret->last = 0;
    return true;
}

/* The same for any trailer that ends so far from the start of the block. */
static inline bool held_take(struct track_thread *t, void *block, uint64_t extent,
                             struct track_held *ret)
{
    uint64_t word, *last = (uint64_t *)((uintptr_t)block + extent);
    struct book_trailer trailer;
    if (short_surely(t, block, extent, &word))
        return held_short(t, block, extent, word, ret);
    if (unlikely(last < (uint64_t *)block ||
                 book_trailer_check(t->tracker->key, (uintptr_t)block, (uintptr_t)last, last,
                                    &trailer) != 0 ||
                 trailer.is_short || trailer.sampled))
        return false;
    struct book_site_counters *page = t->book.site_pages[trailer.site / BOOK_SITES_PER_PAGE];
    if (unlikely(!page))
        return false;
    ret->is_short = false;
    ret->site = &page[trailer.site % BOOK_SITES_PER_PAGE];
    ret->bytes = trailer.bytes;
    ret->last = last;
    ret->words[0] = last[-1];
    ret->words[1] = last[0];
    last[-1] = last[0] = 0;
    return true;
}

static inline void held_put_back(const struct track_held *held)
{
    held->last[0] = held->words[1];
    if (!held->is_short)
        held->last[-1] = held->words[0];
}

/* A block of this process with a long trailer at `at`, which ends where the block's last word does, and which is neither short nor sampled: take the
 * trailer away and count the block as freed. False, and nothing was done: it is not so, or cannot be counted at once. */
INLINE bool count_free_long(struct track_thread *t, uint64_t at, size_t *ret_bytes)
{
    uint64_t *words = (uint64_t *)at;
    uint64_t made = words[1] - book_trailer_hash(t->key, at, words[0], words[1]);
    uint64_t site = words[0] >> BOOK_TRAILER_LONG_SITE_SHIFT;
    struct book_site_counters *page = t->book.site_pages[site / BOOK_SITES_PER_PAGE];
    if (unlikely((int64_t)words[1] < 0 || (words[1] >> 36 & 1) ||
                 (made & BOOK_TRAILER_CHECK_MASK) != t->generation || !page))
        return false;
    *ret_bytes = words[0] & BOOK_TRAILER_SIZE_MAX;
    words[0] = words[1] = 0;
    count_free(t, &page[site % BOOK_SITES_PER_PAGE], *ret_bytes);
    return true;
}

/* What a realloc() that moved a block counts for the old one. */
INLINE void count_moved(struct track_thread *t, struct book_site_counters *site, size_t bytes)
{
    count_free(t, site, bytes);
    book_add(&t->account->reallocs, 1);
}

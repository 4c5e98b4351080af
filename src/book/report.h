/*
 * report.h: what one report does to the book, inline for those who count nanoseconds.
 *
 * A thread with pages of its own adds by plain loads and stores; the others share the counters
 * inside the account's record and add atomically. Live bytes are folded into one figure per account
 * only when a thread's change has grown enough to matter, so the peak costs next to nothing per
 * report and is wrong by that much per thread at most (header.peak_error).
 *
 * book_alloc() and book_free() in report.c serve every case. The parts here are for a caller who
 * wants the usual one without a call, and so without saving registers: a third of its time.
 */
#pragma once

#include "book/lock.h"
#include "book/table.h"
#include "book/writer.h"

void book_alloc(struct book_writer *w, struct book_thread *t, uint64_t id, uint64_t size_tag,
                uint64_t place);
void book_free(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id);

/* Their parts: count in any case, and bring what this thread has counted into the peak. */
void book_count_alloc_any(struct book_writer *w, struct book_thread *t, uint64_t size_tag,
                          uint64_t place);
void book_count_free_any(struct book_writer *w, struct book_thread *t, uint64_t size_tag,
                         uint64_t place);
void book_count_realloc(struct book_writer *w, struct book_thread *t, uint32_t account);

/* Add what was counted elsewhere, before there was a book. */
void book_count_many(struct book_writer *w, struct book_thread *t, uint64_t place,
                     const struct book_site_counters *counted);

/* Add to the estimates of a site that was found by sampling (BOOK_SITE_SAMPLED), in a book that is published.
 * All threads share these counters: samples are few. False if there is no page for them. */
bool book_count_sampled(struct book_writer *w, struct book_thread *t, uint32_t site,
                        const struct book_site_counters *counted);
void book_enter(struct book_writer *w, struct book_thread *t, uint64_t id, uint64_t size_tag,
                uint64_t place);
void book_fold(struct book_writer *w, struct book_thread *t, uint32_t account);

/* Add to a counter that only this thread writes. Release, so that who sees a free sees its
 * allocation. */
static inline void book_add(uint64_t *counter, uint64_t amount)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    /* One instruction, and a release: x86 keeps stores in order. */
    __asm__("addq %1, %0" : "+m"(*counter) : "er"(amount) : "cc");
#else
    store_release(counter, *counter + amount);
#endif
}

/* The counters of this thread for a block, or false if it has none there yet. A few sites make most
 * blocks, so their counters are kept at hand. */
static inline bool book_counters_own(struct book_thread *t, uint64_t place,
                                     struct book_counters **ret_account,
                                     struct book_site_counters **ret_site)
{
    uint32_t key = (uint32_t)place; /* account and site */
    struct book_recent *recent = &t->recent[book_place_site(place) % BOOK_RECENT];
    if (__builtin_expect(recent->key != key, 0)) {
        uint32_t account = book_place_account(place), site = book_place_site(place);
        struct book_counters *accounts = t->account_pages[account / BOOK_ACCOUNTS_PER_PAGE];
        struct book_site_counters *sites = t->site_pages[site / BOOK_SITES_PER_PAGE];
        if (!accounts || !sites)
            return false;
        recent->key = 0; /* a handler that longjmps must not leave it ahead of the pointers */
        fence_signal();
        recent->account = &accounts[account % BOOK_ACCOUNTS_PER_PAGE];
        recent->site = &sites[site % BOOK_SITES_PER_PAGE];
        fence_signal();
        recent->key = key;
    }
    *ret_account = recent->account;
    *ret_site = recent->site;
    return true;
}

/* Note a change of live bytes; true when it is time to call book_fold(). */
static inline bool book_change(struct book_counters *counters, int64_t delta)
{
    uint64_t most = BOOK_FOLD_BYTES + counters->fold_more;
    delta += counters->fold_delta;
    store_relaxed(&counters->fold_delta, delta);
    return (uint64_t)delta + most > 2 * most;
}

/* The usual case of counting: false if this thread has no pages for it yet. Else ret_fold tells
 * whether book_fold() is due. */
static inline bool book_count_alloc(struct book_thread *t, uint64_t size_tag, uint64_t place,
                                    bool *ret_fold)
{
    struct book_counters *of_account;
    struct book_site_counters *of_site;
    uint64_t bytes = size_tag & BOOK_BLOCK_SIZE_MAX;
    if (!book_counters_own(t, place, &of_account, &of_site))
        return false;
    book_add(&of_account->alloc_bytes, bytes);
    book_add(&of_account->alloc_blocks, 1);
    book_add(&of_site->alloc_bytes, bytes);
    book_add(&of_site->alloc_blocks, 1);
    *ret_fold = book_change(of_account, (int64_t)bytes);
    return true;
}

static inline bool book_count_free(struct book_thread *t, uint64_t size_tag, uint64_t place,
                                   bool *ret_fold)
{
    struct book_counters *of_account;
    struct book_site_counters *of_site;
    uint64_t bytes = size_tag & BOOK_BLOCK_SIZE_MAX;
    if (!book_counters_own(t, place, &of_account, &of_site))
        return false;
    book_add(&of_account->freed_bytes, bytes);
    book_add(&of_account->freed_blocks, 1);
    book_add(&of_site->freed_bytes, bytes);
    book_add(&of_site->freed_blocks, 1);
    *ret_fold = book_change(of_account, -(int64_t)bytes);
    return true;
}

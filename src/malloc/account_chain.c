/* See account_chain.h. */
#include "malloc/account_chain.h"

#include <errno.h>

#include "book/report.h"
#include "malloc/chain_watch.h"
#include "track/track.h"

enum { SPACE_CHAIN = 6 }; /* MEMOIR_SPACE_CHAIN */

/* ---- one call ---- */

static bool account_ready(struct track_thread *t)
{
    struct tracker *tracker = t->tracker;
    if (unlikely(!load_relaxed(&tracker->chains_account))) {
        int r =
            book_account_add(&tracker->writer, &t->book, SPACE_CHAIN, BOOK_DEVICE_HOST, "chain");
        if (r <= 0)
            return false;
        store_relaxed(&tracker->chains_account, (uint32_t)r);
    }
    return true;
}

/* This thread's part of the book, to be changed; NULL: this call is not counted. A handler that has interrupted
 * another call of its thread's cannot change it. */
static struct track_thread *begin(struct tracker *tracker)
{
    struct track_thread *t = tracker ? track_call_begin(tracker) : NULL;
    if (!t)
        return NULL;
    track_pass_renew(t);
    if (account_ready(t))
        return t;
    track_call_end(t);
    return NULL;
}

/* A few places allocate most blocks. */
static uint32_t site_of(struct track_thread *t, uintptr_t caller)
{
    struct tracker *tracker = t->tracker;
    struct track_chain_site *known =
        &t->chain_sites[(caller * UINT64_C(0x9e3779b97f4a7c15) >> 32) % TRACK_CHAIN_SITES];
    if (likely(known->caller == caller && known->pass == t->pass && t->pass != TRACK_PASS_NONE))
        return known->site;
    uint32_t site =
        book_site_add(&tracker->writer, &t->book, load_relaxed(&tracker->chains_account), &caller,
                      1, BOOK_SITE_CALLER_ONLY);
    if (site != BOOK_SITE_NONE)
        *known = (struct track_chain_site){.caller = caller, .pass = t->pass, .site = site};
    return site;
}

/* ---- what happens to a block ---- */

static void add(void *block, size_t bytes, uintptr_t caller)
{
    int saved = errno;
    struct tracker *tracker = track_tracker_open();
    struct track_thread *t = tracker && track_wanted() ? begin(tracker) : NULL;
    if (t) {
        uint64_t place = (uint64_t)book_time(&tracker->writer) << 32 |
                         (uint64_t)site_of(t, caller) << 12 |
                         load_relaxed(&tracker->chains_account);
        book_alloc(&tracker->writer, &t->book, (uintptr_t)block, bytes, place);
        track_call_end(t);
    }
    errno = saved;
}

/* What is not in the table was made by our parent, or while nothing was counted. */
static bool drop(void *block, struct chain_note *ret_note)
{
    int saved = errno;
    track_phase_now(); /* a child has no tracker of its parent's */
    struct tracker *tracker = load_acquire(&track_page.root.tracker);
    bool counted = tracker && load_relaxed(&tracker->chains_account), found = false;
    struct track_thread *t = counted ? begin(tracker) : NULL;
    if (t) {
        struct book_block old;
        found = table_take(&tracker->writer, &t->book, load_relaxed(&tracker->chains_account),
                           (uintptr_t)block, &old);
        if (found) {
            book_count_free_any(&tracker->writer, &t->book, old.size_tag, old.place);
            *ret_note = (struct chain_note){old.size_tag, old.place};
        }
        track_call_end(t);
    }
    errno = saved;
    return found;
}

static void put_back(void *block, const struct chain_note *note)
{
    int saved = errno;
    struct track_thread *t = begin(load_acquire(&track_page.root.tracker));
    if (t) {
        book_alloc(&t->tracker->writer, &t->book, (uintptr_t)block, note->size, note->place);
        track_call_end(t);
    }
    errno = saved;
}

static const struct chain_watch watch = {.add = add, .drop = drop, .put_back = put_back};

void account_chain_begin(void)
{
    chain_watch_begin(&watch);
}

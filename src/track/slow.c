/* slow.c: calls that cannot take the fast way: see track.h. */
#include <errno.h>

#include "book/lock.h"
#include "book/report.h"
#include "track/early.h"
#include "track/sample.h"
#include "track/track.h"

static uint64_t place_of(uint32_t account, uint32_t site)
{
    return (uint64_t)site << 12 | account;
}

static void trailer_put(void *block, size_t bytes, uint32_t site, uint32_t time, bool sampled)
{
    uint64_t at = book_trailer_place((uintptr_t)block, real_usable(block));
    book_trailer_write((uint64_t *)at, early.key, at, (uintptr_t)block, bytes, site, time, sampled);
}

static struct tracker *tracker_now(void)
{
    return load_acquire(&track_page.root.tracker);
}

static void lose(enum book_loss cause)
{
    struct tracker *tracker = tracker_now();
    if (tracker)
        book_lose(&tracker->writer, cause);
    else if (cause == BOOK_LOSS_UNKNOWN_FREE)
        fetch_add_relaxed(&early.unknown_frees, 1);
    else if (cause == BOOK_LOSS_REENTRY)
        fetch_add_relaxed(&early.reentries, 1);
}

/* ---- a block more ---- */

/* Inside: the site of a caller, as this thread may know it or has to ask. */
static uint32_t site_find(struct track_thread *t, uintptr_t caller, struct track_site *entry)
{
    struct tracker *tracker = t->tracker;
    uint64_t identity = unwind_identity(&tracker->unwind, caller);
    uint64_t key = track_site_key(caller);
    /* The same code is there as before somebody's dlclose(). */
    if (entry->counters && (uintptr_t)(entry->key << 16) == caller << 16 &&
        entry->identity == identity && identity != UINT64_MAX) {
        entry->key = key;
        return (uint32_t)(entry->word0 >> 44);
    }
    uint32_t site = book_site_add(&tracker->writer, &t->book, tracker->account, &caller, 1,
                                  BOOK_SITE_CALLER_ONLY);
    entry->key = 0; /* a handler that finds the entry now must not believe the rest of it */
    fence_signal();
    entry->identity = identity;
    entry->word0 = (uint64_t)site << 44;
    entry->counters = NULL;
    return site;
}

/* Inside, and counted: from now on this caller takes the fast way. */
static void site_remember(struct track_thread *t, uintptr_t caller, struct track_site *entry,
                          uint32_t site)
{
    struct book_site_counters *page = t->book.site_pages[site / BOOK_SITES_PER_PAGE];
    if (!page || entry->identity == UINT64_MAX || (uint32_t)(entry->word0 >> 44) != site)
        return;
    entry->counters = &page[site % BOOK_SITES_PER_PAGE];
    fence_signal();
    entry->key = track_site_key(caller);
}

/* Inside: count a block at the site of its caller, or of its stack if every one is wanted. */
static uint32_t alloc_count(struct track_thread *t, size_t bytes, uintptr_t caller)
{
    struct tracker *tracker = t->tracker;
    bool all = track_settings.stacks == TRACK_STACKS_ALL;
    uint32_t site = all ? recall_site(t, caller) : BOOK_SITE_NONE;
    struct track_site *entry = track_site_entry(t, caller);
    bool by_caller = site == BOOK_SITE_NONE;
    if (by_caller)
        site = site_find(t, caller, entry);
    book_count_alloc_any(&tracker->writer, &t->book, bytes, place_of(tracker->account, site));
    t->folded += (int64_t)bytes;
    if (by_caller)
        site_remember(t, caller, entry, site);
    return site;
}

static bool sample_due(struct track_thread *t, size_t bytes)
{
    t->sample_left -= (int64_t)bytes;
    if (likely(t->sample_left >= 0))
        return false;
    t->sample_left = sample_distance(t);
    return true;
}

static void alloc_open(struct tracker *tracker, void *block, size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_thread_get(tracker);
    if (!t) {
        lose(BOOK_LOSS_REENTRY);
        return;
    }
    uint32_t site = BOOK_SITE_NONE;
    bool sampled = false, counted = true, due;
    if (track_enter(t)) {
        site = alloc_count(t, bytes, caller);
        sampled = sample_due(t, bytes) && sample_alloc(t, block, bytes);
        track_leave(t);
    } else {
        /* A signal handler: its thread's counters of site 0 are there, and need no lock. */
        counted = book_count_alloc(&t->book, bytes, place_of(tracker->account, site), &due);
        t->folded += counted ? (int64_t)bytes : 0;
    }
    if (counted)
        trailer_put(block, bytes, site, track_clock(tracker), sampled);
    else
        lose(BOOK_LOSS_REENTRY);
    track_thread_done(t);
}

/* False: there is a book now. */
static bool alloc_early(void *block, size_t bytes, uintptr_t caller)
{
    if (!early_lock()) {
        lose(BOOK_LOSS_REENTRY);
        return true;
    }
    bool open = load_relaxed(&track_page.root.phase) != TRACK_EARLY;
    if (!open && early_is_over(bytes)) {
        track_publish();
        open = true;
    }
    if (!open) {
        uint32_t site = early_site_of(caller);
        early_count_alloc(site, bytes);
        trailer_put(block, bytes, site, early_time(), false);
    }
    early_unlock();
    return !open;
}

void track_alloc(void *block, size_t bytes, uintptr_t caller)
{
    int saved = errno;
    if (track_phase_now() != TRACK_EARLY || !alloc_early(block, bytes, caller)) {
        struct tracker *tracker = tracker_now();
        if (tracker)
            alloc_open(tracker, block, bytes, caller);
    }
    errno = saved;
}

bool track_wanted(void)
{
    enum track_phase phase = track_phase_now();
    struct tracker *tracker = tracker_now();
    if (phase == TRACK_EARLY || !tracker)
        return phase == TRACK_EARLY;
    if (!(load_relaxed(&tracker->writer.control->flags) & BOOK_CONTROL_SUSPENDED))
        return true;
    lose(BOOK_LOSS_SUSPENDED);
    return false;
}

/* ---- a block less ---- */

static void subtract(uint64_t *value, uint64_t amount)
{
    uint64_t old = load_relaxed(value);
    while (!cas_weak_relaxed(value, &old, old > amount ? old - amount : 0))
        ;
}

/* A block that an ancestor made: it is part of one figure. */
static void inherited_freed(uint64_t bytes)
{
    struct tracker *tracker = tracker_now();
    if (!tracker) {
        subtract(&early.inherited.bytes, bytes);
        subtract(&early.inherited.blocks, 1);
        return;
    }
    struct book_account *account = book_account_at(&tracker->writer, tracker->account);
    subtract(&account->inherited_bytes, bytes);
    subtract(&account->inherited_blocks, 1);
}

/* Counted when the call ends that we have interrupted. */
static void free_later(struct track_thread *t, const struct track_pending *pending)
{
    uint32_t n = fetch_add_relaxed(&t->n_pending, 1);
    if (n < TRACK_PENDING_MAX) {
        t->pending[n] = *pending;
    } else {
        fetch_sub_relaxed(&t->n_pending, 1);
        lose(BOOK_LOSS_REENTRY);
    }
}

static void free_open(struct tracker *tracker, const struct track_taken *taken, bool moved)
{
    struct track_thread *t = track_thread_get(tracker);
    if (!t) {
        lose(BOOK_LOSS_REENTRY);
        return;
    }
    uint32_t site = book_trailer_site(taken->words[0]);
    uint64_t bytes = book_trailer_bytes(taken->words[0]);
    bool sampled = book_trailer_sampled(taken->words[1]);
    uint64_t place = place_of(tracker->account, site);
    bool due;
    if (track_enter(t)) {
        book_count_free_any(&tracker->writer, &t->book, bytes, place);
        t->folded -= (int64_t)bytes;
        if (moved)
            book_count_realloc(&tracker->writer, &t->book, tracker->account);
        if (sampled)
            sample_free(t, taken->block);
        track_leave(t);
    } else if (sampled || !book_count_free(&t->book, bytes, place, &due)) {
        free_later(t, &(struct track_pending){site, sampled, bytes, taken->block});
    } else {
        t->folded -= (int64_t)bytes;
    }
    track_thread_done(t);
}

static bool free_early(uint32_t site, uint64_t bytes, bool moved)
{
    if (!early_lock()) {
        lose(BOOK_LOSS_REENTRY);
        return true;
    }
    bool open = load_relaxed(&track_page.root.phase) != TRACK_EARLY;
    if (!open) {
        early_count_free(site, bytes);
        early.reallocs += moved;
    }
    early_unlock();
    return !open;
}

struct track_taken track_take(void *block)
{
    struct track_taken taken = {.block = block};
    track_phase_now();
    size_t usable = real_usable(block);
    if (usable < BOOK_TRAILER_BYTES)
        return taken;
    uint64_t place = book_trailer_place((uintptr_t)block, usable);
    uint64_t *at = (uint64_t *)place;
    if (place < (uintptr_t)block)
        return taken;
    taken.age = book_trailer_check(early.key, (uintptr_t)block, place, at);
    if (taken.age < 0)
        return taken;
    taken.at = at;
    taken.words[0] = at[0];
    taken.words[1] = at[1];
    at[0] = at[1] = 0;
    return taken;
}

void track_put_back(const struct track_taken *taken)
{
    if (taken->at) {
        taken->at[0] = taken->words[0];
        taken->at[1] = taken->words[1];
    }
}

void track_taken_free(const struct track_taken *taken, bool moved)
{
    int saved = errno;
    enum track_phase phase = track_phase_now();
    if (phase == TRACK_OFF)
        return;
    uint32_t site = book_trailer_site(taken->words[0]);
    uint64_t bytes = book_trailer_bytes(taken->words[0]);
    if (!taken->at) {
        lose(BOOK_LOSS_UNKNOWN_FREE);
    } else if (taken->age > 0) {
        inherited_freed(bytes);
    } else if (phase != TRACK_EARLY || !free_early(site, bytes, moved)) {
        struct tracker *tracker = tracker_now();
        if (tracker)
            free_open(tracker, taken, moved);
    }
    errno = saved;
}

void track_free(void *block)
{
    struct track_taken taken = track_take(block);
    track_taken_free(&taken, false);
}

size_t track_usable(void *block)
{
    size_t usable = real.usable(block);
    if (usable < BOOK_TRAILER_BYTES)
        return usable;
    uint64_t at = book_trailer_place((uintptr_t)block, usable);
    const uint64_t *words = (const uint64_t *)at;
    if (at < (uintptr_t)block || book_trailer_check(early.key, (uintptr_t)block, at, words) < 0)
        return usable;
    return book_trailer_usable((uintptr_t)block, at, book_trailer_bytes(words[0]));
}

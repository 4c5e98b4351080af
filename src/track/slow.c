/* slow.c: calls that cannot take the fast way: see track.h. */
#include <errno.h>

#include "book/lock.h"
#include "site/module.h"
#include "track/beside.h"
#include "track/early.h"
#include "track/fast.h"
#include "track/sample.h"

static uint64_t place_of(uint32_t account, uint32_t site)
{
    return (uint64_t)site << 12 | account;
}

/* What a block carries, in it or beside. False if there is room for a short trailer only, and it cannot be short; or no room
 * beside. */
static bool trailer_put(void *block, size_t bytes, uint32_t site, uint32_t time, bool sampled)
{
    enum beside_where where = beside_put(early.key, block, bytes, site, time, sampled);
    if (where != BESIDE_NOT)
        return where == BESIDE_THERE;
    uint64_t at = book_trailer_place((uintptr_t)block, real_usable(block));
    return book_trailer_write((uint64_t *)at, early.key, at, (uintptr_t)block, bytes, site, time,
                              sampled);
}

/* A block that was asked for with room for a short trailer only, and needs a long one, grows. False if it
 * cannot: then it is as it was. */
static bool room_make(void **block, size_t bytes, uint32_t site)
{
    enum beside_where where = beside_named(*block, site);
    if (where != BESIDE_NOT)
        return where == BESIDE_THERE;
    size_t usable = real_usable(*block);
    uint64_t extent = book_trailer_place((uintptr_t)*block, usable) - (uintptr_t)*block;
    if (extent >= book_trailer_whole_words(bytes) + sizeof(uint64_t))
        return true;
    void *larger = real_realloc(*block, book_trailer_request_long(bytes));
    *block = larger ? larger : *block;
    return larger != NULL;
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

/* The entry of a caller: one that has it (perhaps stale), or one to be used for it. If other callers
 * have both, a random one is replaced. Most callers of a large program are called only while it starts:
 * if it were always the second, theirs would stay in the first entries for ever. */
static struct track_site *entry_for(struct track_thread *t, uintptr_t caller)
{
    const uint64_t flags = TRACK_KEY_STALE | TRACK_KEY_WIDE | TRACK_KEY_CLOSE;
    struct track_site *first = track_site_entry(t, caller), *second = track_site_beside(first);
    if ((first->key & ~flags) == caller || !first->key)
        return first;
    if ((second->key & ~flags) == caller || !second->key)
        return second;
    t->replaced = t->replaced * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return t->replaced >> 63 ? first : second;
}

/* Inside: the site of a caller, as this thread may know it or has to ask. */
static uint32_t site_find(struct track_thread *t, uintptr_t caller, struct track_site *entry)
{
    struct tracker *tracker = t->tracker;
    uint64_t key = entry->key & ~TRACK_KEY_STALE;
    bool is_known = entry->counters && (key & ~(TRACK_KEY_WIDE | TRACK_KEY_CLOSE)) == caller;
    /* Here for another reason: its number is too large for a short trailer, or a stack is wanted. */
    if (is_known && key == entry->key)
        return t->site_numbers[entry - t->sites];
    uint64_t identity = unwind_identity(&tracker->unwind, caller);
    /* The same code is there as before somebody's dlclose(). */
    if (is_known && entry->identity == identity && identity != UINT64_MAX) {
        entry->key = key;
        return t->site_numbers[entry - t->sites];
    }
    uint32_t site = book_site_add(&tracker->writer, &t->book, tracker->account, &caller, 1,
                                  BOOK_SITE_CALLER_ONLY);
    entry->key = 0; /* a handler that finds the entry now must not believe the rest of it */
    fence_signal();
    entry->identity = identity;
    entry->short_site = beside_site(site, tracker->key.generation);
    entry->counters = NULL;
    t->site_numbers[entry - t->sites] = site;
    return site;
}

/* Is the code there the same until somebody closes a library? What a JIT compiler made may be other code at any time. A library without a
 * build-id stays, too, but cannot be told from one that took its place: see site_find(). */
static bool caller_stays(const struct track_site *entry, uintptr_t caller)
{
    struct module_object object;
    return entry->identity != UINT64_MAX || module_object_find(caller - 1, &object) == 0;
}

/* Inside, and counted: from now on this caller takes the fast way. Not one that got no site: it may have been for a moment
 * only, because somebody held the lock for too long. */
static void site_remember(struct track_thread *t, uintptr_t caller, struct track_site *entry,
                          uint32_t site)
{
    struct book_site_counters *page = t->book.site_pages[site / BOOK_SITES_PER_PAGE];
    if (!page || site == BOOK_SITE_NONE || t->site_numbers[entry - t->sites] != site ||
        !caller_stays(entry, caller))
        return;
    entry->counters = &page[site % BOOK_SITES_PER_PAGE];
    t->has_wide |= site >= BESIDE_SITES;
    fence_signal();
    entry->key = caller | (site < BESIDE_SITES ? 0 : TRACK_KEY_WIDE) |
                 (track_is_close(t, site) ? TRACK_KEY_CLOSE : 0);
}

/* Inside: count a block at the site of its caller, or of its stack if every one is wanted. */
static uint32_t alloc_count(struct track_thread *t, void **block, size_t bytes, uintptr_t caller,
                            const struct unwind_state *from)
{
    struct tracker *tracker = t->tracker;
    bool all = track_settings.stacks == TRACK_STACKS_ALL;
    uint32_t site = all ? recall_site(t, caller, from) : BOOK_SITE_NONE;
    struct track_site *entry = entry_for(t, caller);
    bool by_caller = site == BOOK_SITE_NONE;
    if (by_caller)
        site = site_find(t, caller, entry);
    if (site >= BOOK_TRAILER_SHORT_SITES && !room_make(block, bytes, site))
        site = BOOK_SITE_NONE;
    book_count_alloc_any(&tracker->writer, &t->book, bytes, place_of(tracker->account, site));
    t->folded += (int64_t)bytes;
    if (all && site != BOOK_SITE_NONE)
        recall_keep(t, site);
    else if (!all && by_caller)
        site_remember(t, caller, entry, site);
    return site;
}

static bool sample_due(struct track_thread *t, size_t bytes)
{
    t->sample_left = track_sample_left(t) - (int64_t)bytes;
    bool due = t->sample_left < 0;
    if (due)
        t->sample_left = sample_distance(t);
    track_grant(t);
    return due;
}

/* The same for a site that is sampled more often, and by this alone. */
static bool close_due(struct track_thread *t, size_t bytes)
{
    t->close_left -= (int64_t)bytes;
    bool due = t->close_left < 0;
    if (due)
        t->close_left = sample_distance_of(t, sample_close_bytes());
    return due;
}

static void *alloc_open(struct tracker *tracker, void *block, size_t bytes, uintptr_t caller,
                        const struct unwind_state *from)
{
    struct track_thread *t = track_thread_get(tracker);
    if (!t) {
        lose(BOOK_LOSS_REENTRY);
        return block;
    }
    uint32_t site = BOOK_SITE_NONE;
    bool sampled = false, counted = true, due;
    if (track_enter(t)) {
        track_pass_renew(t);
        site = alloc_count(t, &block, bytes, caller, from);
        bool due_now = sample_due(t, bytes), close = track_is_close(t, site);
        if (close)
            due_now = close_due(t, bytes);
        sampled = due_now && room_make(&block, bytes, site) && sample_alloc(t, block, bytes, close);
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
    return block;
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

/* Where all stacks are wanted: is this one known, so that nothing more has to be done? Else *ret_from is where a walk can
 * begin, or NULL. A part of its caller, from whose frame that is. */
static inline __attribute__((always_inline)) bool alloc_known(void *block, size_t bytes,
                                                              uintptr_t caller,
                                                              struct unwind_state *state,
                                                              const struct unwind_state **ret_from)
{
    struct track_thread *t = track_self;
    struct recall_found found;
    *ret_from = NULL;
    if (track_settings.stacks != TRACK_STACKS_ALL || !track_may_alloc(t, &track_page.root.pass))
        return false;
    *ret_from = state;
    if (unlikely((t->budget -= (int64_t)bytes) <= 0))
        track_tick(t);
    if (!recall_quickly(t, caller, &found, state))
        return false;
    recall_verify(t, found.site, state, 0, true);
    if (unlikely(!beside_ready(block) ||
                 !trailer_put(block, bytes, found.site, load_relaxed(&t->tracker->time), false)))
        return false;
    book_add(&t->account->alloc_bytes, bytes);
    book_add(&t->account->alloc_blocks, 1);
    book_add(&found.counters->alloc_bytes, bytes);
    book_add(&found.counters->alloc_blocks, 1);
    if (unlikely(bytes >= TRACK_LARGE_BYTES))
        track_settle(t); /* it makes a peak, though it may be gone before the next tick */
    return true;
}

void *track_alloc(void *block, size_t bytes, uintptr_t caller)
{
    struct unwind_state state;
    const struct unwind_state *from;
    if (unlikely(!beside_ready(block)))
        return track_without(block);
    if (alloc_known(block, bytes, caller, &state, &from))
        return block;
    int saved = errno;
    if (track_phase_now() != TRACK_EARLY || !alloc_early(block, bytes, caller)) {
        struct tracker *tracker = tracker_now();
        if (tracker && track_wanted()) /* this call may have made a book that begins suspended */
            block = alloc_open(tracker, block, bytes, caller, from);
    }
    errno = saved;
    return block;
}

void *track_done(void *block, size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    t->budget += (int64_t)bytes;
    if (track_settings.stacks == TRACK_STACKS_ALL)
        return track_alloc(block, bytes, caller);
    bool large = bytes >= TRACK_LARGE_BYTES;
    if (large)
        track_clock(t->tracker);
    else if (t->budget <= (int64_t)bytes)
        track_tick(t);
    struct track_site *entry = site_known(t, caller);
    bool close = entry && entry->key & TRACK_KEY_CLOSE;
    if (!entry || track_sample_left(t) < (int64_t)bytes ||
        (close && t->close_left < (int64_t)bytes) ||
        !trailer_put(block, bytes, t->site_numbers[entry - t->sites],
                     load_relaxed(&t->tracker->time), false))
        return track_alloc(block, bytes, caller);
    t->budget -= (int64_t)bytes;
    if (close)
        t->close_left -= (int64_t)bytes;
    count_alloc(t, entry->counters, bytes);
    if (large)
        track_settle(t); /* it makes a peak, though it may be gone before the next tick */
    return block;
}

void *track_without(void *block)
{
    lose(BOOK_LOSS_BLOCKS_FULL);
    return block;
}

size_t track_request(size_t bytes)
{
    struct tracker *tracker = tracker_now();
    const struct book_section *sites = tracker ? tracker->writer.section[BOOK_SECTION_SITES] : NULL;
    if (sites && load_relaxed(&sites->used) >= BOOK_TRAILER_SHORT_SITES)
        return book_trailer_request_long(bytes);
    return book_trailer_request(bytes);
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
    uint32_t site = taken->trailer.site;
    uint64_t bytes = taken->trailer.bytes;
    bool sampled = taken->trailer.sampled;
    uint64_t place = place_of(tracker->account, site);
    bool due;
    if (track_enter(t)) {
        track_pass_renew(t);
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

/* The last word of a block, where a trailer ends; NULL if it has none, or is no block at all. */
static uint64_t *last_word(void *block, size_t usable)
{
    uint64_t at = usable < sizeof(uint64_t) ? 0 : book_trailer_place((uintptr_t)block, usable);
    return at < (uintptr_t)block ? NULL : (uint64_t *)at;
}

struct track_taken track_take(void *block)
{
    struct track_taken taken = {.block = block};
    track_phase_now();
    void *place;
    switch (beside_take(early.key, block, &place, &taken.words[1], &taken.trailer)) {
    case BESIDE_THERE:
        taken.last = place;
        taken.beside = true;
        return taken;
    case BESIDE_NOTHING:
        return taken;
    case BESIDE_NOT:
        break;
    }
    uint64_t *last = last_word(block, real_usable(block));
    if (!last ||
        book_trailer_check(early.key, (uintptr_t)block, (uintptr_t)last, last, &taken.trailer) < 0)
        return taken;
    taken.last = last;
    taken.words[1] = last[0];
    last[0] = 0;
    if (!taken.trailer.is_short) {
        taken.words[0] = last[-1];
        last[-1] = 0;
    }
    return taken;
}

void track_put_back(const struct track_taken *taken)
{
    if (!taken->last)
        return;
    if (taken->beside) {
        beside_put_back(taken->last, taken->words[1]);
        return;
    }
    taken->last[0] = taken->words[1];
    if (!taken->trailer.is_short)
        taken->last[-1] = taken->words[0];
}

void track_taken_free(const struct track_taken *taken, bool moved)
{
    int saved = errno;
    enum track_phase phase = track_phase_now();
    if (phase == TRACK_OFF)
        return;
    const struct book_trailer *trailer = &taken->trailer;
    if (!taken->last) {
        lose(BOOK_LOSS_UNKNOWN_FREE);
    } else if (trailer->inherited) {
        inherited_freed(trailer->bytes);
    } else if (phase != TRACK_EARLY || !free_early(trailer->site, trailer->bytes, moved)) {
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
    size_t usable = real_usable_told(block);
    struct book_trailer trailer;
    if (beside_usable(block, &usable))
        return usable;
    const uint64_t *last = last_word(block, usable);
    if (!last ||
        book_trailer_check(early.key, (uintptr_t)block, (uintptr_t)last, last, &trailer) < 0)
        return usable;
    return trailer.usable;
}

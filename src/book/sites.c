/*
 * sites.c: call sites.
 *
 * A frame is kept as (module, address in the module's file), so a site means the same in every run.
 *
 * Stacks of a program are a tree: most differ in their innermost frames only. So a stack is entered from the outside
 * in, as far as another one already went that way, and only the rest is written, with a link to where it goes on. What
 * finds these places again is private to the writer; without it a stack is written whole, which is as right.
 */
#include <string.h>

#include "base/hash.h"
#include "book/frames.h"
#include "book/lock.h"
#include "book/writer.h"
#include "site/key.h"

/* A place in FRAMES from which a stack goes on outwards: the number of its first frame, plus 1; 0 is the end. */
typedef uint32_t place_t;

static const uint64_t *frames_at(const struct book_writer *w)
{
    return (const uint64_t *)w->at[BOOK_SECTION_FRAMES];
}

/* The place after a place, which is not the end. */
static place_t place_next(const struct book_writer *w, place_t place)
{
    uint64_t word = frames_at(w)[place];
    return BOOK_FRAME_MODULE(word) == BOOK_MODULE_LINK ? (place_t)BOOK_FRAME_OFFSET(word)
                                                       : place + 1;
}

static uint64_t place_hash(place_t outer, uint64_t frame)
{
    return hash_combine(outer, frame);
}

/* The place where `frame` is called from `outer`; 0 if there is none yet. */
static place_t place_find(struct book_writer *w, place_t outer, uint64_t frame)
{
    uint32_t cursor = 0;
    place_t found;
    while ((found = index_next(&w->places, place_hash(outer, frame), &cursor)) != 0)
        if (frames_at(w)[found - 1] == frame && place_next(w, found) == outer)
            break;
    return found;
}

/* Write frames that are called from `outer`, innermost first, and the link to it; the place of the innermost, 0 if there
 * is no room. */
static place_t frames_add(struct book_writer *w, const uint64_t *frames, size_t n, place_t outer)
{
    struct book_section *section = w->section[BOOK_SECTION_FRAMES];
    uint64_t first = section->used, *to = (uint64_t *)w->at[BOOK_SECTION_FRAMES] + first;
    if (book_section_open(w, BOOK_SECTION_FRAMES, (first + n + 1) * sizeof(*to)) < 0)
        return 0;
    memcpy(to, frames, n * sizeof(*to));
    to[n] = BOOK_FRAME(BOOK_MODULE_LINK, outer);
    store_release(&section->used, first + n + 1);
    for (size_t i = n; i-- > 0; outer = (place_t)(first + i + 1))
        if (index_add(&w->places, place_hash(outer, frames[i]), (place_t)(first + i + 1),
                      w->sealed) < 0)
            break; /* then others do not share it */
    return (place_t)(first + 1);
}

/* The place of a whole stack, entered as far as it is not there; 0 if there is no room. `places`, which may be NULL, has
 * those of its outer frames that are known, and gets the others. */
static place_t stack_enter(struct book_writer *w, const uint64_t *frames, size_t n, place_t *places)
{
    place_t at = 0, found;
    size_t known = 0, left;
    while (places && known < n && places[known] == 0)
        known++;
    left = places ? known : n;
    if (left < n)
        at = places[left];
    while (left > 0 && (found = place_find(w, at, frames[left - 1])) != 0) {
        at = found;
        left--;
    }
    if (left > 0)
        at = frames_add(w, frames, left, at);
    found = at;
    for (size_t i = 0; i < known && found != 0; i++, found = place_next(w, found))
        places[i] = found;
    return at;
}

static bool stack_is(const struct book_writer *w, const struct book_site *site,
                     const uint64_t *frames, size_t n)
{
    place_t at = site->first_frame + 1;
    for (size_t i = 0; i < n; i++, at = place_next(w, at))
        if (at == 0 || frames_at(w)[at - 1] != frames[i])
            return false;
    return at == 0;
}

/* Words from a place up to its link, which is one of them. */
static size_t words_at(const struct book_writer *w, place_t place)
{
    size_t n = 1;
    while (BOOK_FRAME_MODULE(frames_at(w)[place - 1 + n - 1]) != BOOK_MODULE_LINK)
        n++;
    return n;
}

static uint32_t site_add_locked(struct book_writer *w, uint32_t account, const uint64_t *frames,
                                size_t n, uint64_t key, uint32_t flags, place_t *places)
{
    struct book_site *sites = (struct book_site *)w->at[BOOK_SECTION_SITES];
    uint64_t hash = hash_bytes(frames, n * sizeof(frames[0]), (uint64_t)account << 32 | flags);
    uint32_t cursor = 0, found;
    while ((found = index_next(&w->sites, hash, &cursor)) != 0)
        if (sites[found].account == account && sites[found].flags == flags &&
            stack_is(w, &sites[found], frames, n))
            return found;
    int64_t number = book_entry_next(w, BOOK_SECTION_SITES, BOOK_SITES_MAX);
    place_t place = number < 0 ? 0 : stack_enter(w, frames, n, places);
    if (place == 0 || index_add(&w->sites, hash, (uint32_t)number, w->sealed) < 0)
        return BOOK_SITE_NONE;
    sites[number] = (struct book_site){
        .key = key,
        .first_frame = place - 1,
        .frames = (uint16_t)words_at(w, place),
        .flags = (uint16_t)flags,
        .time = book_time(w),
        .account = account,
    };
    book_entry_done(w, BOOK_SECTION_SITES, number);
    return (uint32_t)number;
}

uint32_t book_site_enter(struct book_writer *w, uint32_t account, const uint64_t *frames, size_t n,
                         uint64_t key, uint32_t flags)
{
    return site_add_locked(w, account, frames, n, key, flags, NULL);
}

/* Code of no module is made at run time, and made anew elsewhere while it is in use: its addresses would split a site into ever new
 * ones, which never grow. So in exact sites a run of such frames is one without an address. Sampled stacks keep theirs, by
 * which readers find names. How many frames are left. */
static size_t fold(uint64_t *frames, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        bool made = BOOK_FRAME_MODULE(frames[i]) == BOOK_MODULE_NONE;
        uint64_t frame = made ? BOOK_FRAME(BOOK_MODULE_NONE, 0) : frames[i];
        if (!made || kept == 0 || frames[kept - 1] != frame)
            frames[kept++] = frame;
    }
    return kept;
}

uint32_t book_site_add_at(struct book_writer *w, struct book_thread *t, uint32_t account,
                          const uintptr_t *pcs, size_t n, uint32_t flags, uint32_t *places)
{
    if (n == 0)
        return BOOK_SITE_NONE;
    if (n > BOOK_STACK_FRAMES_MAX) {
        n = BOOK_STACK_FRAMES_MAX;
        flags |= BOOK_SITE_CUT;
    }
    if (!book_lock_take(w, t, &w->lock))
        return BOOK_SITE_NONE;
    uint64_t key = SITE_KEY_SEED;
    for (size_t i = 0; i < n; i++)
        w->stack[i] = book_frame_of(w, pcs[i], &key);
    bool made = false;
    for (size_t i = 0; i < n && w->folds_made_code && !(flags & BOOK_SITE_SAMPLED); i++)
        made |= BOOK_FRAME_MODULE(w->stack[i]) == BOOK_MODULE_NONE;
    if (made) {
        n = fold(w->stack, n);
        places = NULL; /* they are of all frames */
    }
    uint32_t site = site_add_locked(w, account, w->stack, n, site_key_finish(key), flags, places);
    book_lock_drop(t, &w->lock);
    if (site == BOOK_SITE_NONE)
        book_lose(w, BOOK_LOSS_SITES_FULL);
    return site;
}

uint32_t book_site_add(struct book_writer *w, struct book_thread *t, uint32_t account,
                       const uintptr_t *pcs, size_t n, uint32_t flags)
{
    return book_site_add_at(w, t, account, pcs, n, flags, NULL);
}

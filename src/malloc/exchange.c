/* exchange.c: see exchange.h. */
#include "malloc/exchange.h"

#include <string.h>

#include "malloc/grind.h"
#include "malloc/huge_state.h"
#include "malloc/node.h"
#include "malloc/os.h"
#include "malloc/policy.h"
#include "malloc/source.h"
#include "malloc/thread.h"

enum {
    TRIES = 8, /* rows of macro-blocks that are looked at, */
    BEFORE_MAX =
        64, /* each so far back from the one that was found, to take it from its beginning */
    GATHER_MAX = 64, /* of those that have to move: the kernel is asked for each */
    FAILED_MAX = 4,  /* moves that the kernel refused, each of which costs units and addresses */
    DIRTY_MIN = MACRO_SLICES / 2, /* what has less memory is no better than what the kernel gives */
};
uint32_t exchange_moves_failed;
static_assert(HUGE_UNIT == (size_t)MACRO_BYTES, "the one can take the other's place");

static bool is_possible(void)
{
    return load_relaxed(&sources_n) == 1 && !os_places && !grind_on &&
           !(load_relaxed(&thread_modes) & MODE_ACCOUNT);
}

unsigned exchange_share(void)
{
    return is_possible() ? load_relaxed(&source_main.keep_share) : 0;
}

/* ---- from huge blocks to a source ---- */

static bool take_out(struct huge_range *ret)
{
    lock_take(&huge.lock);
    bool found = huge_cache_take_unit(&huge_ranges, ret);
    if (!found)
        huge_missed(HUGE_UNIT);
    lock_drop(&huge.lock);
    return found;
}

void *exchange_unit(size_t *ret_dirty)
{
    struct huge_range r;
    if (!is_possible() || !take_out(&r))
        return NULL;
    /* The end of a block, of which the rest was never mapped: now it is. */
    if (r.bytes < HUGE_UNIT && os_extend(r.at, r.bytes, HUGE_UNIT) != 0) {
        huge_retire(r);
        return NULL;
    }
    memset(r.at, 0, r.bytes < SLICE_BYTES ? r.bytes : SLICE_BYTES);
    *ret_dirty = r.bytes;
    return r.at;
}

/* ---- from a source to huge blocks; with its lock ---- */

/* A macro-block of the source in which nothing is left, with memory. There is one source: so nobody else unmaps what the map tells of. */
static bool is_spare(const struct source *s, const char *at)
{
    const struct macro *m = (const struct macro *)at;
    return map_kind(at) == MAP_MACRO && m->generation == s->generation &&
           m->n_free == MACRO_SLICES_USABLE && m->n_dirty_free >= DIRTY_MIN;
}

/* Spare ones side by side: from where one was found, to where there are enough, or no more. */
struct row {
    char *from, *to;
};

static struct row row_at(const struct source *s, struct macro *m, size_t bytes)
{
    struct row row = {.from = (char *)m, .to = (char *)m};
    for (unsigned i = 0; i < BEFORE_MAX && is_spare(s, row.from - HUGE_UNIT); i++)
        row.from -= HUGE_UNIT;
    while ((size_t)(row.to - row.from) < bytes && is_spare(s, row.to))
        row.to += HUGE_UNIT;
    return row;
}

/* Where there are enough; NULL: not found. What became empty last comes first. */
static char *row_find(const struct source *s, size_t bytes)
{
    struct row row = {NULL, NULL};
    unsigned tries = 0;
    if (load_relaxed(&sources_n) > 1) /* by now */
        return NULL;
    for (struct macro *m = s->empty; m && tries < TRIES; m = m->next_empty) {
        if ((char *)m >= row.from && (char *)m < row.to)
            continue;
        row = row_at(s, m, bytes);
        if ((size_t)(row.to - row.from) >= bytes)
            return row.from;
        tries++;
    }
    return NULL;
}

/* They leave the source. Was the kernel asked for huge pages there? */
static bool row_leave(struct source *s, char *from, size_t bytes)
{
    bool huge_page = false;
    for (char *at = from; at < from + bytes; at += HUGE_UNIT) {
        struct macro *m = (struct macro *)at;
        huge_page |= m->huge_page;
        source_macro_leave(s, m);
    }
    return huge_page;
}

/* ---- the same without the lock ---- */

/* A block that is used in a few places only shall not be filled up by the kernel. What is there stays as it is. */
static void plain_pages(char *at, size_t bytes, bool huge_page)
{
    if (huge_page)
        os_huge_page(at, bytes, false);
}

/* Side by side, where they are. */
static char *take_row(struct source *s, size_t bytes)
{
    bool huge_page = false;
    lock_take(&s->lock);
    char *at = row_find(s, bytes);
    if (at)
        huge_page = row_leave(s, at, bytes);
    lock_drop(&s->lock);
    plain_pages(at, bytes, huge_page);
    return at;
}

struct units {
    char *at[GATHER_MAX];
    unsigned n;
    bool huge_page; /* was asked for in one of them */
};

/* Side by side, or anywhere. False: there are not so many, or they are not found soon. */
static bool take_units(struct source *s, unsigned n, struct units *ret)
{
    *ret = (struct units){.n = 0};
    lock_take(&s->lock);
    char *row = row_find(s, n * HUGE_UNIT);
    for (; row && ret->n < n; ret->n++)
        ret->at[ret->n] = row + ret->n * HUGE_UNIT;
    unsigned tries = n + BEFORE_MAX;
    for (struct macro *m = s->empty; m && ret->n < n && tries > 0; m = m->next_empty, tries--)
        if (is_spare(s, (char *)m))
            ret->at[ret->n++] = (char *)m;
    for (unsigned i = 0; ret->n == n && i < n; i++)
        ret->huge_page |= row_leave(s, ret->at[i], HUGE_UNIT);
    lock_drop(&s->lock);
    return ret->n == n;
}

/* Their pages move to where they are side by side, which is a small part of the work to fetch as many; the last unit becomes longer by
 * `more`. To the kernel each is a mapping of its own from then on, unless it came from beside the one before. False: one did not move, and
 * all of them are gone. */
static bool units_move(const struct units *u, size_t more, char *to)
{
    unsigned moved = 0;
    size_t lost = 0; /* by the last move, which failed */
    while (moved < u->n && lost == 0) {
        size_t bytes = HUGE_UNIT + (moved == u->n - 1 ? more : 0);
        if (os_move_some(u->at[moved], HUGE_UNIT, bytes, to + moved * HUGE_UNIT,
                         &exchange_moves_failed))
            moved++;
        else
            lost = bytes;
    }
    if (moved == u->n)
        return true;
    for (unsigned i = moved; i < u->n; i++)
        os_unmap(u->at[i], HUGE_UNIT);
    if (moved > 0)
        os_unmap(to, moved * HUGE_UNIT);
    os_unreserve(to + moved * HUGE_UNIT + lost, (u->n - moved) * HUGE_UNIT + more - lost);
    return false;
}

/* There is no place for them together: they are the source's again, as they were. */
static void units_return(struct source *s, const struct units *u)
{
    lock_take(&s->lock);
    for (unsigned i = 0; i < u->n; i++) {
        struct macro *m = (struct macro *)u->at[i];
        map_set(m, MACRO_BYTES, MAP_MACRO);
        m->prev = NULL;
        source_macro_join(s, m);
        runs_insert(s, m, 1, MACRO_SLICES_USABLE);
        source_empty_link(s, m);
    }
    lock_drop(&s->lock);
}

static char *gather(struct source *s, unsigned n, size_t more)
{
    struct units units;
    size_t bytes = n * HUGE_UNIT + more;
    if (n > GATHER_MAX || load_relaxed(&exchange_moves_failed) >= FAILED_MAX ||
        !take_units(s, n, &units))
        return NULL;
    char *to = os_reserve(bytes, 0, HUGE_UNIT, 0);
    if (!to)
        units_return(s, &units);
    if (!to || !units_move(&units, more, to))
        return NULL;
    plain_pages(to, bytes, units.huge_page);
    return to;
}

/* Only if much of it went: a huge block is more than slices that were missed before it, and what else it needs never was there. */
static void count_missed(struct source *s, uint64_t slices)
{
    lock_take(&s->lock);
    if (s->n_purged >= s->n_refaulted + slices / 2)
        source_missed(s, slices);
    lock_drop(&s->lock);
}

/* Units move only where as much would have to go back to the kernel otherwise. Then what a block needs beyond the last whole one is
 * fetched if it is less than half a unit, instead of another one that would be cut. */
bool exchange_range(size_t bytes, struct huge_range *ret, size_t *ret_dirty)
{
    struct source *s = &source_main;
    size_t n = (bytes + HUGE_UNIT / 2) / HUGE_UNIT, dirty = (n + !n) * HUGE_UNIT;
    size_t more = bytes > dirty ? bytes - dirty : 0, whole = huge_unit_up(bytes);
    if (!is_possible() || bytes > EXCHANGE_MAX)
        return false;
    bool scarce = policy_would_yield(dirty, true);
    char *at = more && scarce ? NULL : take_row(s, whole);
    *ret = (struct huge_range){.at = at, .bytes = whole};
    *ret_dirty = whole;
    if (!at && scarce) {
        at = gather(s, (unsigned)(dirty / HUGE_UNIT), more);
        *ret = (struct huge_range){.at = at, .bytes = dirty + more};
        *ret_dirty = dirty;
    }
    if (!at && scarce && more) { /* too many to move, or they are not to be had */
        at = take_row(s, whole);
        *ret = (struct huge_range){.at = at, .bytes = whole};
        *ret_dirty = whole;
    }
    if (!at)
        count_missed(s, dirty / SLICE_BYTES);
    return at != NULL;
}

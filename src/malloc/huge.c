/* huge.c: see huge.h. */
#include "malloc/huge.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "malloc/huge_cache.h"
#include "malloc/lock.h"
#include "malloc/map.h"
#include "malloc/os.h"

/* At the start of a block's mapping. */
struct huge_block {
    uint64_t cookie;      /* tells a header from other bytes, and from one that was copied here */
    size_t mapped_bytes;  /* from here; constant while the block is in the list */
    size_t asked_bytes;   /* the same */
    uint32_t data_offset; /* from here; constant */
    uint32_t era;         /* of the process that listed it */
    struct huge_block *next, *prev; /* under the lock */
    uint64_t spare[2];
};
static_assert(sizeof(struct huge_block) == HUGE_HEADER, "one cache line before the data");

enum {
    COLOURS = 32, /* the data of neighbours begins in so many different cache lines */
    SHARE_ALL = 8,
    SHARE_USUAL = 3,
    ROOM_PART = 6,    /* of the peak may be kept above it */
    GROWTH_PART = 64, /* of a block is added where it grows by less */
    BATCH = 8,        /* ranges that are given back between two looks at the table */
};
#define LEAD   OS_PAGE_BYTES /* before data at a multiple of 2 MiB or more */
#define UNIT   MAP_UNIT_BYTES
#define COOKIE UINT64_C(0x6d656d6f69722e68)

/* Memory that is kept is cleared by hand when zeroes are wanted, which is faster than having the kernel
 * take it and fault it in again; but a large block is often used in a few places only, and is better
 * left to the kernel. */
#define CLEAR_MAX ((size_t)32 << 20)

static void begin_anew(struct lock *l);

static struct {
    struct lock lock; /* of all that follows */
    uint32_t era;     /* changes only in a child of fork */
    struct huge_block *live;
    struct huge_cache cache;
    struct huge_counts counts;
    size_t keep_bytes; /* limit set from outside */
    uint64_t age_ns;   /* the same */
    uint64_t evicted;  /* bytes that went because of a limit, and were not yet missed */
    uint64_t peak_at;  /* when the peak was last lowered */
    unsigned share;    /* of the peak that may be kept, in eighths */
} huge = {.lock = {.stale = begin_anew},
          .keep_bytes = SIZE_MAX,
          .age_ns = NS_PER_S,
          .share = SHARE_USUAL};

/* Since the beginning; any thread adds (relaxed). */
static struct {
    uint64_t fresh, reused, grown, moved, copied, back_bytes;
} totals;

static void count(uint64_t *total, uint64_t n)
{
    fetch_add_relaxed(total, n);
}

static size_t unit_up(size_t bytes)
{
    return (bytes + UNIT - 1) & ~(UNIT - 1);
}

static uint64_t cookie_of(const struct huge_block *h)
{
    return COOKIE ^ (uintptr_t)h;
}

static char *data_of(struct huge_block *h)
{
    return (char *)h + h->data_offset;
}

/* The header of the block that begins at p; NULL if none does. */
static struct huge_block *block_at(const void *p)
{
    uintptr_t unit = (uintptr_t)p & ~(UNIT - 1);
    enum map_kind kind = map_kind(p);
    if (kind == MAP_HUGE_ALONE)
        unit -= LEAD;
    else if (kind != MAP_HUGE)
        return NULL;
    struct huge_block *h = (struct huge_block *)unit;
    bool intact = load_relaxed(&h->cookie) == cookie_of(h) && data_of(h) == p;
    return intact ? h : NULL;
}

static size_t block_lead(const struct huge_block *h)
{
    return (uintptr_t)h & (UNIT - 1) ? LEAD : 0;
}

/* ---- with the lock ---- */

static void link_block(struct huge_block *h)
{
    h->era = huge.era;
    h->prev = NULL;
    h->next = huge.live;
    if (huge.live)
        huge.live->prev = h;
    huge.live = h;
}

/* False if its neighbours do not know it: then something was overwritten and all stays. */
static bool unlink_block(struct huge_block *h)
{
    if (h->era != huge.era)
        return true;
    if ((h->prev ? h->prev->next : huge.live) != h || (h->next && h->next->prev != h))
        return false;
    *(h->prev ? &h->prev->next : &huge.live) = h->next;
    if (h->next)
        h->next->prev = h->prev;
    return true;
}

static void count_in(size_t mapped, size_t asked)
{
    struct huge_counts *c = &huge.counts;
    c->blocks++;
    c->asked_bytes += asked;
    c->mapped_bytes += mapped;
    c->peak_bytes = c->peak_bytes < c->mapped_bytes ? c->mapped_bytes : c->peak_bytes;
}

static void count_out(size_t mapped, size_t asked)
{
    huge.counts.blocks--;
    huge.counts.asked_bytes -= asked;
    huge.counts.mapped_bytes -= mapped;
}

/* The peak follows what is in use downwards by an eighth in each period, and with it what is kept. */
static void lower_peak(uint64_t now)
{
    struct huge_counts *c = &huge.counts;
    if (now <= huge.peak_at) /* another thread looked at the clock later, and had the lock before */
        return;
    for (int i = 0; i < 32 && now - huge.peak_at > huge.age_ns; i++) {
        huge.peak_at += huge.age_ns + 1;
        c->peak_bytes -= (c->peak_bytes - c->mapped_bytes) / 8;
        huge.share = SHARE_USUAL;
        huge.evicted = 0;
    }
    if (now - huge.peak_at > huge.age_ns)
        huge.peak_at = now;
}

/* How much more than what is in use the process may hold: what was in use not long ago, and a little for
 * blocks of other sizes, which never fit together exactly. */
static size_t keep_room(void)
{
    const struct huge_counts *c = &huge.counts;
    return c->peak_bytes - c->mapped_bytes + c->peak_bytes / ROOM_PART;
}

/* How much may be kept. Less than half the peak unless what went was missed soon. */
static size_t keep_limit(void)
{
    size_t room = keep_room(), share = huge.counts.peak_bytes / SHARE_ALL * huge.share;
    size_t limit = room < share ? room : share;
    return limit < huge.keep_bytes ? limit : huge.keep_bytes;
}

/* Take out what must go, at most BATCH ranges. */
static unsigned collect(uint64_t now, struct huge_range *out)
{
    unsigned n = 0;
    lower_peak(now);
    uint64_t old = now > huge.age_ns ? now - huge.age_ns : 0;
    while (n < BATCH && huge_cache_take_old(&huge.cache, old, SIZE_MAX, &out[n]))
        n++;
    size_t limit = keep_limit();
    while (n < BATCH && huge.cache.bytes > limit) {
        /* Or a program with a single large block would never get it back. */
        if (huge.cache.n == 1 && huge.cache.bytes <= huge.keep_bytes &&
            huge.cache.bytes <= keep_room())
            break;
        if (!huge_cache_take_old(&huge.cache, UINT64_MAX, huge.cache.bytes - limit, &out[n]))
            break;
        huge.evicted += out[n++].bytes;
    }
    return n;
}

/* ---- without the lock ---- */

static void give_back(const struct huge_range *r)
{
    os_unmap(r->at - r->lead, r->bytes + r->lead);
}

static bool give_back_all(struct huge_range *ranges, unsigned n)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < n; i++) {
        give_back(&ranges[i]);
        bytes += ranges[i].bytes;
    }
    if (bytes)
        count(&totals.back_bytes, bytes);
    return n > 0;
}

void huge_age(uint64_t now_ns)
{
    struct huge_range out[BATCH];
    unsigned n;
    do {
        lock_take(&huge.lock);
        n = collect(now_ns, out);
        lock_drop(&huge.lock);
        give_back_all(out, n);
    } while (n == BATCH);
}

bool huge_trim(void)
{
    struct huge_range out[BATCH];
    unsigned n;
    bool any = false;
    do {
        lock_take(&huge.lock);
        for (n = 0; n < BATCH && huge_cache_take_old(&huge.cache, UINT64_MAX, SIZE_MAX, &out[n]);
             n++)
            ;
        huge.counts.peak_bytes = huge.counts.mapped_bytes;
        huge.share = SHARE_USUAL;
        huge.evicted = 0;
        lock_drop(&huge.lock);
        any |= give_back_all(out, n);
    } while (n == BATCH);
    return any;
}

void huge_yield(size_t bytes)
{
    struct huge_range r;
    for (bool found = true; found && bytes > 0;) {
        lock_take(&huge.lock);
        found = huge_cache_take_old(&huge.cache, UINT64_MAX, bytes, &r);
        lock_drop(&huge.lock);
        if (found) {
            give_back_all(&r, 1);
            bytes -= r.bytes < bytes ? r.bytes : bytes;
        }
    }
}

void huge_keep(size_t bytes, uint64_t age_ns)
{
    lock_take(&huge.lock);
    huge.keep_bytes = bytes;
    huge.age_ns = age_ns;
    lock_drop(&huge.lock);
    huge_age(clock_monotonic_coarse_ns());
}

/* With the lock, which it drops: see to it that not too much is kept. */
static void settle(uint64_t now)
{
    struct huge_range out[BATCH];
    unsigned n = collect(now, out);
    lock_drop(&huge.lock);
    give_back_all(out, n);
    if (n == BATCH)
        huge_age(now);
}

/* Keep a range, or give it back. */
static void retire(struct huge_range r)
{
    struct huge_range evicted;
    if (os_places_lack(r.at)) {
        give_back_all(&r, 1);
        return;
    }
    lock_take(&huge.lock);
    bool full = huge_cache_put(&huge.cache, r, &evicted);
    settle(r.freed_ns);
    if (full)
        give_back_all(&evicted, 1);
}

/* Something smaller that is kept, made long enough. What it lacks comes as zeroes, so its part of the
 * memory need not be faulted in again, and does not lie idle while new memory is used. */
static bool grow_kept(size_t bytes, struct huge_range *r)
{
    if (r->lead)
        os_unmap(r->at - r->lead, r->lead);
    r->lead = 0;
    int error = os_extend(r->at, r->bytes, bytes);
    if (error == -ENOMEM) {
        char *to = os_reserve(bytes, 0, UNIT, 0);
        if (to && os_move(r->at, r->bytes, bytes, to)) {
            r->at = to;
            error = 0;
        }
    }
    if (error == 0)
        r->bytes = bytes;
    return error == 0;
}

/* Memory for a block: `bytes` from a multiple of `align`, and `lead` before. What has been used before
 * has not more than *ret_dirty bytes, and comes first. */
static bool find(size_t bytes, size_t lead, size_t align, struct huge_range *ret, size_t *ret_dirty)
{
    lock_take(&huge.lock);
    bool kept = huge_cache_take(&huge.cache, bytes, lead, align, ret);
    bool small = !kept && !lead && huge_cache_take_largest(&huge.cache, bytes / 8 + 1, ret);
    if (!kept && huge.evicted >= bytes / 2) { /* that went too soon */
        huge.share = SHARE_ALL;
        huge.evicted = 0;
    }
    lock_drop(&huge.lock);
    *ret_dirty = kept || small ? ret->bytes : 0;
    if (kept) {
        if (ret->lead && !lead)
            os_unmap(ret->at - ret->lead, ret->lead);
        ret->lead = lead;
        count(&totals.reused, 1);
        return true;
    }
    if (small) {
        if (grow_kept(bytes, ret)) {
            count(&totals.grown, 1);
            return true;
        }
        give_back(ret);
    }
    char *p = os_map_lead(lead + bytes, align, lead);
    if (!p && huge_trim())
        p = os_map_lead(lead + bytes, align, lead);
    if (!p)
        return false;
    *ret = (struct huge_range){.at = p + lead, .bytes = bytes, .lead = lead};
    *ret_dirty = 0;
    count(&totals.fresh, 1);
    return true;
}

/* List a block whose header is complete but for that. */
static void publish(struct huge_block *h)
{
    uint64_t now = clock_monotonic_coarse_ns();
    lock_take(&huge.lock);
    store_relaxed(&h->cookie, cookie_of(h));
    link_block(h);
    count_in(h->mapped_bytes, h->asked_bytes);
    settle(now);
}

/* How much further on the data begins, of so many bytes that are left: always the same at one address, where it may be in the cache. */
static size_t colour_bytes(const char *at, size_t left)
{
    uint32_t colour = (uint32_t)((uintptr_t)at / UNIT) * UINT32_C(0x9e3779b1) >> 27;
    size_t wanted = colour % COLOURS * sizeof(struct huge_block);
    return wanted <= left ? wanted : 0;
}

void *huge_alloc(size_t bytes, size_t align, bool *ret_zeroed)
{
    size_t lead = align >= UNIT ? LEAD : 0, offset = lead;
    if (bytes > PTRDIFF_MAX - 2 * UNIT)
        return NULL;
    if (!lead)
        offset = align > sizeof(struct huge_block) ? align : sizeof(struct huge_block);
    struct huge_range r;
    size_t need = os_page_up(lead ? bytes + !bytes : offset + bytes), dirty;
    if (!find(need, lead, lead ? align : UNIT, &r, &dirty))
        return NULL;
    if (offset == sizeof(struct huge_block))
        offset += colour_bytes(r.at, r.bytes - offset - bytes);
    if (!map_set(r.at, 1, lead ? MAP_HUGE_ALONE : MAP_HUGE)) {
        give_back(&r);
        return NULL;
    }
    if (ret_zeroed) {
        dirty = dirty < r.bytes ? dirty : r.bytes;
        if (dirty > CLEAR_MAX && os_purge(r.at, dirty))
            dirty = 0;
        *ret_zeroed = dirty == 0;
    }
    struct huge_block *h = (struct huge_block *)(r.at - lead);
    h->mapped_bytes = lead + r.bytes;
    h->asked_bytes = bytes;
    h->data_offset = (uint32_t)offset;
    publish(h);
    return data_of(h);
}

void huge_adopt(void *start, size_t mapped, size_t asked, size_t data_offset)
{
    struct huge_block *h = start;
    h->mapped_bytes = mapped;
    h->asked_bytes = asked;
    h->data_offset = (uint32_t)data_offset;
    publish(h);
}

bool huge_free(void *p)
{
    lock_take(&huge.lock);
    struct huge_block *h = block_at(p);
    if (!h || !unlink_block(h)) {
        lock_drop(&huge.lock);
        return false;
    }
    if (h->era == huge.era)
        count_out(h->mapped_bytes, h->asked_bytes);
    store_relaxed(&h->cookie, 0);
    size_t lead = block_lead(h);
    struct huge_range r = {.at = (char *)h + lead, .bytes = h->mapped_bytes - lead, .lead = lead};
    map_set(r.at, 1, MAP_NONE);
    lock_drop(&huge.lock);
    r.freed_ns = clock_monotonic_coarse_ns();
    retire(r);
    return true;
}

size_t huge_usable(const void *p)
{
    const struct huge_block *h = block_at(p);
    return h ? h->mapped_bytes - h->data_offset : 0;
}

size_t huge_asked(const void *p)
{
    const struct huge_block *h = block_at(p);
    return h ? h->asked_bytes : 0;
}

/* ---- another size ---- */

/* A block's new extent where it is. */
static void resize(struct huge_block *h, size_t mapped, size_t asked)
{
    uint64_t now = clock_monotonic_coarse_ns();
    lock_take(&huge.lock);
    if (h->era == huge.era) {
        count_out(h->mapped_bytes, h->asked_bytes);
        count_in(mapped, asked);
    }
    h->mapped_bytes = mapped;
    h->asked_bytes = asked;
    settle(now);
}

/* If what follows the block is kept, it becomes the block's, without a fault; it may be less than is needed. */
static void grow_into_kept(struct huge_block *h, size_t mapped)
{
    char *start = (char *)h, *end = start + h->mapped_bytes;
    char *boundary = (char *)unit_up((uintptr_t)end);
    struct huge_range r;
    if (start + mapped <= boundary)
        return;
    lock_take(&huge.lock);
    bool found = huge_cache_take_at(&huge.cache, boundary, (size_t)(start + mapped - boundary), &r);
    lock_drop(&huge.lock);
    if (!found)
        return;
    if (os_extend(start, h->mapped_bytes, (size_t)(boundary - start)) == 0)
        resize(h, (size_t)(r.at + r.bytes - start), h->asked_bytes);
    else
        retire(r);
}

/* A block that grows a little grows again: a few pages more, which nobody touches before, save most of the system calls. */
static size_t with_reserve(const struct huge_block *h, size_t mapped)
{
    size_t reserve = h->mapped_bytes / GROWTH_PART;
    return mapped > h->mapped_bytes && mapped - h->mapped_bytes < reserve
               ? os_page_up(mapped + reserve)
               : mapped;
}

/* Whole units after the new end are kept for others as they are; less than that stays with the block
 * unless it is much for it. */
static void shrink(struct huge_block *h, size_t bytes)
{
    char *start = (char *)h;
    size_t mapped = h->mapped_bytes, need = os_page_up(h->data_offset + bytes);
    size_t cut = unit_up((uintptr_t)start + need) - (uintptr_t)start;
    cut = cut < mapped ? cut : mapped;
    size_t keep = cut - need > need / 4 && os_unmap(start + need, cut - need) ? need : cut;
    resize(h, keep, bytes);
    if (cut < mapped)
        retire((struct huge_range){
            .at = start + cut, .bytes = mapped - cut, .freed_ns = clock_monotonic_coarse_ns()});
}

/* Move the pages of a block to where there is room. The address map must never tell a wrong thing about
 * a place that others may have been given: so the new place is marked before it is used, and the old one
 * cleared while it is still ours. */
static struct huge_block *move(struct huge_block *h, size_t mapped)
{
    size_t lead = block_lead(h), had = h->mapped_bytes;
    enum map_kind kind = lead ? MAP_HUGE_ALONE : MAP_HUGE;
    char *from = (char *)h, *to = os_reserve(mapped, mapped / 2, UNIT, lead);
    if (!to)
        return NULL;
    if (!map_set(to + lead, 1, kind)) {
        os_unreserve(to, mapped);
        return NULL;
    }
    lock_take(&huge.lock);
    bool intact = unlink_block(h), listed = h->era == huge.era;
    lock_drop(&huge.lock);
    bool moved = false;
    if (intact) {
        map_set(from + lead, 1, MAP_NONE);
        moved = os_move(from, had, mapped, to);
        map_set(moved ? to + lead : from + lead, 1, kind);
    } else {
        os_unreserve(to, mapped);
    }
    if (!moved)
        map_set(to + lead, 1, MAP_NONE);
    if (!intact)
        return NULL;
    h = (struct huge_block *)(moved ? to : from);
    lock_take(&huge.lock);
    if (listed)
        count_out(had, h->asked_bytes);
    h->mapped_bytes = moved ? mapped : had;
    store_relaxed(&h->cookie, cookie_of(h));
    link_block(h);
    count_in(h->mapped_bytes, h->asked_bytes);
    lock_drop(&huge.lock);
    count(&totals.moved, moved);
    return moved ? h : NULL;
}

void *huge_realloc(void *p, size_t bytes)
{
    struct huge_block *h = block_at(p);
    if (!h || bytes > PTRDIFF_MAX - 2 * UNIT)
        return NULL;
    size_t usable = h->mapped_bytes - h->data_offset;
    if (bytes <= usable) {
        if (bytes < h->asked_bytes)
            shrink(h, bytes);
        else
            resize(h, h->mapped_bytes, bytes);
        return p;
    }
    size_t exact = os_page_up(h->data_offset + bytes);
    grow_into_kept(h, exact);
    exact = exact > h->mapped_bytes ? exact : h->mapped_bytes;
    size_t mapped = with_reserve(h, exact);
    int r = os_extend(h, h->mapped_bytes, mapped);
    struct huge_block *moved = r == -ENOMEM ? move(h, mapped) : NULL;
    if (r != 0 && !moved && mapped > exact && os_extend(h, h->mapped_bytes, exact) == 0) {
        mapped = exact; /* not a page more than that */
        r = 0;
    }
    if (r == 0 || moved) {
        h = moved ? moved : h;
        resize(h, mapped, bytes);
        return data_of(h);
    }
    void *q = huge_alloc(bytes, 1, NULL);
    if (!q)
        return NULL;
    memcpy(q, p, usable);
    huge_free(p);
    count(&totals.copied, 1);
    return q;
}

/* ---- figures ---- */

/* Hot is where it is to lie: every program comes here when its first macro-block is mapped. */
__attribute__((hot)) void huge_count(struct huge_counts *ret)
{
    lock_take(&huge.lock);
    *ret = huge.counts;
    ret->kept_bytes = huge.cache.bytes;
    ret->kept_ranges = huge.cache.n;
    lock_drop(&huge.lock);
    ret->total_fresh = load_relaxed(&totals.fresh);
    ret->total_reused = load_relaxed(&totals.reused);
    ret->total_grown = load_relaxed(&totals.grown);
    ret->total_moved = load_relaxed(&totals.moved);
    ret->total_copied = load_relaxed(&totals.copied);
    ret->total_back_bytes = load_relaxed(&totals.back_bytes);
}

bool huge_walk(bool (*each)(void *p, size_t usable, size_t asked, void *arg), void *arg)
{
    bool whole = true;
    lock_take(&huge.lock);
    struct huge_block *before = NULL;
    for (struct huge_block *h = huge.live; h; before = h, h = h->next) {
        whole = load_relaxed(&h->cookie) == cookie_of(h) && h->prev == before;
        if (!whole || !each(data_of(h), h->mapped_bytes - h->data_offset, h->asked_bytes, arg))
            break;
    }
    lock_drop(&huge.lock);
    return whole;
}

/* ---- fork ---- */

void huge_fork_prepare(void)
{
    lock_fork_take(&huge.lock);
}

void huge_fork_done(bool child)
{
    lock_fork_drop(&huge.lock, child);
}

/* In a child that was forked while another thread held the lock: what that thread was changing is left alone. The memory that was
 * kept is lost to the child, and blocks from before are in no list of its own, but can be freed. */
static void begin_anew(struct lock *l)
{
    huge.era++;
    huge.live = NULL;
    huge.cache.n = 0;
    huge.cache.bytes = 0;
    huge.counts = (struct huge_counts){0};
}

bool huge_lost(void)
{
    return huge.era != 0;
}

const struct huge_look huge_look = {&huge.counts, &huge.cache};

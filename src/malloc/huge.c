/* huge.c: see huge.h. */
#include "malloc/huge.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "malloc/exchange.h"
#include "malloc/huge_state.h"

enum {
    COLOURS = 32, /* the data of neighbours begins in so many different cache lines */
    SHARE_ALL = 8,
    SHARE_USUAL = 3,
    ROOM_PART = 6, /* of the peak may be kept above it */
    REST_PART = 8, /* of a block may follow it, of memory that it got from elsewhere */
    BATCH = 8,     /* ranges that are given back between two looks at the table */
};
/* Memory that is kept is cleared by hand when zeroes are wanted, which is faster than having the kernel
 * take it and fault it in again; but a large block is often used in a few places only, and is better
 * left to the kernel. */
#define CLEAR_MAX ((size_t)32 << 20)

static void begin_anew(struct lock *l);

struct huge_state huge = {.lock = {.stale = begin_anew},
                          .keep_bytes = SIZE_MAX,
                          .age_ns = NS_PER_S,
                          .share = SHARE_USUAL};

struct huge_cache huge_ranges;
struct huge_totals huge_totals;

struct huge_block *huge_block_at(const void *p)
{
    uintptr_t unit = (uintptr_t)p & ~(HUGE_UNIT - 1);
    enum map_kind kind = map_kind(p);
    if (kind == MAP_HUGE_ALONE)
        unit -= HUGE_LEAD;
    else if (kind != MAP_HUGE)
        return NULL;
    struct huge_block *h = (struct huge_block *)unit;
    bool intact = load_relaxed(&h->cookie) == huge_cookie_of(h) && huge_data_of(h) == p;
    return intact ? h : NULL;
}

/* ---- with the lock ---- */

void huge_block_link(struct huge_block *h)
{
    h->era = huge.era;
    h->prev = NULL;
    h->next = huge.live;
    if (huge.live)
        huge.live->prev = h;
    huge.live = h;
}

bool huge_block_unlink(struct huge_block *h)
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

void huge_count_in(size_t mapped, size_t asked)
{
    struct huge_counts *c = &huge.counts;
    c->blocks++;
    c->asked_bytes += asked;
    add_relaxed(&c->mapped_bytes, mapped);
    c->peak_bytes = c->peak_bytes < c->mapped_bytes ? c->mapped_bytes : c->peak_bytes;
}

void huge_count_out(size_t mapped, size_t asked)
{
    huge.counts.blocks--;
    huge.counts.asked_bytes -= asked;
    sub_relaxed(&huge.counts.mapped_bytes, mapped);
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

/* How much may be kept. Less than half the peak unless what went was missed soon, here or by slices, which can have it. */
static size_t keep_limit(void)
{
    unsigned eighths = exchange_share();
    eighths = eighths > huge.share ? eighths : huge.share;
    size_t room = keep_room(), share = huge.counts.peak_bytes / SHARE_ALL * eighths;
    size_t limit = room < share ? room : share;
    return limit < huge.keep_bytes ? limit : huge.keep_bytes;
}

/* Take out what must go, at most BATCH ranges. */
static unsigned collect(uint64_t now, struct huge_range *out)
{
    unsigned n = 0;
    lower_peak(now);
    uint64_t old = now > huge.age_ns ? now - huge.age_ns : 0;
    while (n < BATCH && huge_cache_take_old(&huge_ranges, old, SIZE_MAX, &out[n]))
        n++;
    size_t limit = keep_limit();
    while (n < BATCH && huge_ranges.bytes > limit) {
        /* Or a program with a single large block would never get it back. */
        if (huge_ranges.n == 1 && huge_ranges.bytes <= huge.keep_bytes &&
            huge_ranges.bytes <= keep_room())
            break;
        if (!huge_cache_take_old(&huge_ranges, UINT64_MAX, huge_ranges.bytes - limit, &out[n]))
            break;
        huge.evicted += out[n++].bytes;
    }
    return n;
}

void huge_missed(size_t bytes)
{
    if (huge.evicted < bytes / 2)
        return;
    huge.share = SHARE_ALL;
    huge.evicted = 0;
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
        huge_total_add(&huge_totals.back_bytes, bytes);
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
        for (n = 0; n < BATCH && huge_cache_take_old(&huge_ranges, UINT64_MAX, SIZE_MAX, &out[n]);
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

size_t huge_yield(size_t bytes)
{
    struct huge_range r;
    size_t given = 0;
    for (bool found = true; found && given < bytes;) {
        lock_take(&huge.lock);
        found = huge_cache_take_old(&huge_ranges, UINT64_MAX, bytes - given, &r);
        lock_drop(&huge.lock);
        if (found) {
            give_back_all(&r, 1);
            given += r.bytes;
        }
    }
    return given;
}

void huge_keep(size_t bytes, uint64_t age_ns)
{
    lock_take(&huge.lock);
    huge.keep_bytes = bytes;
    huge.age_ns = age_ns;
    lock_drop(&huge.lock);
    huge_age(clock_monotonic_coarse_ns());
}

void huge_settle(uint64_t now)
{
    struct huge_range out[BATCH];
    unsigned n = collect(now, out);
    lock_drop(&huge.lock);
    give_back_all(out, n);
    if (n == BATCH)
        huge_age(now);
}

void huge_retire(struct huge_range r)
{
    struct huge_range evicted;
    if (os_places_lack(r.at)) {
        give_back_all(&r, 1);
        return;
    }
    lock_take(&huge.lock);
    bool full = huge_cache_put(&huge_ranges, r, &evicted);
    huge_settle(r.freed_ns);
    if (full)
        give_back_all(&evicted, 1);
}

/* Something smaller that is kept, made long enough. What it lacks comes as zeroes, so its part of the
 * memory need not be faulted in again, and does not lie idle while new memory is used. */
static int grow_kept(size_t bytes, struct huge_range *r)
{
    if (r->lead)
        os_unmap(r->at - r->lead, r->lead);
    r->lead = 0;
    int error = os_extend(r->at, r->bytes, bytes);
    if (error == -ENOMEM) {
        char *to = os_reserve(bytes, 0, HUGE_UNIT, 0);
        if (to && os_move(r->at, r->bytes, bytes, to)) {
            r->at = to;
            error = 0;
        }
    }
    if (error == 0 && r->bytes < bytes)
        r->bytes = bytes;
    return error;
}

/* What is kept and has enough. */
static bool find_kept(size_t bytes, size_t lead, size_t align, struct huge_range *ret)
{
    lock_take(&huge.lock);
    bool found = huge_cache_take(&huge_ranges, bytes, lead, align, ret);
    lock_drop(&huge.lock);
    if (!found)
        return false;
    if (ret->lead && !lead)
        os_unmap(ret->at - ret->lead, ret->lead);
    ret->lead = lead;
    return true;
}

/* What macro-blocks have (exchange.h). The end goes, where it is much for the block. */
static bool find_units(size_t bytes, struct huge_range *ret, size_t *ret_dirty)
{
    if (!exchange_range(bytes, ret, ret_dirty))
        return false;
    if (ret->bytes - bytes > bytes / REST_PART) {
        os_unmap(ret->at + bytes, ret->bytes - bytes);
        ret->bytes = bytes;
    }
    return true;
}

/* What is kept and has less, made longer; or enough, since somebody freed it meanwhile. What cannot be,
 * since it is several mappings, stays for others; else it would lie idle. */
static bool find_less(size_t bytes, struct huge_range *ret, size_t *ret_dirty)
{
    lock_take(&huge.lock);
    bool found = huge_cache_take(&huge_ranges, bytes, 0, HUGE_UNIT, ret) ||
                 huge_cache_take_largest(&huge_ranges, bytes / 8 + 1, ret);
    huge_missed(bytes);
    lock_drop(&huge.lock);
    if (!found)
        return false;
    *ret_dirty = ret->bytes;
    int error = grow_kept(bytes, ret);
    if (error == -EFAULT)
        huge_retire(*ret);
    else if (error != 0)
        give_back(ret);
    return error == 0;
}

/* Memory for a block: `bytes` from a multiple of `align`, and `lead` before. What has been used before
 * has not more than *ret_dirty bytes, and comes first. */
static bool find(size_t bytes, size_t lead, size_t align, struct huge_range *ret, size_t *ret_dirty)
{
    if (find_kept(bytes, lead, align, ret)) {
        *ret_dirty = ret->bytes;
        huge_total_add(&huge_totals.reused, 1);
        return true;
    }
    if (!lead && find_units(bytes, ret, ret_dirty)) {
        huge_total_add(&huge_totals.reused, 1);
        return true;
    }
    if (!lead && find_less(bytes, ret, ret_dirty)) {
        huge_total_add(&huge_totals.grown, 1);
        return true;
    }
    char *p = os_map_lead(lead + bytes, align, lead);
    if (!p && huge_trim())
        p = os_map_lead(lead + bytes, align, lead);
    if (!p)
        return false;
    *ret = (struct huge_range){.at = p + lead, .bytes = bytes, .lead = lead};
    *ret_dirty = 0;
    huge_total_add(&huge_totals.fresh, 1);
    return true;
}

/* List a block whose header is complete but for that. */
static void publish(struct huge_block *h)
{
    uint64_t now = clock_monotonic_coarse_ns();
    lock_take(&huge.lock);
    store_relaxed(&h->cookie, huge_cookie_of(h));
    huge_block_link(h);
    huge_count_in(h->mapped_bytes, h->asked_bytes);
    huge_settle(now);
}

/* How much further on the data begins, of so many bytes that are left: always the same at one address, where it may be in the cache. */
static size_t colour_bytes(const char *at, size_t left)
{
    uint32_t colour = (uint32_t)((uintptr_t)at / HUGE_UNIT) * UINT32_C(0x9e3779b1) >> 27;
    size_t wanted = colour % COLOURS * sizeof(struct huge_block);
    return wanted <= left ? wanted : 0;
}

void *huge_alloc(size_t bytes, size_t align, bool *ret_zeroed)
{
    size_t lead = align >= HUGE_UNIT ? HUGE_LEAD : 0, offset = lead;
    if (bytes > PTRDIFF_MAX - 2 * HUGE_UNIT)
        return NULL;
    if (!lead)
        offset = align > sizeof(struct huge_block) ? align : sizeof(struct huge_block);
    struct huge_range r;
    size_t need = os_page_up(lead ? bytes + !bytes : offset + bytes), dirty;
    if (!find(need, lead, lead ? align : HUGE_UNIT, &r, &dirty))
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
    return huge_data_of(h);
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
    struct huge_block *h = huge_block_at(p);
    if (!h || !huge_block_unlink(h)) {
        lock_drop(&huge.lock);
        return false;
    }
    if (h->era == huge.era)
        huge_count_out(h->mapped_bytes, h->asked_bytes);
    store_relaxed(&h->cookie, 0);
    size_t lead = huge_block_lead(h);
    struct huge_range r = {.at = (char *)h + lead, .bytes = h->mapped_bytes - lead, .lead = lead};
    map_set(r.at, 1, MAP_NONE);
    lock_drop(&huge.lock);
    r.freed_ns = clock_monotonic_coarse_ns();
    huge_retire(r);
    return true;
}

size_t huge_usable(const void *p)
{
    const struct huge_block *h = huge_block_at(p);
    return h ? h->mapped_bytes - h->data_offset : 0;
}

/* ---- figures ---- */

/* Hot is where it is to lie: every program comes here when its first macro-block is mapped. */
__attribute__((hot)) void huge_held(uint64_t *ret_mapped, uint64_t *ret_kept)
{
    *ret_mapped = load_relaxed(&huge.counts.mapped_bytes);
    *ret_kept = load_relaxed(&huge_ranges.bytes);
}

void huge_count(struct huge_counts *ret)
{
    lock_take(&huge.lock);
    *ret = huge.counts;
    ret->kept_bytes = huge_ranges.bytes;
    ret->kept_ranges = huge_ranges.n;
    lock_drop(&huge.lock);
    ret->total_fresh = load_relaxed(&huge_totals.fresh);
    ret->total_reused = load_relaxed(&huge_totals.reused);
    ret->total_grown = load_relaxed(&huge_totals.grown);
    ret->total_moved = load_relaxed(&huge_totals.moved);
    ret->total_copied = load_relaxed(&huge_totals.copied);
    ret->total_back_bytes = load_relaxed(&huge_totals.back_bytes);
}

bool huge_walk(bool (*each)(void *p, size_t usable, size_t asked, void *arg), void *arg)
{
    bool whole = true;
    lock_take(&huge.lock);
    struct huge_block *before = NULL;
    for (struct huge_block *h = huge.live; h; before = h, h = h->next) {
        whole = load_relaxed(&h->cookie) == huge_cookie_of(h) && h->prev == before;
        if (!whole || !each(huge_data_of(h), h->mapped_bytes - h->data_offset, h->asked_bytes, arg))
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
    huge_ranges.n = 0;
    store_relaxed(&huge_ranges.bytes, 0);
    huge.counts = (struct huge_counts){0};
}

bool huge_lost(void)
{
    return huge.era != 0;
}

const struct huge_look huge_look = {&huge.counts, &huge_ranges};

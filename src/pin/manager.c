/* manager.c: allocations. See manager.h; copies are in copy.c, registrations in registration.c. */
#include "pin/manager.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "pin/book.h"
#include "pin/callsite.h"
#include "pin/crew.h"
#include "pin/history.h"
#include "pin/lock.h"
#include "pin/meter.h"
#include "pin/next.h"
#include "pin/registration.h"
#include "pin/stage.h"
#include "pin/state.h"
#include "pin/touch.h"

enum { FADE_NS = 1000000000 };

struct pin_manager pin_manager;
__thread bool pin_inside;
static uint32_t making; /* 1: under way, 2: done */

uint64_t pin_now_ns(void)
{
    return clock_monotonic_coarse_ns();
}

bool pin_lock(void)
{
    if (pin_lock_take(&pin_manager.lock))
        return true;
    fetch_add_relaxed(&pin_manager.counts.lock_lost, 1);
    return false;
}

void pin_unlock(void)
{
    pin_lock_give(&pin_manager.lock);
}

/* ---- start ---- */

static enum pin_policy_mode policy_mode(enum pin_mode mode)
{
    switch (mode) {
    case PIN_AUTO:
    case PIN_SHADOW:
        return PIN_POLICY_AUTO;
    case PIN_USE:
        return PIN_POLICY_USE;
    case PIN_PROFILE:
        return PIN_POLICY_PROFILE;
    default:
        return PIN_POLICY_OFF;
    }
}

static bool make(struct pin_manager *m)
{
    struct pin_cost cost;
    struct pin_policy_options options = {.mode = policy_mode(pin_settings.mode),
                                         .budget_bytes = UINT64_MAX,
                                         .lease_bytes = PIN_LEASE_BYTES,
                                         .keeps = pin_settings.unlimited};
    m->sites = region_table(PIN_SITES_ROOM * sizeof(struct pin_site));
    if (!m->sites || !callsite_init() || region_init(&m->region) < 0)
        return false;
    pin_cost_assume(&cost);
    if (!pin_settings.unlimited)
        options.price_ns_mib =
            pin_settings.price_ns_mib == UINT64_MAX ? cost.touch_ns_mib : pin_settings.price_ns_mib;
    pin_policy_init(&m->policy, &cost, &options, m->sites, PIN_SITES_ROOM);
    pin_history_load(pin_settings.history);
    return true;
}

bool pin_ready(void)
{
    uint32_t none = 0;
    if (__builtin_expect(load_acquire(&making) == 2, true))
        return load_relaxed(&pin_manager.on);
    if (pin_settings.mode == PIN_OFF || pin_inside)
        return false;
    if (!cas_acquire(&making, &none, 1))
        return false; /* for the moment */
    pin_inside = true;
    store_relaxed(&pin_manager.on, make(&pin_manager));
    pin_inside = false;
    store_release(&making, 2);
    return load_relaxed(&pin_manager.on);
}

/* In the parent and the child of a fork the lock is free. A child of a process that used the driver
 * cannot use it; its copies of our blocks are ordinary memory. */
static void before_fork(void)
{
    (void)pin_lock_take(&pin_manager.lock);
    if (callsites)
        (void)pin_lock_take(&callsites->lock);
}

static void after_fork(void)
{
    if (callsites)
        pin_lock_give(&callsites->lock);
    pin_lock_give(&pin_manager.lock);
}

static void in_child(void)
{
    struct pin_manager *m = &pin_manager;
    after_fork();
    pin_state_forget();
    pin_driver_forget();
    crew_forget();
    meter_forget();
    stage_forget();
    touch_forget();
    m->in_flight = 0;
    m->dead = m->counts.registers > 0 || m->calibrated;
    if (load_acquire(&making) != 2)
        return;
    for (uint32_t i = 1; i < m->region.n_extents; i++) {
        struct extent *e = &m->region.extents[i];
        if (!e->registered_bytes && e->state == EXTENT_STILL)
            continue;
        if (e->free && e->bytes)
            region_detach(&m->region, e);
        else if (e->size)
            pin_policy_unpinned(&m->policy, &e->account, PIN_REASON_FORK);
        bool idle = e->size == 0 && e->bytes;
        e->registered_bytes = 0;
        e->state = EXTENT_STILL;
        if (idle)
            region_attach(&m->region, e);
    }
    m->policy.pinned_bytes = m->policy.pool_bytes = 0;
    m->counts.registered_bytes = 0;
}

void pin_start(void)
{
    pin_settings_read();
    if (pin_settings.mode != PIN_OFF)
        pthread_atfork(before_fork, after_fork, in_child);
}

/* ---- allocate ---- */

static uint64_t fade(uint64_t peak, uint64_t now)
{
    uint64_t lower = peak - peak / 8;
    return lower > now ? lower : now;
}

/* Recent peaks decide how much may stay warm, and registered. */
static void peaks_update(struct pin_manager *m, uint64_t now_ns)
{
    uint64_t live = m->region.live_bytes, pinned = m->policy.pinned_bytes - m->region.idle_bytes;
    if (now_ns - m->peak_at_ns > FADE_NS) {
        m->peak_at_ns = now_ns;
        m->peak_live = fade(m->peak_live, live);
        m->peak_pinned = fade(m->peak_pinned, pinned);
    }
    m->peak_live = live > m->peak_live ? live : m->peak_live;
    m->peak_pinned = pinned > m->peak_pinned ? pinned : m->peak_pinned;
    if (live > m->counts.live_bytes_peak)
        m->counts.live_bytes_peak = live;
}

/* Memory that is registered already costs nothing, so only a site whose blocks are never copied
 * goes without. */
static bool wants_pinned(const struct pin_manager *m, const struct pin_site *site)
{
    return !m->dead && !(site->known && site->mean_worth_ns_mib == 0);
}

static void clear(struct extent *e, size_t size)
{
    uint64_t dirty = e->touched < size ? e->touched : size;
    memset((void *)e->start, 0, dirty);
}

static struct extent *take(size_t size, size_t alignment, uint32_t site)
{
    struct pin_manager *m = &pin_manager;
    if (!pin_lock())
        return NULL;
    struct pin_site *at =
        pin_policy_site(&m->policy, site ? callsites->site[site].key : UINT64_MAX);
    struct extent *e = region_take(&m->region, size, alignment, wants_pinned(m, at));
    if (e) {
        bool pooled = e->registered_bytes > 0;
        e->site = site;
        if (pooled) {
            pin_policy_pool(&m->policy, -(int64_t)e->registered_bytes);
            m->counts.pool_hits++;
        }
        pin_policy_allocate(&m->policy, &e->account, at,
                            pooled ? e->registered_bytes : region_pages(size), pooled, e->carry_ns);
        e->carry_ns = 0;
        m->counts.served++;
        m->counts.served_bytes += size;
        peaks_update(m, pin_now_ns());
        pin_state_block(e);
    }
    pin_unlock();
    return e;
}

/* Mode profile registers memory before it is used. */
static void profile(struct extent *e)
{
    struct pin_copy copy;
    if (pin_settings.mode == PIN_PROFILE && pin_driver() && !pin_manager.dead) {
        pin_copy_begin(&copy, (void *)e->start, 0, PIN_TO_DEVICE, false);
        pin_copy_end(&copy, false);
    }
}

/* Memory that has no pages yet, for a thread that uses CUDA: other programs keep their threads to
 * themselves. */
static void watch(struct extent *e)
{
    static uint64_t read_at_ns, left; /* races cost a reading more */
    const struct pin_driver *d;
    CUcontext context = NULL;
    uint64_t headroom, now = pin_now_ns();
    if (e->size < TOUCH_MIN || e->resident || e->registered_bytes || !pin_settings.touch ||
        pin_manager.dead || pin_settings.mode == PIN_SHADOW || !(d = pin_driver()) ||
        d->ctxGetCurrent(&context) != CUDA_SUCCESS || !context)
        return;
    if (now - load_relaxed(&read_at_ns) > PIN_HEADROOM_MS * NS_PER_MS) {
        if (!meter_headroom(&headroom))
            return;
        store_relaxed(&left, headroom);
        store_relaxed(&read_at_ns, now);
    }
    headroom = load_relaxed(&left);
    touch_watch((void *)e->start, e->size, e->site, headroom);
    store_relaxed(&left, headroom > e->size ? headroom - e->size : 0);
}

void *pin_allocate_any(size_t size, size_t alignment, bool zero, const struct unwind_state *from)
{
    if (alignment > REGION_LARGE_UNIT || pin_inside || !pin_ready())
        return NULL;
    int saved = errno;
    pin_inside = true;
    uint32_t site = callsite_find(from);
    struct extent *e = take(size, alignment, site);
    if (e) {
        if (zero)
            clear(e, size);
        pin_book_served(e, from);
        profile(e);
        watch(e);
    }
    pin_inside = false;
    errno = saved;
    return e ? (void *)e->start : NULL;
}

void *pin_allocate(size_t size, size_t alignment, bool zero, const struct unwind_state *from)
{
    return size < pin_settings.threshold_bytes ? NULL
                                               : pin_allocate_any(size, alignment, zero, from);
}

/* ---- free ---- */

static struct extent *live_at(const void *block)
{
    struct extent *e = region_find(&pin_manager.region, block);
    return e && e->start == (uintptr_t)block && e->size ? e : NULL;
}

/* Registered memory stays for the next allocation, as far as there was that much in use lately.
 * Under the lock. */
static bool pool_takes(const struct pin_manager *m, const struct extent *e)
{
    uint64_t room = m->peak_pinned > PIN_POOL_MIN ? m->peak_pinned : PIN_POOL_MIN;
    return !m->dead &&
           (m->policy.options.keeps || m->region.idle_bytes + e->registered_bytes <= room) &&
           m->policy.pinned_bytes + e->registered_bytes <= m->policy.options.budget_bytes;
}

static void give(struct pin_manager *m, struct extent *e)
{
    uint64_t registered = e->registered_bytes;
    region_give(&m->region, e, pin_now_ns());
    if (registered)
        pin_policy_pool(&m->policy, (int64_t)registered);
    uint64_t keep = m->peak_live > PIN_WARM_MIN ? m->peak_live : PIN_WARM_MIN;
    uint64_t most = m->counts.headroom_bytes / 4;
    region_purge(&m->region, most && most < keep ? most : keep);
}

static void release(struct extent *e)
{
    struct pin_manager *m = &pin_manager;
    touch_stop((void *)e->start);
    if (!pin_lock())
        return; /* lost, and counted */
    while (load_relaxed(&e->state) != EXTENT_STILL) {
        pin_unlock();
        pin_extent_wait(e);
        if (!pin_lock())
            return;
    }
    peaks_update(m, pin_now_ns());
    e->carry_ns = pin_policy_carry(&e->account);
    pin_policy_free(&m->policy, &e->account);
    if (e->foreign)
        e->stuck = true; /* the driver has its pages until the program unregisters them */
    if (e->registered_bytes && !pool_takes(m, e))
        (void)pin_extent_unregister(e);
    pin_state_gone(e);
    give(m, e);
    pin_unlock();
}

void pin_release(void *block)
{
    int saved = errno;
    bool outer = pin_inside;
    struct extent *e = live_at(block);
    pin_inside = true;
    if (e) {
        pin_book_gone(e);
        release(e);
    } else {
        fetch_add_relaxed(&pin_manager.counts.bad_frees, 1);
    }
    pin_inside = outer;
    errno = saved;
}

size_t pin_usable(const void *block)
{
    const struct extent *e = live_at(block);
    return e ? region_pages(e->size) : 0;
}

/* ---- realloc ---- */

/* In place: the registration covers what it covered. */
static bool resize(struct extent *e, size_t size)
{
    struct pin_manager *m = &pin_manager;
    bool fits = region_pages(size) <= e->bytes && size >= e->size / 2;
    if (!fits || !pin_lock())
        return false;
    if (e->registered_bytes && region_pages(size) > e->registered_bytes) {
        pin_policy_unpinned(&m->policy, &e->account, PIN_REASON_FORK);
        fits = pin_extent_unregister(e);
    }
    if (fits) {
        uint64_t pages = region_pages(e->size);
        e->touched = e->touched > pages ? e->touched : pages;
        e->resident = e->resident > pages ? e->resident : pages;
        m->region.live_bytes += size - e->size;
        e->size = size;
        if (!e->account.pinned)
            e->account.bytes = region_pages(size);
        peaks_update(m, pin_now_ns());
        pin_state_block(e);
    }
    pin_unlock();
    return fits;
}

/* To another extent: pages move, where the old ones can be unregistered; else bytes do. */
static struct extent *move(struct extent *e, size_t size)
{
    struct pin_manager *m = &pin_manager;
    struct extent *to = take(size, 1, e->site);
    if (!to)
        return NULL;
    touch_stop((void *)e->start);
    uint64_t bytes =
        region_pages(e->size) < size ? region_pages(e->size) : size; /* all that was usable */
    bool moves = !to->registered_bytes && !e->foreign && to->space == e->space;
    if (pin_lock()) {
        bool was = e->account.pinned, paid = was && !e->account.leased;
        if (was && moves) {
            pin_policy_unpinned(&m->policy, &e->account, PIN_REASON_FORK);
            moves = pin_extent_unregister(e);
        }
        to->account.since_ns = e->account.since_ns;
        to->account.hint_hot = e->account.hint_hot;
        to->account.hint_cold = e->account.hint_cold;
        if (paid && !to->account.pinned) {
            to->account.reason = PIN_REASON_FORK;
            to->account.paused = true;
            to->account.period_saved_ns = e->account.period_saved_ns;
        }
        pin_unlock();
    } else {
        moves = false;
    }
    if (moves)
        region_move(e, to, bytes);
    else
        memcpy((void *)to->start, (const void *)e->start, bytes);
    return to;
}

void *pin_reallocate(void *block, size_t size, const struct unwind_state *from)
{
    struct extent *e = live_at(block);
    int saved = errno;
    if (!e || size == 0) {
        pin_release(block);
        return NULL;
    }
    bool outer = pin_inside;
    pin_inside = true;
    void *result = NULL;
    if (size >= pin_settings.threshold_bytes && resize(e, size)) {
        pin_book_gone(e);
        pin_book_served(e, from);
        result = block;
    } else if (size >= pin_settings.threshold_bytes && size <= REGION_LARGE_BYTES) {
        struct extent *to = move(e, size);
        if (to) {
            pin_book_served(to, from);
            pin_book_gone(e);
            release(e);
            result = (void *)to->start;
        }
    }
    if (!result) {
        result = pin_next.malloc(size);
        if (result) {
            memcpy(result, block, region_pages(e->size) < size ? region_pages(e->size) : size);
            pin_book_gone(e);
            release(e);
        } else {
            saved = ENOMEM;
        }
    }
    pin_inside = outer;
    errno = saved;
    return result;
}

int pin_hint(void *block, int hint)
{
    struct extent *e = pin_ready() ? live_at(block) : NULL;
    if (!e || !pin_lock())
        return -ENOENT;
    e->account.hint_hot = hint > 0;
    e->account.hint_cold = hint < 0;
    pin_unlock();
    return 0;
}

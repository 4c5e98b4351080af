/* registration.c: calls of the driver that register and unregister, and what they are limited by.
 * See manager.h. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "base/clock.h"
#include "pin/book.h"
#include "pin/lock.h"
#include "pin/manager.h"
#include "pin/meter.h"
#include "pin/registration.h"
#include "pin/state.h"

static uint32_t fork_watched;

/* Results after which the memory is not registered, whatever was called. */
static bool is_gone(CUresult r)
{
    return r == CUDA_SUCCESS || r == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED ||
           r == CUDA_ERROR_DEINITIALIZED || r == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static struct extent *extent_of(struct pin_account *account)
{
    return (struct extent *)((char *)account - offsetof(struct extent, account));
}

void pin_extent_wait(struct extent *e)
{
    while (load_acquire(&e->state) == EXTENT_UNREGISTERING)
        sched_yield();
}

static void registered_add(struct pin_manager *m, int64_t bytes)
{
    m->counts.registered_bytes += (uint64_t)bytes;
    if (m->counts.registered_bytes > m->counts.registered_bytes_peak)
        m->counts.registered_bytes_peak = m->counts.registered_bytes;
}

bool pin_extent_unregister(struct extent *e)
{
    struct pin_manager *m = &pin_manager;
    const struct pin_driver *d = pin_driver();
    bool shadow = pin_settings.mode == PIN_SHADOW;
    uint64_t bytes = e->registered_bytes;
    bool gone = true;
    if (!bytes)
        return true;
    store_release(&e->state, EXTENT_UNREGISTERING);
    if (!shadow && !m->dead) {
        pin_unlock();
        pin_book_unregistered(e);
        uint64_t start = clock_monotonic_ns();
        bool outer = pin_inside;
        pin_inside = true;
        gone = d && is_gone(pin_driver_unregister(d, (void *)e->start, e->context));
        pin_inside = outer;
        fetch_add_relaxed(&m->counts.unregister_ns, clock_monotonic_ns() - start);
        while (!pin_lock_take(&m->lock))
            ; /* what follows must be done */
    }
    if (gone) {
        m->counts.unregisters++;
        registered_add(m, -(int64_t)bytes);
        e->registered_bytes = 0;
    } else {
        m->counts.unregister_failed++;
        e->stuck = true; /* the driver may still use these pages */
    }
    store_release(&e->state, EXTENT_STILL);
    return gone;
}

bool pin_extent_register(struct extent *e)
{
    struct pin_manager *m = &pin_manager;
    const struct pin_driver *d = pin_driver();
    uint64_t bytes = region_pages(e->size);
    CUresult r = CUDA_SUCCESS;
    if (pin_settings.mode != PIN_SHADOW) {
        if (!d || m->dead)
            return false;
        store_release(&e->state, EXTENT_REGISTERING);
        pin_unlock();
        pin_fork_watch();
        uint64_t start = clock_monotonic_ns();
        bool outer = pin_inside;
        pin_inside = true;
        r = pin_driver_register(d, (void *)e->start, bytes, &e->context);
        pin_inside = outer;
        uint64_t took = clock_monotonic_ns() - start;
        fetch_add_relaxed(&m->counts.register_ns, took);
        if (r == CUDA_SUCCESS)
            pin_book_registered(e, bytes);
        while (!pin_lock_take(&m->lock))
            ;
        if (r == CUDA_SUCCESS && pin_settings.adapt)
            pin_cost_learn_register(&m->policy.cost, bytes, took);
    }
    if (r == CUDA_SUCCESS) {
        m->counts.registers++;
        registered_add(m, (int64_t)bytes);
        e->registered_bytes = bytes;
    } else {
        m->counts.register_failed++;
    }
    store_release(&e->state, EXTENT_STILL);
    return r == CUDA_SUCCESS;
}

void pin_trim(uint64_t keep)
{
    struct pin_manager *m = &pin_manager;
    struct extent *e;
    while (m->region.idle_bytes > keep && (e = region_idle_oldest(&m->region)) != NULL) {
        uint64_t bytes = e->registered_bytes;
        region_detach(&m->region, e);
        (void)pin_extent_unregister(e);
        pin_policy_pool(&m->policy, -(int64_t)bytes);
        region_attach(&m->region, e);
    }
}

bool pin_make_room(struct extent *e, const struct pin_decision *decision, uint64_t now_ns)
{
    struct pin_manager *m = &pin_manager;
    uint64_t budget = m->policy.options.budget_bytes;
    while (m->policy.pinned_bytes + e->account.bytes > budget) {
        uint64_t over = m->policy.pinned_bytes + e->account.bytes - budget;
        if (m->region.idle_bytes) {
            pin_trim(m->region.idle_bytes > over ? m->region.idle_bytes - over : 0);
            continue;
        }
        struct pin_account *victim =
            load_relaxed(&m->in_flight) > 1
                ? NULL
                : pin_policy_victim(&m->policy, &e->account, decision->saving_ns, now_ns);
        struct extent *of = victim ? extent_of(victim) : NULL;
        if (!of || load_relaxed(&of->state) != EXTENT_STILL)
            return false;
        pin_policy_unpinned(&m->policy, victim, PIN_REASON_EVICTED);
        (void)pin_extent_unregister(of);
        pin_state_block(of);
    }
    return true;
}

bool pin_end_leases(struct extent *e)
{
    struct pin_manager *m = &pin_manager;
    struct pin_account *victim;
    while ((victim = pin_policy_lease_victim(&m->policy, e->account.bytes)) != NULL) {
        struct extent *of = extent_of(victim);
        if (load_relaxed(&m->in_flight) > 1 || load_relaxed(&of->state) != EXTENT_STILL)
            return false;
        pin_policy_unpinned(&m->policy, victim, PIN_REASON_LEASE_ENDED);
        (void)pin_extent_unregister(of);
        pin_state_block(of);
    }
    return m->policy.leased_bytes + e->account.bytes <= m->policy.options.lease_bytes;
}

/* Of what is pinned and what is left together, half may be pinned: so a limit that shrinks
 * unpins. */
void pin_budget_refresh(uint64_t now_ns)
{
    struct pin_manager *m = &pin_manager;
    if (m->headroom_at_ns && now_ns - m->headroom_at_ns < PIN_HEADROOM_MS * NS_PER_MS)
        return;
    m->headroom_at_ns = now_ns;
    uint64_t headroom = UINT64_MAX, budget = pin_settings.budget_bytes;
    if (meter_headroom(&headroom)) {
        m->counts.headroom_bytes = headroom;
        uint64_t most = (m->counts.registered_bytes + headroom) / PIN_BUDGET_SHARE;
        budget = most < budget ? most : budget;
    }
    m->policy.options.budget_bytes = m->counts.budget_bytes = budget;
    pin_cost_forget(&m->policy.cost);
    m->policy.cost.stage_cpus = pin_settings.stage ? meter_share() : 0;
    struct extent *idle = region_idle_oldest(&m->region);
    if (idle && now_ns - idle->freed_ns > PIN_IDLE_MAX_S * NS_PER_S)
        pin_trim(m->region.idle_bytes - idle->registered_bytes);
    if (m->policy.pinned_bytes <= budget)
        return;
    uint64_t over = m->policy.pinned_bytes - budget;
    pin_trim(m->region.idle_bytes > over ? m->region.idle_bytes - over : 0);
    struct pin_account none = {.site = &m->policy.other, .since_ns = UINT64_MAX / 8, .bytes = 1};
    while (m->policy.pinned_bytes > budget && load_relaxed(&m->in_flight) <= 1) {
        struct pin_account *victim = pin_policy_victim(&m->policy, &none, 0, now_ns);
        if (!victim)
            break;
        struct extent *of = extent_of(victim);
        pin_policy_unpinned(&m->policy, victim, PIN_REASON_EVICTED);
        (void)pin_extent_unregister(of);
        pin_state_block(of);
    }
}

/* ---- all at once ---- */

void pin_unregister_all(enum pin_reason reason)
{
    struct pin_manager *m = &pin_manager;
    if (!load_relaxed(&m->on) || !load_relaxed(&m->counts.registered_bytes) || !pin_lock())
        return;
    pin_trim(0);
    for (uint32_t i = 1; i < m->region.n_extents; i++) {
        struct extent *e = &m->region.extents[i];
        if (!e->size || !e->registered_bytes || load_relaxed(&e->state) != EXTENT_STILL)
            continue;
        pin_policy_unpinned(&m->policy, &e->account, reason);
        (void)pin_extent_unregister(e);
        pin_state_block(e);
        m->counts.fork_unregistered++;
    }
    pin_unlock();
}

/* The kernel copies pinned pages for a child at fork, which takes ten times as long as
 * unregistering and registering again. */
static void before_fork(void)
{
    struct pin_manager *m = &pin_manager;
    fetch_add_relaxed(&m->counts.forks, 1);
    if (pin_settings.mode != PIN_SHADOW && load_relaxed(&m->in_flight) == 0)
        pin_unregister_all(PIN_REASON_FORK);
}

/* Handlers run in the reverse order of their registration. The driver has its own, which may hold
 * its locks: ours must come before these, so it is registered after them. */
void pin_fork_watch(void)
{
    uint32_t none = 0;
    if (cas_relaxed(&fork_watched, &none, 1))
        pthread_atfork(before_fork, NULL, NULL);
}

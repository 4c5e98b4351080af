/* copy.c: copies of served memory, and what the program does with registrations of its own. See
 * manager.h. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "pin/calibrate.h"
#include "pin/manager.h"
#include "pin/registration.h"
#include "pin/stage.h"
#include "pin/state.h"
#include "pin/touch.h"

static struct extent *extent_at(const void *host)
{
    struct extent *e = pin_owns(host) ? region_find(&pin_manager.region, host) : NULL;
    return e && load_relaxed(&e->size) ? e : NULL;
}

/* Wait until nobody unregisters it. The lock is held before and after; false: it could not be taken
 * again. */
static bool settle(struct extent *e)
{
    while (load_relaxed(&e->state) == EXTENT_UNREGISTERING) {
        pin_unlock();
        pin_extent_wait(e);
        if (!pin_lock())
            return false;
    }
    return true;
}

/* The lock is held, and given up while the driver works. */
static void promote(struct extent *e, struct pin_decision *d, uint64_t now_ns)
{
    struct pin_manager *m = &pin_manager;
    if (load_relaxed(&e->state) != EXTENT_STILL || e->foreign)
        return;
    if (d->lease && !pin_end_leases(e))
        return;
    if (!pin_make_room(e, d, now_ns)) {
        e->account.reason = PIN_REASON_BUDGET;
        return;
    }
    if (pin_extent_register(e)) {
        pin_policy_promoted(&m->policy, &e->account, d, now_ns);
        m->counts.pinning_ns += pin_cost_pin_ns(&m->policy.cost, e->account.bytes);
    } else {
        pin_policy_failed(&m->policy, &e->account);
    }
}

/* Memory that the program has registered, or that a graph refers to, is the driver's matter. */
static unsigned stage_threads(const struct extent *e, const void *host, uint64_t bytes,
                              enum pin_direction to)
{
    const struct pin_manager *m = &pin_manager;
    uint64_t room = e->start + e->size - (uintptr_t)host;
    if (e->foreign || e->stuck || e->account.pinned || e->account.reason == PIN_REASON_GRAPH ||
        m->dead || bytes > room)
        return 0;
    return pin_cost_stage_threads(&m->policy.cost, bytes, to);
}

/* Memory that the program maps itself: it is staged, too, if the driver takes it for pageable. */
static unsigned stage_threads_other(const void *host, uint64_t bytes, enum pin_direction to)
{
    struct pin_manager *m = &pin_manager;
    if (!pin_ready() || m->dead || !stage_is_pageable(host, bytes))
        return 0;
    pin_calibrate_once();
    if (!pin_lock())
        return 0;
    pin_budget_refresh(pin_now_ns());
    unsigned threads = pin_cost_stage_threads(&m->policy.cost, bytes, to);
    pin_unlock();
    return threads;
}

static void begin(struct pin_copy *copy, const void *host, uint64_t bytes, enum pin_direction to,
                  bool captured)
{
    struct pin_manager *m = &pin_manager;
    unsigned others = fetch_add_acq_rel(&m->in_flight, 1);
    struct extent *e = extent_at(host);
    if (!e) {
        fetch_add_relaxed(&m->counts.other_copies, bytes > 0);
        fetch_add_relaxed(&m->counts.other_copied_bytes, bytes);
        if (bytes >= PIN_STAGE_MIN && !captured && pin_settings.stage && !pin_owns(host))
            copy->stage_threads = stage_threads_other(host, bytes, to);
        return;
    }
    pin_calibrate_once();
    if (!pin_lock()) {
        copy->pinned = load_acquire(&e->registered_bytes) > 0;
        return;
    }
    uint64_t now_ns = pin_now_ns();
    copy->extent = e;
    if (settle(e)) {
        struct pin_account *a = &e->account;
        if (captured && !a->fixed) {
            a->fixed = true;
            a->reason = a->pinned ? a->reason : PIN_REASON_GRAPH;
        }
        pin_budget_refresh(now_ns);
        struct pin_decision d =
            bytes ? pin_policy_before_copy(&m->policy, a, bytes, to, others, now_ns)
                  : pin_policy_before_use(&m->policy, a, now_ns);
        if (d.promote)
            promote(e, &d, now_ns);
        copy->pinned = (e->registered_bytes || load_relaxed(&e->state) != EXTENT_STILL) &&
                       pin_settings.mode != PIN_SHADOW;
        if (!copy->pinned && !captured)
            copy->stage_threads = stage_threads(e, host, bytes, to);
        pin_unlock();
    }
}

void pin_copy_begin(struct pin_copy *copy, const void *host, uint64_t bytes, enum pin_direction to,
                    bool captured)
{
    *copy = (struct pin_copy){.host = host, .bytes = bytes, .to = to};
    begin(copy, host, bytes, to, captured);
    if (pin_settings.mode == PIN_SHADOW)
        copy->started_ns = clock_monotonic_ns();
}

/* Mode shadow: what this copy took, where it would have been another. Under the lock. */
static void observe(const struct pin_copy *copy, bool pinned, uint64_t end_ns)
{
    if (copy->started_ns && (pinned || copy->stage_threads))
        pin_policy_observed(&pin_manager.policy, copy->bytes, copy->to, pinned,
                            end_ns - copy->started_ns);
}

/* Under the lock. */
static void learn(const struct pin_copy *copy)
{
    if (copy->staged && pin_settings.adapt)
        pin_cost_learn_staged(&pin_manager.policy.cost, copy->stage_threads, copy->bytes, copy->to,
                              copy->waited_ns, copy->staged_ns);
}

void pin_copy_end(struct pin_copy *copy, bool done)
{
    struct pin_manager *m = &pin_manager;
    struct extent *e = copy->extent;
    uint64_t end_ns = copy->started_ns ? clock_monotonic_ns() : 0;
    bool shadow = copy->stage_threads && pin_settings.mode == PIN_SHADOW;
    if (!e && done && (copy->staged || shadow) && pin_lock()) {
        pin_policy_staged(&m->policy, NULL, copy->bytes, copy->to);
        observe(copy, false, end_ns);
        learn(copy);
        m->counts.staged_copies += copy->staged;
        m->counts.staged_bytes += copy->staged ? copy->bytes : 0;
        pin_unlock();
    }
    if (e && done && pin_lock()) {
        pin_policy_copied(&m->policy, &e->account, copy->bytes, copy->to, pin_now_ns());
        observe(copy, e->account.pinned, end_ns);
        learn(copy);
        m->counts.copies[copy->to]++;
        m->counts.copied_bytes[copy->to] += copy->bytes;
        if (copy->pinned) {
            m->counts.pinned_copies++;
            m->counts.pinned_copied_bytes += copy->bytes;
        }
        /* Mode shadow stages nothing, and counts what would have been. */
        if (copy->staged || shadow)
            pin_policy_staged(&m->policy, &e->account, copy->bytes, copy->to);
        m->counts.staged_copies += copy->staged;
        m->counts.staged_bytes += copy->staged ? copy->bytes : 0;
        pin_state_block(e);
        pin_unlock();
    }
    fetch_sub_release(&m->in_flight, 1);
}

void pin_graph_uses(const void *host)
{
    struct extent *e = extent_at(host);
    if (!e || !pin_lock())
        return;
    if (settle(e)) {
        e->account.fixed = true;
        if (!e->account.pinned)
            e->account.reason = PIN_REASON_GRAPH;
        pin_unlock();
    }
}

/* ---- registrations of the program's own ---- */

bool pin_registered(const void *address)
{
    struct extent *e = extent_at(address);
    return e && load_acquire(&e->registered_bytes) && pin_settings.mode != PIN_SHADOW;
}

/* Call `each` under the lock for every live extent in the range. */
static void range(void *address, size_t bytes, void (*each)(struct extent *e))
{
    uintptr_t at = (uintptr_t)address, end = at + bytes;
    while (at < end && pin_owns((void *)at)) {
        struct extent *e = region_find(&pin_manager.region, (void *)at);
        if (!e || !pin_lock())
            return;
        if (!settle(e))
            return;
        uintptr_t next = e->start + e->bytes;
        if (e->size)
            each(e);
        pin_unlock();
        if (next <= at)
            return;
        at = next;
    }
}

static void take_over(struct extent *e)
{
    if (e->registered_bytes) {
        pin_policy_unpinned(&pin_manager.policy, &e->account, PIN_REASON_OWN);
        (void)pin_extent_unregister(e);
    }
    e->account.fixed = true;
}

static void taken(struct extent *e)
{
    e->foreign = true;
    e->account.reason = PIN_REASON_OWN;
    pin_manager.counts.taken_over++;
    pin_state_block(e);
}

static void not_taken(struct extent *e)
{
    e->account.fixed = e->stuck;
    pin_state_block(e);
}

void pin_taking_over(void *address, size_t bytes)
{
    range(address, bytes, take_over);
}

void pin_taken_over(void *address, size_t bytes, bool done)
{
    range(address, bytes, done ? taken : not_taken);
}

static void back(struct extent *e)
{
    e->foreign = false;
    e->account.fixed = e->stuck;
    e->account.reason = PIN_REASON_NOT_YET;
    pin_state_block(e);
}

/* The program may do so after it has freed the memory. */
void pin_given_back(void *address)
{
    struct extent *e = pin_owns(address) ? region_find(&pin_manager.region, address) : NULL;
    if (!e || !pin_lock())
        return;
    if (e->size && e->foreign) {
        back(e);
    } else if (e->foreign && e->stuck) {
        e->foreign = e->stuck = false;
        region_attach(&pin_manager.region, e);
    }
    pin_unlock();
}

static void drop(struct extent *e)
{
    if (!e->registered_bytes)
        return;
    pin_policy_unpinned(&pin_manager.policy, &e->account, PIN_REASON_FORK);
    (void)pin_extent_unregister(e);
    pin_state_block(e);
}

void pin_dropping(void *address, size_t bytes)
{
    touch_stop(address);
    if (load_relaxed(&pin_manager.counts.registered_bytes))
        range(address, bytes, drop);
}

/* policy.c: see policy.h. */
#include "pin/policy.h"

#include <string.h>

#include "base/clock.h"

enum {
    MIB = 1 << 20,
    MEAN_PART = 4,     /* weight of the newest block in a site's mean: one in so many */
    EVICT_GAIN = 2,    /* a promotion must be worth so many times what it evicts */
    OBSERVED_MOST = 3, /* a copy that took longer than so many usual ones waited for other work */
};
static const uint64_t half_life_ns = 10 * NS_PER_S;    /* of savings, for eviction */
static const uint64_t interval_min_ns = 2 * NS_PER_MS; /* copies come in bursts */
static const uint64_t sum_max = UINT64_MAX / 4;

static uint64_t add(uint64_t a, uint64_t b)
{
    return a > sum_max - (b < sum_max ? b : sum_max) ? sum_max : a + b;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* value * by / over, without overflow. */
static uint64_t scale(uint64_t value, uint64_t by, uint64_t over)
{
    unsigned __int128 product = (unsigned __int128)value * by / (over ? over : 1);
    return product > sum_max ? sum_max : (uint64_t)product;
}

void pin_policy_init(struct pin_policy *policy, const struct pin_cost *cost,
                     const struct pin_policy_options *options, struct pin_site *sites,
                     size_t sites_room)
{
    memset(policy, 0, sizeof(*policy));
    policy->cost = *cost;
    policy->options = *options;
    policy->sites = sites;
    policy->sites_room = sites_room;
}

struct pin_site *pin_policy_site(struct pin_policy *policy, uint64_t key)
{
    size_t mask = policy->sites_room - 1;
    key = key ? key : 1;
    for (size_t i = key & mask, tries = 0; policy->sites_room && tries < policy->sites_room;
         i = (i + 1) & mask, tries++) {
        struct pin_site *site = &policy->sites[i];
        if (site->key == key)
            return site;
        if (site->key != 0)
            continue;
        if (policy->sites_used >= policy->sites_room / 4 * 3)
            break;
        policy->sites_used++;
        site->key = key;
        return site;
    }
    policy->other.key = UINT64_MAX;
    return &policy->other;
}

uint64_t pin_policy_predicted_ns(const struct pin_site *site, uint64_t bytes)
{
    if (site->known)
        return scale(site->mean_worth_ns_mib, bytes, MIB);
    return site->live_bytes ? scale(site->live_worth_ns, bytes, site->live_bytes) : 0;
}

void pin_policy_learn(struct pin_policy *policy, uint64_t key, uint64_t worth_ns_mib,
                      uint64_t credit_ns)
{
    struct pin_site *site = pin_policy_site(policy, key);
    if (site == &policy->other)
        return;
    site->mean_worth_ns_mib = less(worth_ns_mib, sum_max);
    site->known = site->from_history = true;
    site->credit_ns = (int64_t)less(credit_ns, sum_max);
}

/* ---- what an account means for its site ---- */

/* See the top of policy.h. A live account that was never promoted adds nothing yet: its own
 * promotion may still take what it would add. Memory from a pool was paid by another account. */
static void credit_update(struct pin_account *a, bool final)
{
    int64_t now = 0;
    if (!a->pooled && (final || a->spent_ns)) {
        uint64_t best = less(a->worth_ns, a->cost_ns ? a->cost_ns : sum_max);
        now = (int64_t)less(2 * best, sum_max) - (int64_t)less(a->missed_ns + a->spent_ns, sum_max);
    }
    a->site->credit_ns += now - a->credit_ns;
    a->credit_ns = now;
}

static void list_add(struct pin_policy *policy, struct pin_account *a)
{
    a->previous = NULL;
    a->next = policy->pinned;
    if (a->next)
        a->next->previous = a;
    policy->pinned = a;
    a->listed = true;
    policy->pinned_bytes += a->bytes;
    a->site->pinned_bytes += a->bytes;
}

static void list_remove(struct pin_policy *policy, struct pin_account *a)
{
    if (!a->listed)
        return;
    if (a->previous)
        a->previous->next = a->next;
    else
        policy->pinned = a->next;
    if (a->next)
        a->next->previous = a->previous;
    a->listed = false;
    if (a->leased)
        policy->leased_bytes -= less(a->bytes, policy->leased_bytes);
    a->leased = false;
    policy->pinned_bytes -= less(a->bytes, policy->pinned_bytes);
    a->site->pinned_bytes -= less(a->bytes, a->site->pinned_bytes);
}

/* The usual time between its copies: of the last ones, or of all if that is longer, since bursts may
 * come again and again. */
static uint64_t interval_of(const struct pin_account *a)
{
    uint64_t copies = a->copies[0] + a->copies[1];
    uint64_t all = copies > 1 ? (a->copied_at_ns - a->first_at_ns) / (copies - 1) : 0;
    uint64_t most = a->interval_ns > all ? a->interval_ns : all;
    return most > interval_min_ns ? most : interval_min_ns;
}

static uint64_t recent(const struct pin_account *a, uint64_t now_ns)
{
    uint64_t idle = now_ns > a->recent_at_ns ? now_ns - a->recent_at_ns : 0;
    uint64_t halves = idle / half_life_ns;
    uint64_t value = halves > 62 ? 0 : a->recent_ns >> halves;
    uint64_t gaps = a->intervals ? less(idle / interval_of(a), UINT32_MAX) : 0;
    return gaps > 1 ? value / (gaps * gaps) : value;
}

/* ---- events ---- */

void pin_policy_allocate(struct pin_policy *policy, struct pin_account *a, struct pin_site *site,
                         uint64_t bytes, bool pooled, uint64_t carried_ns)
{
    a->site = site;
    a->bytes = bytes;
    a->pooled = a->pinned = pooled;
    a->carried_ns = pooled ? 0 : carried_ns;
    a->reason = pooled                                   ? PIN_REASON_POOL
                : policy->options.mode == PIN_POLICY_OFF ? PIN_REASON_OFF
                                                         : PIN_REASON_NONE;
    site->blocks++;
    site->bytes = add(site->bytes, bytes);
    site->live_bytes = add(site->live_bytes, bytes);
    if (pooled)
        list_add(policy, a);
}

/* What a lease does not pay, and an account only once. */
static uint64_t price_of(const struct pin_policy *policy, const struct pin_account *a)
{
    return a->paused ? 0 : scale(policy->options.price_ns_mib, a->bytes, MIB);
}

static uint64_t promotion_cost(const struct pin_policy *policy, const struct pin_account *a,
                               unsigned in_flight)
{
    uint64_t enter = pin_cost_register_ns(&policy->cost, a->bytes);
    uint64_t pin = policy->options.keeps ? enter : pin_cost_pin_ns(&policy->cost, a->bytes);
    return add(add(pin, scale(enter, in_flight, 1)), price_of(policy, a));
}

/* Of the rules at the top of policy.h, the one that promotes; or why none does. */
static enum pin_reason rule(const struct pin_policy *policy, const struct pin_account *a,
                            uint64_t saving, uint64_t cost)
{
    if (a->hint_cold)
        return PIN_REASON_HINT_COLD;
    if (a->hint_hot)
        return PIN_REASON_HINT;
    if (a->paused && a->period_saved_ns >= cost)
        return PIN_REASON_PREDICTED;
    uint64_t expected = pin_policy_predicted_ns(a->site, a->bytes);
    if (policy->options.mode == PIN_POLICY_USE)
        return a->site->from_history && expected >= cost ? PIN_REASON_HISTORY
                                                         : PIN_REASON_NOT_IN_HISTORY;
    if (saving == 0)
        return PIN_REASON_NO_GAIN;
    if (add(a->since_ns, saving) >= cost)
        return PIN_REASON_EARNED;
    uint64_t worth = less(add(a->worth_ns, saving), cost);
    int64_t credit = a->site->credit_ns - a->credit_ns + (int64_t)less(2 * worth, sum_max) -
                     (int64_t)less(a->missed_ns + a->spent_ns + cost, sum_max);
    if (credit >= 0 && add(add(a->carried_ns, a->since_ns), saving) >= cost)
        return PIN_REASON_REUSED;
    if (credit >= 0 && expected >= cost)
        return PIN_REASON_PREDICTED;
    return PIN_REASON_NOT_YET;
}

static bool promotes(enum pin_reason reason)
{
    return reason == PIN_REASON_EARNED || reason == PIN_REASON_PREDICTED ||
           reason == PIN_REASON_REUSED || reason == PIN_REASON_HISTORY ||
           reason == PIN_REASON_PROFILE || reason == PIN_REASON_HINT ||
           reason == PIN_REASON_LEASED || reason == PIN_REASON_FUNDED;
}

static struct pin_decision decide(struct pin_policy *policy, struct pin_account *a,
                                  enum pin_reason reason, struct pin_decision d, uint64_t now_ns)
{
    d.reason = reason;
    d.promote = promotes(reason);
    if (!d.promote) {
        a->reason = (uint8_t)reason;
        return d;
    }
    uint64_t budget = policy->options.budget_bytes, after = add(policy->pinned_bytes, a->bytes);
    if (after <= budget)
        return d;
    d.room_bytes = after - budget;
    if (a->bytes > budget ||
        (d.room_bytes > policy->pool_bytes && !pin_policy_victim(policy, a, d.saving_ns, now_ns))) {
        policy->denied++;
        d.promote = false;
        d.reason = PIN_REASON_BUDGET;
        a->reason = PIN_REASON_BUDGET;
    }
    return d;
}

struct pin_decision pin_policy_before_copy(struct pin_policy *policy, struct pin_account *a,
                                           uint64_t bytes, enum pin_direction to,
                                           unsigned in_flight, uint64_t now_ns)
{
    struct pin_decision d = {.reason = (enum pin_reason)a->reason};
    d.saving_ns = pin_cost_saving_ns(&policy->cost, bytes, to);
    if (policy->options.mode == PIN_POLICY_OFF || a->pinned || a->fixed)
        return d;
    d.cost_ns = promotion_cost(policy, a, in_flight);
    if (!a->spent_ns)
        a->cost_ns = in_flight ? promotion_cost(policy, a, 0) : d.cost_ns;
    if (policy->options.mode == PIN_POLICY_PROFILE)
        return decide(policy, a, a->hint_cold ? PIN_REASON_HINT_COLD : PIN_REASON_PROFILE, d,
                      now_ns);
    enum pin_reason reason = rule(policy, a, d.saving_ns, d.cost_ns);
    if (reason == PIN_REASON_NOT_YET) {
        uint64_t price = price_of(policy, a), cost = d.cost_ns - less(price, d.cost_ns);
        bool funded = price && (a->staged_ns >= price || a->site->surplus_ns >= price);
        bool lease = a->bytes <= policy->options.lease_bytes;
        if ((funded || lease) && promotes(rule(policy, a, d.saving_ns, cost))) {
            d.cost_ns = cost;
            d.funded = funded;
            d.lease = !funded;
            reason = funded ? PIN_REASON_FUNDED : PIN_REASON_LEASED;
        }
    }
    return decide(policy, a, reason, d, now_ns);
}

struct pin_decision pin_policy_before_use(struct pin_policy *policy, struct pin_account *a,
                                          uint64_t now_ns)
{
    struct pin_decision d = {.reason = (enum pin_reason)a->reason};
    enum pin_policy_mode mode = policy->options.mode;
    if (mode == PIN_POLICY_OFF || a->pinned || a->fixed || a->hint_cold ||
        (mode != PIN_POLICY_PROFILE && !a->hint_hot))
        return d;
    d.cost_ns = promotion_cost(policy, a, 0);
    return decide(policy, a, a->hint_hot ? PIN_REASON_HINT : PIN_REASON_PROFILE, d, now_ns);
}

void pin_policy_promoted(struct pin_policy *policy, struct pin_account *a,
                         const struct pin_decision *decision, uint64_t now_ns)
{
    a->pinned = true;
    a->pooled = false;
    a->reason = (uint8_t)decision->reason;
    a->cost_ns = a->paused ? add(a->cost_ns, decision->cost_ns) : decision->cost_ns;
    a->spent_ns = add(a->spent_ns, decision->cost_ns);
    a->recent_ns = decision->cost_ns; /* not the next victim before it had a chance */
    a->recent_at_ns = now_ns;
    list_add(policy, a);
    a->leased = decision->lease;
    a->period_saved_ns = 0;
    a->unpaid_ns = decision->cost_ns;
    if (decision->funded) {
        uint64_t price = price_of(policy, a);
        uint64_t *from = a->staged_ns >= price ? &a->staged_ns : &a->site->surplus_ns;
        price = less(price, *from);
        *from -= price;
        policy->funded_ns = add(policy->funded_ns, price);
    }
    if (a->leased) {
        policy->leased_bytes += a->bytes;
        policy->leases++;
    }
    policy->promotions++;
    policy->cost_ns = add(policy->cost_ns, decision->cost_ns);
    a->site->promotions++;
    a->site->cost_ns = add(a->site->cost_ns, decision->cost_ns);
    credit_update(a, false);
}

void pin_policy_failed(struct pin_policy *policy, struct pin_account *a)
{
    a->reason = PIN_REASON_FAILED;
    a->fixed = true; /* the driver would refuse again */
    policy->failures++;
}

static void interval_update(struct pin_account *a, uint64_t now_ns)
{
    uint64_t gap = now_ns > a->copied_at_ns ? now_ns - a->copied_at_ns : 0;
    if (a->copies[0] + a->copies[1] == 1) {
        a->first_at_ns = now_ns;
    } else {
        a->interval_ns = a->intervals ? (a->interval_ns * (MEAN_PART - 1) + gap) / MEAN_PART : gap;
        a->intervals = true;
    }
    a->copied_at_ns = now_ns;
}

/* Its savings have paid for its memory, too. */
static void lease_pay(struct pin_policy *policy, struct pin_account *a)
{
    uint64_t price = price_of(policy, a);
    a->leased = false;
    policy->leased_bytes -= less(a->bytes, policy->leased_bytes);
    a->reason = PIN_REASON_EARNED;
    a->unpaid_ns = 0;
    a->cost_ns = add(a->cost_ns, price);
    a->spent_ns = add(a->spent_ns, price);
    a->site->cost_ns = add(a->site->cost_ns, price);
    policy->cost_ns = add(policy->cost_ns, price);
}

void pin_policy_copied(struct pin_policy *policy, struct pin_account *a, uint64_t bytes,
                       enum pin_direction to, uint64_t now_ns)
{
    uint64_t saving = pin_cost_saving_ns(&policy->cost, bytes, to);
    struct pin_site *site = a->site;
    a->copies[to]++;
    interval_update(a, now_ns);
    a->worth_ns = add(a->worth_ns, saving);
    site->copies[to]++;
    site->copied_bytes[to] = add(site->copied_bytes[to], bytes);
    site->live_worth_ns = add(site->live_worth_ns, saving);
    if (a->pinned) {
        /* Against what the program would have had without us, so with what staging saves. */
        uint64_t whole = add(saving, pin_cost_staging_ns(&policy->cost, bytes, to));
        a->saved_ns = add(a->saved_ns, whole);
        site->saved_ns = add(site->saved_ns, whole);
        policy->saved_ns = add(policy->saved_ns, whole);
        a->recent_ns = add(recent(a, now_ns), saving); /* after interval_update() */
        a->recent_at_ns = now_ns;
        a->period_saved_ns = add(a->period_saved_ns, saving);
        if (a->leased && a->period_saved_ns >= add(a->cost_ns, price_of(policy, a))) {
            lease_pay(policy, a);
        } else if (!a->leased && !a->pooled) {
            uint64_t pays = less(a->unpaid_ns, saving);
            a->unpaid_ns -= pays;
            site->surplus_ns = add(site->surplus_ns, saving - pays);
        }
    } else {
        a->missed_ns = add(a->missed_ns, saving);
        a->since_ns = add(a->since_ns, saving);
        site->missed_ns = add(site->missed_ns, saving);
        policy->missed_ns = add(policy->missed_ns, saving);
    }
    credit_update(a, false);
}

void pin_policy_observed(struct pin_policy *policy, uint64_t bytes, enum pin_direction to,
                         bool pinned, uint64_t took_ns)
{
    uint64_t instead = pinned ? pin_cost_at(policy->cost.pinned_ns[to], bytes)
                              : pin_cost_unpinned_ns(&policy->cost, bytes, to);
    uint64_t usual = pin_cost_at(policy->cost.pageable_ns[to], bytes);
    if (took_ns / OBSERVED_MOST > usual)
        took_ns = usual;
    policy->observed_ns += (int64_t)less(took_ns, sum_max) - (int64_t)less(instead, sum_max);
}

void pin_policy_staged(struct pin_policy *policy, struct pin_account *a, uint64_t bytes,
                       enum pin_direction to)
{
    uint64_t saved = pin_cost_staging_ns(&policy->cost, bytes, to);
    policy->staged_saved_ns = add(policy->staged_saved_ns, saved);
    if (a)
        a->staged_ns = add(a->staged_ns, saved);
}

void pin_policy_unpinned(struct pin_policy *policy, struct pin_account *a, enum pin_reason reason)
{
    if (!a->pinned)
        return;
    a->paused = reason == PIN_REASON_FORK && !a->leased;
    list_remove(policy, a);
    a->pinned = false;
    a->since_ns = a->carried_ns = 0;
    a->reason = (uint8_t)reason;
    if (reason == PIN_REASON_EVICTED || reason == PIN_REASON_LEASE_ENDED) {
        policy->evictions += reason == PIN_REASON_EVICTED;
        a->site->promotions_wasted += a->saved_ns < a->spent_ns;
    }
}

void pin_policy_free(struct pin_policy *policy, struct pin_account *a)
{
    struct pin_site *site = a->site;
    if (a->pinned && !a->pooled && a->saved_ns < a->spent_ns)
        site->promotions_wasted++;
    list_remove(policy, a);
    a->pinned = false;
    credit_update(a, true);
    uint64_t worth = scale(a->worth_ns, MIB, a->bytes);
    site->mean_worth_ns_mib =
        site->known ? (site->mean_worth_ns_mib * (MEAN_PART - 1) + worth) / MEAN_PART : worth;
    site->known = true;
    site->blocks_freed++;
    site->live_bytes -= less(a->bytes, site->live_bytes);
    site->live_worth_ns -= less(a->worth_ns, site->live_worth_ns);
}

uint64_t pin_policy_carry(const struct pin_account *a)
{
    return a->pinned ? 0 : add(a->carried_ns, a->since_ns);
}

void pin_policy_pool(struct pin_policy *policy, int64_t bytes)
{
    if (bytes < 0) {
        policy->pinned_bytes -= less((uint64_t)-bytes, policy->pinned_bytes);
        policy->pool_bytes -= less((uint64_t)-bytes, policy->pool_bytes);
    } else {
        policy->pinned_bytes = add(policy->pinned_bytes, (uint64_t)bytes);
        policy->pool_bytes = add(policy->pool_bytes, (uint64_t)bytes);
    }
}

struct pin_account *pin_policy_victim(struct pin_policy *policy,
                                      const struct pin_account *candidate, uint64_t saving_ns,
                                      uint64_t now_ns)
{
    struct pin_account *worst = NULL;
    uint64_t worst_ns_mib = 0;
    uint64_t expected = pin_policy_predicted_ns(candidate->site, candidate->bytes);
    uint64_t missed = add(candidate->since_ns, saving_ns);
    uint64_t gain = scale(missed > expected ? missed : expected, MIB, candidate->bytes);
    for (struct pin_account *a = policy->pinned; a; a = a->next) {
        if (a->fixed || a == candidate)
            continue;
        uint64_t value = scale(recent(a, now_ns), MIB, a->bytes);
        if (!worst || value < worst_ns_mib) {
            worst = a;
            worst_ns_mib = value;
        }
    }
    return worst && worst_ns_mib < gain / EVICT_GAIN ? worst : NULL;
}

struct pin_account *pin_policy_lease_victim(struct pin_policy *policy, uint64_t bytes)
{
    struct pin_account *oldest = NULL;
    if (add(policy->leased_bytes, bytes) <= policy->options.lease_bytes)
        return NULL;
    for (struct pin_account *a = policy->pinned; a; a = a->next)
        if (a->leased && !a->fixed && (!oldest || a->recent_at_ns <= oldest->recent_at_ns))
            oldest = a;
    return oldest;
}

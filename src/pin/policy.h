/*
 * policy.h: which host memory to pin, and why.
 *
 * Pure: events and the cost model go in, decisions with reasons come out. No clock (callers pass
 * the time), no CUDA, no memory beside what the caller owns. One caller at a time.
 *
 * The cost of a promotion is registering, unregistering, the stall of copies that other threads
 * have under way, and a price for memory that can no longer be reclaimed. The saving is what
 * copies take less. These rules promote an allocation, each before a copy:
 *
 *   earned     The savings that it has missed, with that of this copy, reach the cost (ski rental:
 *              never more than twice the optimum).
 *   reused     The same with what earlier allocations in the same memory missed, since memory that
 *              is pinned serves later ones, too; within the site's credit.
 *   predicted  Allocations of its call site were worth more than the cost before, and the site has
 *              credit: what it may still spend so that its total stays within twice the offline
 *              optimum, whatever happens next. A promotion that pays adds to the credit.
 *   funded     Registering alone is earned or predicted, and the price of its memory was saved before:
 *              by its own copies that were staged, or by pinned allocations of its call site beyond
 *              their own cost.
 *   history    In mode `use`: a saved history says that the site is worth it.
 *
 * An allocation that was unregistered for a fork, a realloc or dropped pages has paid the price of
 * its memory: from then on only registering counts. It is promoted again at its next copy if its
 * last registration saved as much, else when the savings that it misses reach that.
 *
 * Credit is the sum over the site's allocations of 2 * min(worth, cost) - paid, where `worth` is
 * what all copies so far would save and `paid` what was spent: missed savings, and the cost if it
 * was promoted. Allocations count once they are promoted or freed. So the bound holds for all
 * traces. Credit grows by itself: a site whose allocations all turn out hot is promoted twice as
 * early each time.
 *
 * A few bytes (`lease_bytes`) have no price: an allocation that fits is leased registration as
 * soon as registering alone pays, and loses it to the next one that needs the room. When its
 * savings have paid the price of its memory, it is promoted for good. So memory that is copied a
 * few times costs little, and holds nothing for long.
 *
 * A budget limits pinned bytes. When it is full, a promotion must be worth twice as much per byte
 * as what it evicts. Savings count less by half each 10 s, and by the square of the time without a
 * copy, in units of the usual time between its copies: after 10 of these, a hundredth is left.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pin/cost.h"

enum pin_policy_mode {
    PIN_POLICY_OFF = 0,
    PIN_POLICY_AUTO = 1,
    PIN_POLICY_USE = 2,     /* by a saved history alone */
    PIN_POLICY_PROFILE = 3, /* everything */
};

/* Why an allocation is as it is. Numbers are part of the state file (state.h). */
enum pin_reason {
    PIN_REASON_NONE = 0,            /* never copied */
    PIN_REASON_NOT_YET = 1,         /* its copies have not cost enough so far */
    PIN_REASON_EARNED = 2,          /* pinned: they have */
    PIN_REASON_PREDICTED = 3,       /* pinned: its site was worth it before */
    PIN_REASON_HISTORY = 4,         /* pinned: a saved history says so */
    PIN_REASON_PROFILE = 5,         /* pinned: mode profile pins everything */
    PIN_REASON_POOL = 6,            /* pinned: it got memory that was pinned already */
    PIN_REASON_HINT = 7,            /* pinned: the program asked for it */
    PIN_REASON_BUDGET = 8,          /* not pinned: the budget is full of what is worth more */
    PIN_REASON_FAILED = 9,          /* not pinned: the driver refused */
    PIN_REASON_EVICTED = 10,        /* not pinned any more: others are worth more */
    PIN_REASON_NO_GAIN = 11,        /* not pinned: copies of this size gain nothing */
    PIN_REASON_OWN = 12,            /* the program registered it itself */
    PIN_REASON_GRAPH = 13,          /* stays as it is: part of a CUDA graph */
    PIN_REASON_FORK = 14,           /* unregistered for a fork or the like, see `paused` */
    PIN_REASON_HINT_COLD = 15,      /* not pinned: the program asked for that */
    PIN_REASON_NOT_IN_HISTORY = 16, /* mode use: the history does not say so */
    PIN_REASON_OFF = 17,
    PIN_REASON_REUSED = 18,      /* pinned: earlier allocations in this memory count, too */
    PIN_REASON_LEASED = 19,      /* pinned for a while: registering alone pays */
    PIN_REASON_LEASE_ENDED = 20, /* not pinned any more: another one needed the room */
    PIN_REASON_RING = 21,        /* pinned: the staging ring */
    PIN_REASON_FUNDED = 22,      /* pinned: registering pays, its site saved the price before */
    PIN_REASONS = 23,
};

struct pin_policy_options {
    enum pin_policy_mode mode;
    uint64_t budget_bytes; /* UINT64_MAX: no limit */
    uint64_t price_ns_mib; /* for pinned memory; 0: none */
    uint64_t lease_bytes;  /* pinned memory that has no price */
    bool keeps;            /* freed memory stays registered: unregistering costs nothing */
};

/* What is known about the allocations of one call site. */
struct pin_site {
    uint64_t key; /* site/key.h; 0: unused */
    uint64_t blocks, blocks_freed;
    uint64_t bytes; /* of all blocks */
    uint64_t copies[PIN_DIRECTIONS], copied_bytes[PIN_DIRECTIONS];
    uint64_t live_worth_ns, live_bytes; /* of the blocks that are live */
    uint64_t mean_worth_ns_mib;         /* moving average over freed blocks, or from a history */
    uint64_t missed_ns, saved_ns;       /* by copies of pageable and of pinned blocks */
    uint64_t cost_ns;                   /* of its promotions */
    uint64_t promotions, promotions_wasted; /* wasted: freed or evicted before they paid */
    uint64_t pinned_bytes;
    int64_t credit_ns;
    uint64_t surplus_ns; /* what pinned blocks saved beyond their cost, less what that has funded */
    bool known;          /* mean_worth_ns_mib has a value */
    bool from_history;
};

/* One allocation. The caller owns it and zeroes it before pin_policy_allocate(). */
struct pin_account {
    struct pin_site *site;
    uint64_t bytes;
    uint64_t worth_ns;  /* what all its copies would have saved had it been pinned */
    uint64_t missed_ns; /* of that, by pageable copies */
    uint64_t saved_ns;  /* by pinned copies */
    uint64_t
        cost_ns; /* of its promotion, with those after pauses; before one, what it would cost */
    uint64_t spent_ns; /* on all promotions */
    uint64_t since_ns; /* missed since it was last unpinned: the rule `earned` counts these */
    uint64_t
        carried_ns; /* missed by earlier allocations in this memory: the rule `reused` counts these, too */
    uint64_t recent_ns, recent_at_ns; /* savings that fade, for eviction */
    uint64_t copied_at_ns;            /* the last copy; 0: none */
    uint64_t first_at_ns;             /* and the first one */
    uint64_t interval_ns;             /* between the last copies; see `intervals` */
    uint64_t period_saved_ns;         /* since it was last pinned */
    uint64_t staged_ns;               /* what its staged copies saved, less what that has funded */
    uint64_t unpaid_ns;               /* of the last promotion's cost, not yet saved */
    int64_t credit_ns;                /* its part of the site's credit */
    uint64_t copies[PIN_DIRECTIONS];
    bool intervals;                      /* there was more than one copy */
    struct pin_account *previous, *next; /* of those that are pinned */
    uint8_t reason;                      /* enum pin_reason */
    bool pinned;
    bool listed; /* among the pinned ones */
    bool pooled; /* got pinned memory without paying */
    bool leased; /* its memory is not paid for */
    bool paused; /* unregistered for PIN_REASON_FORK: its memory is paid for */
    bool hint_hot, hint_cold;
    bool fixed; /* leave it as it is */
};

struct pin_policy {
    struct pin_cost cost;
    struct pin_policy_options options;
    struct pin_site *sites; /* the caller's memory, zeroed; a power of two */
    size_t sites_room, sites_used;
    struct pin_site other; /* what has no room in `sites` */
    struct pin_account *pinned;
    uint64_t pinned_bytes; /* of accounts and, by pin_policy_pool(), of pools */
    uint64_t leased_bytes; /* of these, in leases */
    uint64_t pool_bytes;   /* of these, in pools: they make room before any account does */
    uint64_t missed_ns, saved_ns, cost_ns;
    uint64_t funded_ns;       /* prices that surpluses paid; not in cost_ns */
    uint64_t staged_saved_ns; /* what staged copies took less than the driver's */
    int64_t observed_ns;      /* mode shadow: see pin_policy_observed() */
    uint64_t promotions, leases, evictions, failures, denied;
};

struct pin_decision {
    bool promote;
    bool lease;  /* first end leases until it fits: pin_policy_lease_victim() */
    bool funded; /* the site's surplus pays the price of the memory */
    enum pin_reason reason;
    uint64_t cost_ns;    /* of a promotion now */
    uint64_t saving_ns;  /* of this copy */
    uint64_t room_bytes; /* that must be evicted first; see pin_policy_victim() */
};

void pin_policy_init(struct pin_policy *policy, const struct pin_cost *cost,
                     const struct pin_policy_options *options, struct pin_site *sites,
                     size_t sites_room);

/* The site of this key, entered if need be. Never NULL. */
struct pin_site *pin_policy_site(struct pin_policy *policy, uint64_t key);

/* `pooled`: its memory is pinned already, at no cost. `carried_ns`: pin_policy_carry() of the last
 * allocation in the same memory. */
void pin_policy_allocate(struct pin_policy *policy, struct pin_account *account,
                         struct pin_site *site, uint64_t bytes, bool pooled, uint64_t carried_ns);

/* Before a copy of `bytes` of it. `in_flight`: threads whose copies a registration would stall.
 * Changes nothing but account->reason. */
struct pin_decision pin_policy_before_copy(struct pin_policy *policy, struct pin_account *account,
                                           uint64_t bytes, enum pin_direction to,
                                           unsigned in_flight, uint64_t now_ns);
/* The same for an allocation that is not copied yet: mode profile, hints. */
struct pin_decision pin_policy_before_use(struct pin_policy *policy, struct pin_account *account,
                                          uint64_t now_ns);

/* What came of the decision. */
void pin_policy_promoted(struct pin_policy *policy, struct pin_account *account,
                         const struct pin_decision *decision, uint64_t now_ns);
void pin_policy_failed(struct pin_policy *policy, struct pin_account *account);

/* The copy was made. */
void pin_policy_copied(struct pin_policy *policy, struct pin_account *account, uint64_t bytes,
                       enum pin_direction to, uint64_t now_ns);

/* Mode shadow, after pin_policy_copied(): a copy took `took_ns`, which would have been made from
 * `pinned` memory, or staged. Their sum is measured on one side, and so better than that of figures
 * which are calibrated on both. A copy also waits for what its stream did before, such as a kernel,
 * which pinning does not make faster: where it took several times as long as calibrated, the
 * calibrated time counts. */
void pin_policy_observed(struct pin_policy *policy, uint64_t bytes, enum pin_direction to,
                         bool pinned, uint64_t took_ns);

/* A copy of an unpinned one was staged; after pin_policy_copied(). `account`: NULL for memory that is
 * not served. */
void pin_policy_staged(struct pin_policy *policy, struct pin_account *account, uint64_t bytes,
                       enum pin_direction to);

/* It is not pinned any more, for `reason`. */
void pin_policy_unpinned(struct pin_policy *policy, struct pin_account *account,
                         enum pin_reason reason);

/* It is freed. Its memory may stay pinned in a pool: then call pin_policy_pool(), too. */
void pin_policy_free(struct pin_policy *policy, struct pin_account *account);

/* What an unpinned allocation that is freed leaves to the next one in its memory. */
uint64_t pin_policy_carry(const struct pin_account *account);

/* Pinned bytes in pools rose or fell. */
void pin_policy_pool(struct pin_policy *policy, int64_t bytes);

/* The pinned account that is worth least per byte, if it is worth less than half of what
 * `candidate` would be; NULL: none. Does not unpin it. Skips those that are `fixed`. Time grows
 * with the number of pinned accounts. */
struct pin_account *pin_policy_victim(struct pin_policy *policy,
                                      const struct pin_account *candidate, uint64_t saving_ns,
                                      uint64_t now_ns);

/* The lease to end so that `bytes` more fit: the one whose memory was not copied for longest. NULL:
 * they fit, or no lease can end. */
struct pin_account *pin_policy_lease_victim(struct pin_policy *policy, uint64_t bytes);

/* What a block of `bytes` of this site is expected to be worth. 0: nothing is known. */
uint64_t pin_policy_predicted_ns(const struct pin_site *site, uint64_t bytes);

/* A site as a saved history has it: so the first allocation can be promoted. */
void pin_policy_learn(struct pin_policy *policy, uint64_t key, uint64_t worth_ns_mib,
                      uint64_t credit_ns);

/* What the broker's questions cost: an account of time for each user (base/accountable.h).
 *
 * A user can make its own child wait without end: stop it, lower its priority, kill it late, serve its files or its memory slowly. So
 * every question is charged, whatever its result. An account that is used up is closed until all of it was given back, at an even
 * rate; until then nothing is tried for that user. The caller has the lock and the clock. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    BROKER_TIME_MS = 8000,     /* of one user, */
    BROKER_REST_S = 30,        /* given back in so much time */
    BROKER_ACCOUNTS_MAX = 256, /* users; the one that used least makes room for another */
};

struct broker_account {
    uint32_t payer;
    bool closed;
    uint64_t used_ns, at_ns; /* used as of `at_ns`; 0: a free place, or all was given back */
};

/* Zeroed at first. */
struct broker_accounts {
    struct broker_account all[BROKER_ACCOUNTS_MAX];
};

bool broker_account_open(const struct broker_accounts *accounts, uint32_t payer, uint64_t now_ns);

/* True when this closes the account. Questions that were under way at that moment are charged, too. */
bool broker_account_charge(struct broker_accounts *accounts, uint32_t payer, uint64_t took_ns,
                           uint64_t now_ns);

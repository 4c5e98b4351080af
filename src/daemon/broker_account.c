/* See broker_account.h. */
#include "daemon/broker_account.h"

#include "base/clock.h"

#define TIME_NS ((uint64_t)BROKER_TIME_MS * NS_PER_MS)

/* What is still used by now. */
static uint64_t used_now(const struct broker_account *account, uint64_t now_ns)
{
    /* Even rate: all of BROKER_TIME_MS in BROKER_REST_S. */
    uint64_t back_ns = (now_ns - account->at_ns) / (BROKER_REST_S * 1000) * BROKER_TIME_MS;
    return account->used_ns > back_ns ? account->used_ns - back_ns : 0;
}

static const struct broker_account *find(const struct broker_accounts *accounts, uint32_t payer)
{
    for (size_t i = 0; i < BROKER_ACCOUNTS_MAX; i++)
        if (accounts->all[i].used_ns && accounts->all[i].payer == payer)
            return &accounts->all[i];
    return NULL;
}

/* A place for a user that has none: the one of which the least is used. */
static struct broker_account *place(struct broker_accounts *accounts, uint64_t now_ns)
{
    struct broker_account *best = &accounts->all[0];
    for (size_t i = 1; i < BROKER_ACCOUNTS_MAX; i++)
        if (used_now(&accounts->all[i], now_ns) < used_now(best, now_ns))
            best = &accounts->all[i];
    return best;
}

bool broker_account_open(const struct broker_accounts *accounts, uint32_t payer, uint64_t now_ns)
{
    const struct broker_account *account = find(accounts, payer);
    return !account || !account->closed || used_now(account, now_ns) == 0;
}

bool broker_account_charge(struct broker_accounts *accounts, uint32_t payer, uint64_t took_ns,
                           uint64_t now_ns)
{
    struct broker_account *account = (struct broker_account *)find(accounts, payer);
    if (took_ns == 0)
        return false;
    if (!account) {
        account = place(accounts, now_ns);
        *account = (struct broker_account){.payer = payer};
    }
    uint64_t used_ns = account->used_ns ? used_now(account, now_ns) : 0;
    bool was_closed = account->closed && used_ns > 0;
    account->used_ns = used_ns + took_ns;
    account->at_ns = now_ns;
    if (was_closed || account->used_ns < TIME_NS) {
        account->closed = was_closed;
        return false;
    }
    account->used_ns = TIME_NS; /* closed for BROKER_REST_S, however late the last answer was */
    account->closed = true;
    return true;
}

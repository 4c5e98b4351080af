/* A token bucket for each user. See allowance.h. */
#include "daemon/allowance.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/accountable.h"
#include "base/clock.h"

struct user {
    uint32_t uid;
    double left;
    uint64_t at_ns; /* when `left` was right */
    uint64_t refused, told_ns;
};

struct allowance {
    double burst;
    uint64_t refill_ns;
    struct user *users;
    size_t n;
};

int allowance_new(uint64_t burst, uint64_t refill_ns, struct allowance **ret_allowance)
{
    struct allowance *allowance = calloc(1, sizeof(*allowance));
    if (!allowance)
        return -ENOMEM;
    allowance->burst = (double)burst;
    allowance->refill_ns = refill_ns;
    *ret_allowance = allowance;
    return 0;
}

void allowance_free(struct allowance *allowance)
{
    if (!allowance)
        return;
    free(allowance->users);
    free(allowance);
}

void allowance_set_burst(struct allowance *allowance, uint64_t burst)
{
    allowance->burst = (double)burst;
}

static struct user *user_new(struct allowance *allowance)
{
    if (allowance->n == ALLOWANCE_USERS_MAX) {
        struct user *idle = &allowance->users[0];
        for (size_t i = 1; i < allowance->n; i++)
            if (allowance->users[i].at_ns < idle->at_ns)
                idle = &allowance->users[i];
        return idle;
    }
    struct user *users = reallocarray(allowance->users, allowance->n + 1, sizeof(*users));
    if (!users)
        return NULL;
    allowance->users = users;
    return &users[allowance->n++];
}

static struct user *user_find(struct allowance *allowance, uint32_t uid, uint64_t now_ns)
{
    for (size_t i = 0; i < allowance->n; i++)
        if (allowance->users[i].uid == uid)
            return &allowance->users[i];
    struct user *user = user_new(allowance);
    if (user)
        *user = (struct user){.uid = uid, .left = allowance->burst, .at_ns = now_ns};
    return user;
}

bool allowance_take(struct allowance *allowance, uint32_t uid, uint64_t amount, uint64_t now_ns)
{
    if (uid == 0)
        return true;
    struct user *user = user_find(allowance, accountable_uid(uid), now_ns);
    if (!user)
        return false; /* no memory: nothing is kept that is not bounded */
    double gained =
        (double)(now_ns - user->at_ns) * allowance->burst / (double)allowance->refill_ns;
    user->at_ns = now_ns;
    user->left = user->left + gained < allowance->burst ? user->left + gained : allowance->burst;
    if (user->left < (double)amount && user->left < allowance->burst) {
        user->refused++;
        return false;
    }
    user->left -= (double)amount;
    return true;
}

void allowance_tell(struct allowance *allowance, uint64_t now_ns,
                    void (*each)(uint32_t uid, uint64_t refused, void *context), void *context)
{
    for (size_t i = 0; i < allowance->n; i++) {
        struct user *user = &allowance->users[i];
        if (user->refused == 0 ||
            (user->told_ns && now_ns - user->told_ns < ALLOWANCE_TELL_MS * NS_PER_MS))
            continue;
        each(user->uid, user->refused, context);
        user->refused = 0;
        user->told_ns = now_ns;
    }
}

/* How much of something each user may use: a token bucket for each accountable user (base/accountable.h). What goes beyond it is refused,
 * counted and told of in one line, so that one user cannot fill what all share. Root has no limit. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct allowance;

enum {
    ALLOWANCE_USERS_MAX = 4096, /* then the one that was idle longest is forgotten */
    ALLOWANCE_TELL_MS = 10000,  /* between two lines about the same user */
};

/* A full bucket holds `burst`; it fills up again in `refill_ns`. */
int allowance_new(uint64_t burst, uint64_t refill_ns, struct allowance **ret_allowance);
void allowance_free(struct allowance *allowance); /* NULL is fine */
void allowance_set_burst(struct allowance *allowance, uint64_t burst);

/* May `uid` use `amount` now? False, and counted as refused, if not. Who has a full bucket may use more
 * than it holds, so that one large thing passes. */
bool allowance_take(struct allowance *allowance, uint32_t uid, uint64_t amount, uint64_t now_ns);

/* Call `each` for every user with refusals since its last report, at most every
 * ALLOWANCE_TELL_MS each. */
void allowance_tell(struct allowance *allowance, uint64_t now_ns,
                    void (*each)(uint32_t uid, uint64_t refused, void *context), void *context);

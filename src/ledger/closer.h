/* Stacks where it grows: sites that the detector suspects are asked to be sampled more often, through the control page
 * of their books, until there are enough samples to name the line. One thread. */
#pragma once

#include <stdint.h>

struct closer;
struct growth;
struct ledger;

enum {
    CLOSER_BOOKS_MAX = 64,  /* at a time */
    CLOSER_SITES_MAX = 256, /* that are remembered, so that each is asked for once */
    CLOSER_SAMPLES = 8, /* on average; fewer than 3, which name nothing, are then one case in 70 */
};
/* A site is sampled more often until it has had CLOSER_SAMPLES at the rate at which it grows, so that sites which grow more
 * slowly get their turn; and for so long at most. */
#define CLOSER_NS UINT64_C(60000000000)
/* Judging takes time, so it is done so often. */
#define CLOSER_EVERY_NS UINT64_C(5000000000)

int closer_new(struct closer **ret_closer);
/* Takes back what was asked for; NULL is fine. */
void closer_free(struct closer *closer, const struct ledger *ledger);

/* Judge, if it is time to, and ask. `needs_ns` is how long a site has to be watched before it can be suspected (detect.h);
 * `every_ns` stands for CLOSER_EVERY_NS where it is not 0. Books that cannot be written are left as they are. */
void closer_look(struct closer *closer, struct growth *growth, const struct ledger *ledger,
                 uint64_t needs_ns, uint64_t every_ns, uint64_t now_ns);

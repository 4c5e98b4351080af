/* Has the wall clock run evenly for long enough to delete by it?
 *
 * What is too old is deleted by the wall clock, which may be years ahead for a moment. So after the start and after
 * each jump against the clock of the kernel, nothing goes for its age until STEADY_S have passed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

enum {
    STEADY_S = 600,
    STEADY_JUMP_S = 30, /* smaller corrections are not a jump */
};

struct steady {
    uint64_t real_ns, boot_ns; /* at the last look; boot_ns 0: there was none */
    uint64_t since_ns;         /* of the kernel's clock: start, or last jump */
};

/* One more look at both clocks. Zeroed at first. */
static inline bool steady_look(struct steady *s, uint64_t real_ns, uint64_t boot_ns)
{
    uint64_t expected_ns = s->real_ns + (boot_ns - s->boot_ns);
    uint64_t apart_ns = real_ns > expected_ns ? real_ns - expected_ns : expected_ns - real_ns;
    if (s->boot_ns == 0 || apart_ns > STEADY_JUMP_S * NS_PER_S)
        s->since_ns = boot_ns;
    s->real_ns = real_ns;
    s->boot_ns = boot_ns;
    return boot_ns - s->since_ns >= STEADY_S * NS_PER_S;
}

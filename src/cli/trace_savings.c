/* What pinning saves. See trace_savings.h. */
#include "cli/trace_savings.h"

#include "base/clock.h"

static uint64_t time_of(uint64_t bytes, uint64_t rate)
{
    __uint128_t ns = (__uint128_t)bytes * NS_PER_S / rate;
    return ns > UINT64_MAX ? UINT64_MAX : (uint64_t)ns;
}

uint64_t savings_ns(const struct savings_rates *rates, uint64_t bytes)
{
    uint64_t pageable = time_of(bytes, rates->pageable), pinned = time_of(bytes, rates->pinned);
    return pageable > pinned ? pageable - pinned : 0;
}

uint64_t savings_register_ns(uint64_t bytes)
{
    return time_of(bytes, NS_PER_S / SAVINGS_REGISTER_NS_PER_MB * 1000000);
}

/* advice.c: see advice.h. */
#include "pin/advice.h"

#include "pin/cost.h"

enum { MIB = 1 << 20 };

/* What memory costs that cannot be reclaimed: as the process reckons, else as assumed. */
static uint64_t price_ns_mib(const struct pin_state *state)
{
    struct pin_cost cost;
    pin_cost_assume(&cost);
    return state->magic ? state->price_ns_mib : cost.touch_ns_mib;
}

struct pin_advice pin_advice_of(const struct pin_state *state, const struct pin_state_site *site)
{
    uint64_t blocks = site->blocks ? site->blocks : 1;
    uint64_t saves = site->missed_ns > UINT64_MAX - site->saved_ns
                         ? UINT64_MAX
                         : site->missed_ns + site->saved_ns;
    struct pin_advice advice = {
        .saves_ns = saves, .each_ns = saves / blocks, .cost_bytes = site->bytes / blocks};
    unsigned __int128 price = (unsigned __int128)price_ns_mib(state) * advice.cost_bytes / MIB;
    if (saves > 0 && saves >= price)
        advice.kind = advice.each_ns >= price ? PIN_ADVICE_PIN : PIN_ADVICE_REUSE;
    return advice;
}

const char *pin_advice_word(enum pin_advice_kind kind)
{
    static const char *const words[] = {"leave", "reuse", "pin"};
    return words[kind];
}

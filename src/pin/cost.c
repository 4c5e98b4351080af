/* cost.c: see cost.h. */
#include "pin/cost.h"

#include <string.h>

enum { LAST = PIN_COST_SIZES - 1, MILLE = 1000, MILLE_MIN = 250, MILLE_MAX = 8000 };
static const uint64_t ns_max = UINT64_C(1000000000000);

static uint64_t size_at(unsigned i)
{
    return UINT64_C(1) << (PIN_COST_FIRST_SHIFT + i);
}

uint64_t pin_cost_at(const uint64_t table[static PIN_COST_SIZES], uint64_t bytes)
{
    if (bytes <= size_at(0))
        return table[0];
    if (bytes >= size_at(LAST)) {
        unsigned __int128 whole =
            (unsigned __int128)table[LAST] * bytes >> (63 - __builtin_clzll(size_at(LAST)));
        return whole > UINT64_MAX / 4 ? UINT64_MAX / 4 : (uint64_t)whole;
    }
    unsigned i = (unsigned)(63 - __builtin_clzll(bytes)) - PIN_COST_FIRST_SHIFT;
    uint64_t from = size_at(i), part = bytes - from;
    int64_t rise = (int64_t)table[i + 1] - (int64_t)table[i];
    return (uint64_t)((int64_t)table[i] +
                      (int64_t)((__int128)rise * (int64_t)part / (int64_t)from));
}

static unsigned threads_of(unsigned count)
{
    return 1u << count;
}

/* ---- what this process finds ---- */

static uint64_t found(uint64_t table_ns, uint32_t mille)
{
    return mille ? (uint64_t)((unsigned __int128)table_ns * mille / MILLE) : table_ns;
}

static void learn(uint32_t *mille, uint64_t table_ns, uint64_t took_ns)
{
    unsigned __int128 ratio = (unsigned __int128)took_ns * MILLE / (table_ns ? table_ns : 1);
    uint32_t now = ratio < MILLE_MIN ? MILLE_MIN : ratio > MILLE_MAX ? MILLE_MAX : (uint32_t)ratio;
    uint32_t before = *mille ? *mille : MILLE;
    *mille = (3 * before + now) / 4;
}

void pin_cost_learn_staged(struct pin_cost *cost, unsigned threads, uint64_t bytes,
                           enum pin_direction to, uint64_t waited_ns, uint64_t took_ns)
{
    if (waited_ns > took_ns / 2)
        return;
    for (unsigned i = 0; i < PIN_STAGE_COUNTS; i++)
        if (threads_of(i) == threads)
            learn(&cost->staged_mille[i][to], pin_cost_at(cost->staged_ns[i][to], bytes), took_ns);
}

void pin_cost_learn_register(struct pin_cost *cost, uint64_t bytes, uint64_t took_ns)
{
    learn(&cost->register_mille, pin_cost_at(cost->register_ns, bytes), took_ns);
}

static void fade(uint32_t *mille)
{
    if (*mille > MILLE)
        *mille -= (*mille - MILLE + 63) / 64;
    else if (*mille)
        *mille += (MILLE - *mille) / 64;
}

void pin_cost_forget(struct pin_cost *cost)
{
    fade(&cost->register_mille);
    for (unsigned i = 0; i < PIN_STAGE_COUNTS; i++)
        for (unsigned d = 0; d < PIN_DIRECTIONS; d++)
            fade(&cost->staged_mille[i][d]);
}

uint64_t pin_cost_register_ns(const struct pin_cost *cost, uint64_t bytes)
{
    return found(pin_cost_at(cost->register_ns, bytes), cost->register_mille);
}

/* The number of threads that is fastest, and what the copy takes then. */
static unsigned stage_best(const struct pin_cost *cost, uint64_t bytes, enum pin_direction to,
                           uint64_t *ret_ns)
{
    uint64_t pageable = pin_cost_at(cost->pageable_ns[to], bytes);
    unsigned best = 0;
    *ret_ns = pageable;
    for (unsigned i = 0; bytes >= PIN_STAGE_MIN && i < PIN_STAGE_COUNTS; i++) {
        uint64_t ns = found(pin_cost_at(cost->staged_ns[i][to], bytes), cost->staged_mille[i][to]);
        if (ns && threads_of(i) <= cost->stage_cpus && ns < *ret_ns && ns < pageable / 10 * 9) {
            best = threads_of(i);
            *ret_ns = ns;
        }
    }
    return best;
}

unsigned pin_cost_stage_threads(const struct pin_cost *cost, uint64_t bytes, enum pin_direction to)
{
    uint64_t ns;
    return stage_best(cost, bytes, to, &ns);
}

uint64_t pin_cost_unpinned_ns(const struct pin_cost *cost, uint64_t bytes, enum pin_direction to)
{
    uint64_t ns;
    (void)stage_best(cost, bytes, to, &ns);
    return ns;
}

uint64_t pin_cost_staging_ns(const struct pin_cost *cost, uint64_t bytes, enum pin_direction to)
{
    return pin_cost_at(cost->pageable_ns[to], bytes) - pin_cost_unpinned_ns(cost, bytes, to);
}

uint64_t pin_cost_saving_ns(const struct pin_cost *cost, uint64_t bytes, enum pin_direction to)
{
    uint64_t unpinned = pin_cost_unpinned_ns(cost, bytes, to);
    uint64_t pinned = pin_cost_at(cost->pinned_ns[to], bytes);
    return unpinned > pinned ? unpinned - pinned : 0;
}

uint64_t pin_cost_pin_ns(const struct pin_cost *cost, uint64_t bytes)
{
    return pin_cost_register_ns(cost, bytes) + pin_cost_at(cost->unregister_ns, bytes);
}

static bool table_valid(const uint64_t table[static PIN_COST_SIZES])
{
    for (unsigned i = 0; i < PIN_COST_SIZES; i++)
        if (table[i] < 1 || table[i] > ns_max || (i > 0 && table[i] < table[i - 1] / 2))
            return false;
    return true;
}

static bool stage_valid(const uint64_t table[static PIN_COST_SIZES])
{
    uint64_t any = 0;
    for (unsigned i = 0; i < PIN_COST_SIZES; i++)
        any |= table[i];
    return any == 0 || table_valid(table);
}

bool pin_cost_valid(const struct pin_cost *cost)
{
    for (unsigned i = 0; i < PIN_STAGE_COUNTS; i++)
        for (unsigned d = 0; d < PIN_DIRECTIONS; d++)
            if (!stage_valid(cost->staged_ns[i][d]))
                return false;
    for (unsigned d = 0; d < PIN_DIRECTIONS; d++)
        if (!table_valid(cost->pageable_ns[d]) || !table_valid(cost->pinned_ns[d]))
            return false;
    return table_valid(cost->register_ns) && table_valid(cost->unregister_ns) &&
           cost->touch_ns_mib >= 1 && cost->touch_ns_mib <= ns_max;
}

/* The straight line through two points of a table, at a third. */
static uint64_t line(const uint64_t *table, unsigned a, unsigned b, unsigned at)
{
    __int128 run = (__int128)size_at(b) - size_at(a);
    __int128 rise = (__int128)table[b] - (__int128)table[a];
    __int128 value = (__int128)table[a] + rise * ((__int128)size_at(at) - size_at(a)) / run;
    return value < 1 ? 1 : value > (__int128)ns_max ? ns_max : (uint64_t)value;
}

void pin_cost_fill(uint64_t table[static PIN_COST_SIZES], uint32_t known)
{
    for (unsigned at = 0; at < PIN_COST_SIZES; at++) {
        if (known >> at & 1)
            continue;
        uint32_t below = known & ((UINT32_C(1) << at) - 1), above = known >> at << at;
        unsigned a, b;
        if (below && above) {
            a = 31 - (unsigned)__builtin_clz(below);
            b = (unsigned)__builtin_ctz(above);
        } else if (above) { /* before the first two */
            a = (unsigned)__builtin_ctz(above);
            b = (unsigned)__builtin_ctz(above & (above - 1));
        } else { /* beyond the last two */
            b = 31 - (unsigned)__builtin_clz(below);
            a = 31 - (unsigned)__builtin_clz(below & ~(UINT32_C(1) << b));
        }
        table[at] = line(table, a, b, at);
        if (!below &&
            table[at] < table[a] / 4) /* a line that falls below what a call itself takes */
            table[at] = table[a] / 4 ? table[a] / 4 : 1;
    }
}

void pin_cost_assume(struct pin_cost *ret)
{
    memset(ret, 0, sizeof(*ret));
    for (unsigned i = 0; i < PIN_COST_SIZES; i++) {
        uint64_t bytes = size_at(i);
        for (unsigned d = 0; d < PIN_DIRECTIONS; d++) {
            ret->pageable_ns[d][i] = 10000 + bytes / 8;
            ret->pinned_ns[d][i] = 8000 + bytes / 25;
        }
        ret->register_ns[i] = 60000 + bytes / 10;
        ret->unregister_ns[i] = 40000 + bytes / 20;
    }
    ret->touch_ns_mib = 500000;
}

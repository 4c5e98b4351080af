/* policy.c: see policy.h. */
#include "malloc/policy.h"

#include "base/clock.h"
#include "malloc/huge.h"
#include "malloc/os.h"
#include "malloc/pressure.h"
#include "malloc/settings.h"
#include "malloc/source.h"

/* How much of huge blocks is kept, by level, and for how long. */
static const struct {
    size_t bytes;
    uint64_t age_ns;
} huge_kept[PRESSURE_LEVELS] = {
    [PRESSURE_PLENTY] = {SIZE_MAX, NS_PER_S},
    [PRESSURE_SOME] = {SIZE_MAX, NS_PER_S / 4},
    [PRESSURE_HIGH] = {4 << 20, NS_PER_S / 4},
    [PRESSURE_CRITICAL] = {0, 0},
};

uint32_t policy_level_now;

static uint64_t due_ns; /* of the next look; who moves it on does the look */

static void huge_follow(unsigned level)
{
    uint64_t keep = load_relaxed(&malloc_settings.keep_bytes);
    huge_keep(keep < huge_kept[level].bytes ? (size_t)keep : huge_kept[level].bytes,
              huge_kept[level].age_ns);
}

/* A higher level is for what others keep, too: they may do nothing for a long time. */
static void level_set(unsigned level)
{
    unsigned before = exchange_relaxed(&policy_level_now, level);
    if (level == before)
        return;
    huge_follow(level);
    struct source *s;
    for (unsigned i = 0; level > before && level >= PRESSURE_HIGH && (s = source_at(i)); i++)
        (void)source_trim(s);
}

/* ---- what all parts hold together ---- */

enum { ROOM_PART = 16, ROOM_MIN = 1 << 20 }; /* of the peak, and bytes, that may be held above it */

/* The most that was in use at once, of late; any thread (relaxed). */
static uint64_t used_peak;

struct held {
    uint64_t used, kept_runs, kept_huge;
};

static struct held held_now(void)
{
    struct held h = {0};
    struct huge_counts huge;
    struct source *s;
    huge_count(&huge);
    h.used = huge.mapped_bytes;
    h.kept_huge = huge.kept_bytes;
    for (unsigned i = 0; (s = source_at(i)); i++) {
        h.used += load_relaxed(&s->n_used) * SLICE_BYTES;
        h.kept_runs += load_relaxed(&s->n_dirty_free) * SLICE_BYTES;
    }
    return h;
}

void policy_grown(bool huge)
{
    struct held h = held_now();
    max_relaxed(&used_peak, h.used);
    uint64_t peak = load_relaxed(&used_peak), allowed = peak + peak / ROOM_PART;
    uint64_t held = h.used + h.kept_runs + h.kept_huge;
    if (held <= allowed + ROOM_MIN)
        return;
    struct source *s;
    if (!huge && h.kept_huge > 0)
        huge_yield(held - allowed);
    for (unsigned i = 0; huge && h.kept_runs > 0 && (s = source_at(i)); i++)
        source_yield(s, held - allowed);
}

/* Down to what is in use, by an eighth each time. */
static void peak_lower(void)
{
    uint64_t used = held_now().used, peak = load_relaxed(&used_peak);
    if (peak > used)
        cas_relaxed(&used_peak, &peak, peak - (peak - used) / 8);
}

void policy_tick(bool needed)
{
    uint64_t now_ns = clock_monotonic_coarse_ns(), due = load_relaxed(&due_ns);
    if (now_ns < due || !malloc_settings.read)
        return;
    bool first = due == 0;
    if (!cas_relaxed(&due_ns, &due, now_ns + POLICY_LOOK_MS * NS_PER_MS) || (first && !needed))
        return;
    level_set(pressure_level_at(now_ns));
    huge_age(now_ns);
    peak_lower();
}

void policy_keep(uint64_t bytes)
{
    store_relaxed(&malloc_settings.keep_bytes, bytes);
    huge_follow(policy_level());
}

void policy_begin(void)
{
    store_relaxed(&os_limit_bytes, malloc_settings.limit_bytes);
    if (malloc_settings.pressure < PRESSURE_LEVELS) /* no need to look for it */
        level_set((unsigned)malloc_settings.pressure);
    else if (malloc_settings.keep_bytes != SETTING_AUTO)
        huge_follow(policy_level());
}

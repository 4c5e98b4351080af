/* policy.c: see policy.h. */
#include "malloc/policy.h"

#include "base/clock.h"
#include "malloc/heap.h"
#include "malloc/huge.h"
#include "malloc/lots.h"
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
    if (level < before || level < PRESSURE_HIGH)
        return;
    struct source *s;
    for (unsigned i = 0; (s = source_at(i)); i++)
        (void)source_trim(s);
    (void)lots_trim();
}

/* ---- what all parts hold together ---- */

/* What may be held on top of the most that was in use at once: a part of it, and some bytes. Above that, what is kept is given back until
 * only half of that part is left: the distance lies between two calls of the kernel. */
enum { ROOM_PART = 64, ROOM_MIN = 256 << 10 };

/* Slices that make room for slices may be missed at once: a program whose blocks never fit into what is free would give back and fetch all the
 * time. So there the part is larger; and for each second there are so many bytes to give back, and a stock for the moment when a program
 * turns to other sizes. Once these are spent still more may be held, but not more than the last part. */
enum { RUNS_ROOM_PART = 16, RUNS_ROOM_PART_MOST = 4, RUNS_ROOM_MIN = 1 << 20 };
enum { STOCK_PART = 4, STOCK_MIN = 4 << 20, RATE_MIB_S = 8 };

/* The most that was in use at once, of late; any thread (relaxed). */
static uint64_t used_peak;
static uint64_t
    spent_ns; /* the time at which all that was given back so far is paid for; the same */

struct held {
    uint64_t used, kept_runs, kept_huge;
};

static struct held held_now(void)
{
    struct held h;
    struct source *s;
    huge_held(&h.used, &h.kept_huge);
    h.kept_runs = 0;
    for (unsigned i = 0; (s = source_at(i)); i++) {
        h.used += load_relaxed(&s->n_used) * SLICE_BYTES;
        h.kept_runs += load_relaxed(&s->n_dirty_free) * SLICE_BYTES;
    }
    return h;
}

static uint64_t runs_yield(uint64_t bytes)
{
    uint64_t given = 0;
    struct source *s;
    for (unsigned i = 0; given < bytes && (s = source_at(i)); i++)
        given += source_yield(s, bytes - given);
    return given;
}

static uint64_t with_part(uint64_t peak, unsigned part)
{
    return peak + peak / part;
}

/* Slices for slices. */
static void runs_make_room(uint64_t peak, uint64_t held)
{
    if (held <= with_part(peak, RUNS_ROOM_PART) + RUNS_ROOM_MIN)
        return;
    uint64_t now_ns = clock_monotonic_coarse_ns(), spent = load_relaxed(&spent_ns);
    uint64_t stock = peak / STOCK_PART + STOCK_MIN, left = with_part(peak, 2 * RUNS_ROOM_PART);
    spent = spent > now_ns ? spent : now_ns;
    if ((spent - now_ns) * RATE_MIB_S / NS_PER_S > stock >> 20)
        left = with_part(peak, RUNS_ROOM_PART_MOST);
    if (held <= left + RUNS_ROOM_MIN)
        return;
    uint64_t given = runs_yield(held - left);
    store_relaxed(&spent_ns, spent + (given >> 10) * NS_PER_S / (RATE_MIB_S << 10));
}

void policy_grown(bool huge)
{
    struct held h = held_now();
    max_relaxed(&used_peak, h.used);
    uint64_t peak = load_relaxed(&used_peak), left = with_part(peak, 2 * ROOM_PART);
    uint64_t held = h.used + h.kept_runs + h.kept_huge;
    if (likely(held <= with_part(peak, ROOM_PART) + ROOM_MIN))
        return;
    if (huge) { /* which see to what is kept of their own kind: huge.h */
        (void)runs_yield(held - left);
        return;
    }
    if (h.kept_huge > 0)
        held -= huge_yield(held - left);
    if (h.kept_runs > 0)
        runs_make_room(peak, held);
}

bool policy_would_yield(size_t bytes, bool huge)
{
    struct held h = held_now();
    uint64_t held = h.used + h.kept_runs + h.kept_huge + bytes;
    bool has = huge ? h.kept_runs >= bytes && h.kept_huge < bytes : h.kept_huge >= bytes;
    return has && held > with_part(load_relaxed(&used_peak), ROOM_PART) + ROOM_MIN;
}

/* Who holds little has nothing to give that is worth files to be read for, which touches more memory than it would give. Unless it was told
 * to keep less, and may keep more again. */
static bool look_pays(const struct held *h)
{
    return h->used + h->kept_runs + h->kept_huge > POLICY_LOOK_MIN ||
           policy_level() != PRESSURE_PLENTY;
}

/* Down to what is in use, by an eighth each time. */
static void peak_lower(uint64_t used)
{
    uint64_t peak = load_relaxed(&used_peak);
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
    struct held h = held_now();
    if (look_pays(&h))
        level_set(pressure_level_at(now_ns));
    if (h.kept_huge > 0)
        huge_age(now_ns);
    peak_lower(h.used);
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

/*
 * pressure.c: see pressure.h.
 *
 * No lock: whoever moves the time of the next look on does the look, so that a fork in its middle, or a thread that is
 * torn out of it, only costs that one. Should a look take so long that another begins, both write figures that are true.
 *
 * The word's page is mapped once. A word that is out of date (memoird ended, or its directory was mounted anew) is looked
 * for again, and what is found is mapped over the old one in one step: threads that read meanwhile never find a hole.
 */
#include "malloc/pressure.h"

#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "book/pressure_level.h"
#include "book/pressure_source.h"
#include "book/pressure_word.h"
#include "book/text.h"
#include "malloc/settings.h"

enum { BLIND_WAIT_MS = 10 };
enum { PLACES_UNKNOWN, PLACES_BUSY, PLACES_KNOWN };

/* Every field is read and written by any thread, relaxed, unless it says more. */
static struct {
    int override;                     /* PRESSURE_AUTO, or the level */
    uint32_t blind;                   /* how often it was asked for; not 0: no file is opened */
    bool looking;                     /* files are being opened; with `blind` in one order */
    const char *proc, *cgroups;       /* constant but in tests */
    uint32_t own;                     /* the level that we found ourselves */
    uint64_t look_ns;                 /* not before this; who moves it on does the look */
    uint64_t map_ns, cgroup_ns;       /* likewise, by who looks */
    uint64_t calm_ns;                 /* with `own` a struct pressure_state */
    uint64_t waited_us, waited_at_ns; /* the total of PSI at the last look */
    const struct pressure_page *page; /* NULL until one is found; acquire */
    uint32_t places_state;            /* PLACES_*; acquire, release */
    bool alone; /* `dir` is $MEMOIR_DIR, else $XDG_RUNTIME_DIR; both constant once known, */
    char dir[PRESSURE_WORD_DIR_MAX]; /* and empty where it is not set, or too long */
} pressure = {.override = PRESSURE_AUTO, .proc = "/proc", .cgroups = "/sys/fs/cgroup"};

static_assert(PRESSURE_SET_NONE == (int)PRESSURE_PLENTY &&
                  PRESSURE_SET_CRITICAL == (int)PRESSURE_CRITICAL,
              "a setting other than auto is a level");

__attribute__((section(".text.startup"))) void pressure_init(void)
{
    uint32_t unknown = PLACES_UNKNOWN;
    if (!cas_acquire(&pressure.places_state, &unknown, PLACES_BUSY))
        return;
    const char *dir = settings_variable("MEMOIR_DIR");
    pressure.alone = dir;
    if (!dir)
        dir = settings_variable("XDG_RUNTIME_DIR");
    struct text text = text_begin(pressure.dir, sizeof(pressure.dir));
    text_add(&text, dir ? dir : "");
    if (text.cut)
        pressure.dir[0] = '\0';
    store_release(&pressure.places_state, PLACES_KNOWN);
}

/* A program with rights of others does not believe its environment. */
static bool place_is_trusted(const char *dir)
{
    return !getauxval(AT_SECURE) || strcmp(dir, PRESSURE_WORD_DIR) == 0;
}

void pressure_override(int level)
{
    store_relaxed(&pressure.override,
                  level >= 0 && level < PRESSURE_LEVELS ? level : PRESSURE_AUTO);
}

/* A look that another thread is in the middle of takes some microseconds, unless that thread does not run, or is not there in this child. */
static void looks_end(void)
{
    uint64_t until_ns = clock_monotonic_ns() + BLIND_WAIT_MS * NS_PER_MS;
    while (load_seq_cst(&pressure.looking) && clock_monotonic_ns() < until_ns)
        sched_yield();
}

void pressure_blind(void)
{
    uint64_t now_ns = clock_monotonic_coarse_ns();
    (void)pressure_level_at(now_ns); /* memoird's word, which is read without a call from then on */
    fetch_add_seq_cst(&pressure.blind, 1);
    looks_end();
}

void pressure_see(void)
{
    fetch_sub_release(&pressure.blind, 1);
}

static bool is_blind(void)
{
    return load_seq_cst(&pressure.blind) > 0;
}

void pressure_roots(const char *proc, const char *cgroups)
{
    pressure.proc = proc;
    pressure.cgroups = cgroups;
}

/* ---- the word ---- */

static bool word_now(uint64_t now_ns, unsigned *ret_level)
{
    const struct pressure_page *page = load_acquire(&pressure.page);
    return page && pressure_word_level(load_relaxed(&page->word), now_ns, ret_level);
}

/* One that is kept up to date; what is there instead is looked at as well, and forgotten. */
static bool word_find(uint64_t now_ns, unsigned *ret_level)
{
    const struct pressure_page *old = load_acquire(&pressure.page), *page;
    struct pressure_places places;
    pressure_places_set(&places, pressure.alone ? pressure.dir : NULL, pressure.dir);
    for (unsigned i = 0; i < places.n && !is_blind(); i++) {
        if (!place_is_trusted(places.dirs[i]) ||
            pressure_word_map(places.dirs[i], (void *)(uintptr_t)old, &page) < 0)
            continue;
        if (!old) {
            if (cas_acq_rel(&pressure.page, &old, page))
                old = page;
            else
                pressure_word_unmap(page);
        }
        if (word_now(now_ns, ret_level))
            return true;
    }
    return false;
}

/* ---- the look ---- */

/* What the kernel says about the machine. */
static void machine_look(uint64_t now_ns, struct pressure_inputs *in)
{
    uint64_t waited_us;
    uint64_t before_ns = load_relaxed(&pressure.waited_at_ns);
    pressure_source_machine(pressure.proc, in, &waited_us);
    if (in->valid & PRESSURE_HAS_STALL && now_ns - before_ns < PRESSURE_STALE_MS * NS_PER_MS)
        in->some_last =
            pressure_source_share(load_relaxed(&pressure.waited_us), before_ns, waited_us, now_ns);
    store_relaxed(&pressure.waited_us, waited_us);
    store_relaxed(&pressure.waited_at_ns, now_ns);
}

static void cgroup_look(uint64_t now_ns, struct pressure_inputs *in)
{
    if (now_ns < load_relaxed(&pressure.cgroup_ns))
        return;
    pressure_source_cgroup(pressure.proc, pressure.cgroups, true, in);
    if (!(in->valid & PRESSURE_HAS_LIMIT))
        store_relaxed(&pressure.cgroup_ns, now_ns + PRESSURE_UNLIMITED_MS * NS_PER_MS);
}

static void look(uint64_t now_ns)
{
    struct pressure_inputs in = {0};
    struct pressure_state state = {.level = load_relaxed(&pressure.own),
                                   .calm_ns = load_relaxed(&pressure.calm_ns)};
    unsigned level;
    bool published = word_now(now_ns, &level);
    if (!published && now_ns >= load_relaxed(&pressure.map_ns) &&
        load_acquire(&pressure.places_state) == PLACES_KNOWN) {
        store_relaxed(&pressure.map_ns, now_ns + PRESSURE_MAP_MS * NS_PER_MS);
        published = word_find(now_ns, &level);
    }
    if (!published && !is_blind())
        machine_look(now_ns, &in);
    if (!is_blind())
        cgroup_look(now_ns, &in);
    if (!published && in.valid == 0) /* no /proc, or a sandbox: not to be asked all the time */
        store_relaxed(&pressure.look_ns, now_ns + PRESSURE_BLIND_MS * NS_PER_MS);
    pressure_step(&state, &pressure_limits_default, &in, now_ns);
    store_relaxed(&pressure.calm_ns, state.calm_ns);
    store_relaxed(&pressure.own, state.level);
}

/* Out of the way of those who need no look. */
__attribute__((noinline, cold)) static void look_if_first(uint64_t due_ns, uint64_t now_ns)
{
    if (!cas_relaxed(&pressure.look_ns, &due_ns, now_ns + PRESSURE_LOOK_MS * NS_PER_MS))
        return;
    int saved = errno;
    pressure_init();
    store_seq_cst(&pressure.looking, true);
    if (!is_blind())
        look(now_ns);
    store_seq_cst(&pressure.looking, false);
    errno = saved;
}

unsigned pressure_level_at(uint64_t now_ns)
{
    int override = load_relaxed(&pressure.override);
    if (override >= 0)
        return (unsigned) override;
    uint64_t set = load_relaxed(&malloc_settings.pressure);
    if (set < PRESSURE_LEVELS)
        return (unsigned)set;
    uint64_t due_ns = load_relaxed(&pressure.look_ns);
    bool blind = load_relaxed(&pressure.blind) > 0;
    if (now_ns >= due_ns && !blind)
        look_if_first(due_ns, now_ns);
    /* What was found last must not stay for ever. */
    unsigned own = blind ? PRESSURE_PLENTY : load_relaxed(&pressure.own), level;
    return word_now(now_ns, &level) && level > own ? level : own;
}

unsigned pressure_level(void)
{
    return pressure_level_at(clock_monotonic_coarse_ns());
}

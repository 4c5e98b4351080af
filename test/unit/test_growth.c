/* Series of call sites over a real book: this process reports, and time passes as the test says. */
#include "ledger/growth.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "base/clock.h"
#include "check.h"
#include "ledger/follow.h"
#include "ledger/headroom.h"
#include "ledger/leaks.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"

enum { KIB = 1024, MIB = 1 << 20 };

static char root[64];
static struct follow *follow;
static const struct ledger_book *book;
static uint64_t next_id = 1;

static int enter(void **unused)
{
    strcpy(root, "/dev/shm/memoir-test-growth-XXXXXX");
    if (!mkdtemp(root) || setenv("MEMOIR_DIR", root, 1) < 0 || memoir_open(0) < 0)
        return -1;
    return 0;
}

static int leave(void **unused)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command) == 0 ? 0 : -1;
}

/* A call site of its own: any address of ours will do. */
static const void *site(unsigned n)
{
    return (const char *)(uintptr_t)enter + n;
}

static uint64_t take(unsigned at, uint64_t bytes)
{
    memoir_alloc_with(&(struct memoir_alloc_options){
        .struct_size = sizeof(struct memoir_alloc_options),
        .device = MEMOIR_HOST,
        .space = MEMOIR_SPACE_PINNED,
        .id = next_id,
        .bytes = bytes,
        .caller = site(at),
    });
    return next_id++;
}

static void give(uint64_t id)
{
    memoir_free(MEMOIR_HOST, MEMOIR_SPACE_PINNED, id);
}

static int begin(void **unused)
{
    take(1000, 1);
    if (follow_new(root, &follow) < 0 || follow_look(follow, false) < 0)
        return -1;
    struct ledger_books books = ledger_books(follow_ledger(follow));
    book = books.n == 1 ? books.books[0] : NULL;
    return book ? 0 : -1;
}

static int end(void **unused)
{
    follow_free(follow);
    return 0;
}

static void look(struct growth *growth, uint64_t now_ns)
{
    growth_begin(growth);
    assert_int_equal(growth_look(growth, book, now_ns), 0);
    growth_end(growth);
}

/* ---- reading ---- */

struct found {
    size_t series;
    struct growth_series last; /* whose points are gone */
    uint64_t first_ns, last_ns, last_bytes;
    bool in_order;
};

static int find(const struct growth_series *series, void *context)
{
    struct found *f = context;
    f->series++;
    f->last = *series;
    f->first_ns = series->points[0].time_ns;
    f->last_ns = series->points[series->n - 1].time_ns;
    f->last_bytes = detect_live_bytes(&series->points[series->n - 1]);
    f->in_order = true;
    for (size_t i = 1; i < series->n; i++)
        f->in_order &= series->points[i].time_ns > series->points[i - 1].time_ns;
    return 0;
}

static void tiers_cover_a_day_in_bounded_memory(void **unused)
{
    struct growth *growth;
    struct found f = {0};
    uint64_t start_ns = 1000 * NS_PER_S, now_ns = start_ns, id = take(1, MIB);
    assert_int_equal(growth_new(&growth_daemon, &growth), 0);
    for (int i = 0; i < 30 * 3600; i++, now_ns += NS_PER_S)
        look(growth, now_ns);
    growth_each(growth, find, &f);
    assert_int_equal(f.series, 1);
    assert_true(f.in_order);
    assert_int_equal(f.last_ns, now_ns - NS_PER_S);
    assert_int_equal(f.last_bytes, MIB);
    /* 72 slots of 20 minutes */
    assert_true(f.last_ns - f.first_ns >= 23 * 3600 * NS_PER_S);
    assert_true(f.last.n > 120 + 70 + 50 + 60 && f.last.n <= 342);
    struct growth_counts counts = growth_counts(growth);
    assert_true(counts.bytes <= 342 * GROWTH_POINT_BYTES + 512);
    assert_int_equal(counts.books, 1);
    growth_free(growth);
    give(id);
}

static struct detect_point lows[64];
static size_t n_lows;

static int collect(const struct growth_series *series, void *context)
{
    for (size_t i = 0; i < series->n && detect_live_bytes(&series->points[0]) >= 100; i++)
        lows[n_lows++] = series->points[i];
    return find(series, context);
}

/* What comes and goes within a slot must not hide in a coarse tier. */
static void coarse_points_are_low_water_marks(void **unused)
{
    static const struct growth_options options = {
        .tiers = {{NS_PER_S, 4}, {4 * NS_PER_S, 20}},
        .sites_max = 10,
        .sites_per_user_max = 10,
        .sites_per_book_max = 10,
        .bytes_min = 1,
    };
    struct growth *growth;
    struct found f = {0};
    uint64_t held = take(2, 100), more = 0;
    assert_int_equal(growth_new(&options, &growth), 0);
    for (uint64_t i = 0; i < 40; i++) {
        if (i % 4 == 1)
            more = take(2, 5000);
        look(growth,
             (102 + i) * NS_PER_S); /* the lowest level is neither first nor last in a slot */
        if (i % 4 == 3)
            give(more);
    }
    n_lows = 0;
    growth_each(growth, collect, &f);
    assert_true(n_lows > 10);
    for (size_t i = 0; i + 4 < n_lows; i++) /* all that lie in the coarse tier */
        assert_int_equal(detect_live_bytes(&lows[i]), 100);
    growth_free(growth);
    give(held);
}

static int seek_large(const struct growth_series *series, void *context)
{
    *(bool *)context |= detect_live_bytes(&series->points[series->n - 1]) == 10 * MIB;
    return 0;
}

static void many_sites_are_bounded_and_the_largest_stay(void **unused)
{
    static const struct growth_options options = {
        .tiers = {{NS_PER_S, 8}},
        .sites_max = 100,
        .sites_per_user_max = 100,
        .sites_per_book_max = 50,
        .bytes_min = 1,
    };
    enum { SITES = 3000 };
    static uint64_t ids[SITES];
    struct growth *growth;
    for (unsigned i = 0; i < SITES; i++)
        ids[i] = take(10000 + i, 100 + i);
    uint64_t large = take(9000, 10 * MIB); /* the last to come */
    assert_int_equal(growth_new(&options, &growth), 0);
    for (uint64_t i = 0; i < 20; i++)
        look(growth, (10 + i) * NS_PER_S);
    struct growth_counts counts = growth_counts(growth);
    assert_int_equal(counts.sites, 50);
    assert_true(counts.left_out >= SITES - 50);
    assert_true(counts.bytes < 50 * 1024);
    bool there = false;
    growth_each(growth, seek_large, &there);
    assert_true(there);
    growth_free(growth);
    for (unsigned i = 0; i < SITES; i++)
        give(ids[i]);
    give(large);
}

static void books_that_are_gone_are_forgotten(void **unused)
{
    struct growth *growth;
    uint64_t id = take(3, MIB);
    assert_int_equal(growth_new(&growth_daemon, &growth), 0);
    look(growth, NS_PER_S);
    assert_int_equal(growth_counts(growth).sites, 1);
    growth_begin(growth);
    growth_end(growth);
    assert_int_equal(growth_counts(growth).books, 1); /* a round may have missed it */
    growth_begin(growth);
    growth_end(growth);
    assert_int_equal(growth_counts(growth).books, 0);
    assert_int_equal(growth_counts(growth).bytes, 0);
    growth_free(growth);
    give(id);
}

static void a_site_that_empties_is_dropped_after_a_while(void **unused)
{
    struct growth *growth;
    uint64_t id = take(4, MIB), now_ns = NS_PER_S;
    assert_int_equal(growth_new(&growth_daemon, &growth), 0);
    look(growth, now_ns);
    give(id);
    for (int i = 0; i < GROWTH_IDLE_LOOKS + 2; i++)
        look(growth, now_ns += 2 * NS_PER_S);
    assert_int_equal(growth_counts(growth).sites, 0);
    growth_free(growth);
}

/* ---- which sites are watched ---- */

static struct growth *watch(uint64_t bytes_min, size_t sites_max, size_t per_book, size_t per_user)
{
    struct growth_options options = {
        .tiers = {{NS_PER_S, 100}},
        .sites_max = sites_max,
        .sites_per_user_max = per_user,
        .sites_per_book_max = per_book,
        .bytes_min = bytes_min,
    };
    struct growth *growth = NULL;
    assert_int_equal(growth_new(&options, &growth), 0);
    return growth;
}

static size_t watched_sites(struct growth *growth)
{
    return growth_counts(growth).sites;
}

static void sites_are_watched_from_a_size_on(void **unused)
{
    struct growth *growth = watch(4000, 10, 10, 10);
    uint64_t small = take(40, 3999), exact = take(41, 4000);
    look(growth, NS_PER_S);
    assert_int_equal(watched_sites(growth), 1);
    give(small);
    give(exact);
    growth_free(growth);
    /* Blocks of no bytes cost 32 bytes each. */
    growth = watch(64, 10, 10, 10);
    uint64_t one = take(42, 0);
    look(growth, NS_PER_S);
    assert_int_equal(watched_sites(growth), 0);
    uint64_t two = take(42, 0);
    look(growth, 2 * NS_PER_S);
    assert_int_equal(watched_sites(growth), 1);
    give(one);
    give(two);
    growth_free(growth);
}

/* A quarter of the size from which sites are watched keeps one for good, less only for a minute of looks. */
static void a_site_stays_while_it_holds_a_quarter(void **unused)
{
    for (uint64_t kept = 999; kept <= 1000; kept++) {
        struct growth *growth = watch(4000, 10, 10, 10);
        uint64_t first = take(43, kept), rest = take(43, 4000), now_ns = NS_PER_S;
        look(growth, now_ns);
        give(rest);
        for (int i = 0; i < GROWTH_IDLE_LOOKS; i++)
            look(growth, now_ns += NS_PER_S);
        assert_int_equal(watched_sites(growth), 1);
        rest = take(43, 1); /* 1000 or more: the count begins anew */
        look(growth, now_ns += NS_PER_S);
        give(rest);
        for (int i = 0; i < GROWTH_IDLE_LOOKS; i++)
            look(growth, now_ns += NS_PER_S);
        assert_int_equal(watched_sites(growth), 1);
        look(growth, now_ns += NS_PER_S);
        assert_int_equal(watched_sites(growth), kept == 1000);
        give(first);
        growth_free(growth);
    }
}

static int series_of(const struct growth_series *series, void *context)
{
    uint64_t *wanted = context; /* the last level, and whether it was found */
    wanted[1] += detect_live_bytes(&series->points[series->n - 1]) == wanted[0];
    return 0;
}

static bool is_watched(struct growth *growth, uint64_t bytes)
{
    uint64_t wanted[2] = {bytes, 0};
    assert_int_equal(growth_each(growth, series_of, wanted), 0);
    return wanted[1] > 0;
}

/* Where there is no room, a site must hold more than twice as much as the smallest one. */
static void check_full(struct growth *growth)
{
    uint64_t ids[] = {take(44, 500), take(45, 300)};
    look(growth, NS_PER_S);
    assert_int_equal(watched_sites(growth), 2);
    uint64_t third = take(46, 601);
    look(growth, 2 * NS_PER_S);
    assert_int_equal(growth_counts(growth).left_out, 1);
    assert_true(is_watched(growth, 300) && !is_watched(growth, 601));
    uint64_t more = take(46, 1);
    look(growth, 3 * NS_PER_S);
    assert_true(is_watched(growth, 500) && is_watched(growth, 602) && !is_watched(growth, 300));
    assert_int_equal(watched_sites(growth), 2);
    assert_int_equal(growth_counts(growth).left_out, 0);
    look(growth, 4 * NS_PER_S);
    assert_int_equal(growth_counts(growth).left_out, 1); /* now the one that was smallest */
    give(ids[0]);
    give(ids[1]);
    give(third);
    give(more);
    growth_free(growth);
}

static void a_larger_site_takes_the_place_of_the_smallest(void **unused)
{
    check_full(watch(100, 10, 2, 10));
    check_full(watch(100, 2, 10, 10));
    if (geteuid() != 0) /* of root's sites there may be any number */
        check_full(watch(100, 10, 10, 2));
}

/* Rounds do not come like clockwork. */
static void a_look_that_is_a_quarter_early_counts(void **unused)
{
    struct growth *growth = watch(100, 10, 10, 10);
    struct found f = {0};
    uint64_t id = take(47, 1000), step = NS_PER_S;
    look(growth, step);
    look(growth, step + step * 3 / 4 - 1);
    growth_each(growth, find, &f);
    assert_int_equal(f.last.n, 1);
    look(growth, step + step * 3 / 4);
    growth_each(growth, find, &f);
    assert_int_equal(f.last.n, 2);
    give(id);
    growth_free(growth);
}

/* What comes while we watch held nothing before. */
static void a_new_site_held_nothing_since_the_first_look(void **unused)
{
    struct growth *growth = watch(0, 10, 10, 10);
    uint64_t now_ns = 10 * NS_PER_S;
    for (int i = 0; i < 5; i++)
        look(growth, now_ns + (uint64_t)i * NS_PER_S);
    uint64_t id = take(48, 700);
    look(growth, now_ns + 5 * NS_PER_S);
    struct found f = {0};
    n_lows = 0;
    uint64_t wanted[2] = {700, 0};
    assert_int_equal(growth_each(growth, series_of, wanted), 0);
    assert_int_equal(wanted[1], 1);
    growth_each(growth, find, &f);
    assert_int_equal(f.last_bytes, 700);
    assert_int_equal(f.first_ns, now_ns);
    assert_int_equal(f.last.n, 5); /* four looks without it, and this one */
    give(id);
    growth_free(growth);
}

static int stop_at_second(const struct growth_series *series, void *context)
{
    return ++*(int *)context == 2 ? -7 : 0;
}

static void reading_stops_when_it_is_told_to(void **unused)
{
    struct growth *growth = watch(1, 10, 10, 10);
    uint64_t ids[] = {take(49, 10), take(50, 10), take(51, 10)};
    int calls = 0;
    look(growth, NS_PER_S);
    assert_true(watched_sites(growth) >= 3);
    assert_int_equal(growth_each(growth, stop_at_second, &calls), -7);
    assert_int_equal(calls, 2);
    for (size_t i = 0; i < 3; i++)
        give(ids[i]);
    growth_free(growth);
}

/* ---- suspects ---- */

static const struct growth_options watched = {
    .tiers = {{NS_PER_S / 4, 200}},
    .sites_max = 20000,
    .sites_per_user_max = 20000,
    .sites_per_book_max = 20000,
};

static const struct leak *row_of(const struct leaks *leaks, uint64_t live_bytes)
{
    for (size_t i = 0; i < leaks->n; i++)
        if (leaks->rows[i].live_bytes == live_bytes)
            return &leaks->rows[i];
    return NULL;
}

static void leaks_are_told_from_what_is_steady_and_from_warm_ups(void **unused)
{
    enum { LOOKS = 130 };
    struct growth *growth;
    struct leaks leaks = {0};
    uint64_t now_ns = proc_monotonic_ns(), churned = 0, ids[3 * LOOKS], n = 0;
    assert_int_equal(growth_new(&watched, &growth), 0);
    for (unsigned i = 0; i < LOOKS; i++, now_ns += NS_PER_S / 4) {
        ids[n++] = take(20, 100 * KIB); /* leaks from before the first look */
        if (i >= 1)
            ids[n++] = take(21, 40 * KIB); /* its first block comes while we watch */
        if (i < LOOKS / 2)
            ids[n++] = take(22, 70 * KIB);
        if (churned)
            give(churned);
        churned = take(23, 300 * KIB);
        look(growth, now_ns);
    }
    assert_int_equal(leaks_take(growth, follow_ledger(follow),
                                &(struct leaks_options){.all = true, .ages = true}, &leaks),
                     0);
    const struct leak *first = row_of(&leaks, LOOKS * 100 * KIB);
    const struct leak *second = row_of(&leaks, (LOOKS - 1) * 40 * KIB);
    const struct leak *warm = row_of(&leaks, LOOKS / 2 * 70 * KIB);
    const struct leak *steady = row_of(&leaks, 300 * KIB);
    assert_true(first && second && warm && steady);
    assert_int_equal(first->result.verdict, DETECT_LEAK);
    assert_int_equal(second->result.verdict, DETECT_LEAK);
    assert_int_equal(warm->result.verdict, DETECT_WARMING);
    assert_int_equal(steady->result.verdict, DETECT_STEADY);
    assert_ptr_equal(first, &leaks.rows[0]); /* the fastest leak is first */
    assert_ptr_equal(second, &leaks.rows[1]);
    assert_true(fabs(first->result.bytes_per_s - 400 * KIB) < 4 * KIB);
    assert_int_equal(first->live_blocks, LOOKS);
    assert_int_equal(first->account->space, MEMOIR_SPACE_PINNED);
    assert_non_null(strstr(first->frame, "test_growth+0x"));
    assert_true(first->headroom.kind == HEADROOM_MACHINE ||
                first->headroom.kind == HEADROOM_CGROUP);
    double left_s = (double)first->headroom.bytes / first->result.bytes_per_s;
    assert_true(fabs((double)first->left_ns / NS_PER_S - left_s) < 0.01 * left_s);
    assert_true(steady->left_ns == UINT64_MAX && warm->left_ns == UINT64_MAX);
    assert_int_equal(steady->headroom.kind, HEADROOM_UNKNOWN); /* it grows into nothing */
    assert_int_equal(leaks.verdicts[DETECT_LEAK], 2);
    size_t judged = 0;
    for (size_t i = 0; i < DETECT_VERDICTS; i++)
        judged += leaks.verdicts[i];
    assert_int_equal(leaks.judged, judged);
    assert_true(judged >= 4 && leaks.n == judged);
    assert_int_equal(leaks.span_ns, (LOOKS - 1) * (NS_PER_S / 4));
    assert_false(leaks.incomplete);
    /* It has been growing all the time, and its small chart is a straight line. */
    assert_true(first->growing_ns > leaks.span_ns - leaks.span_ns / 10);
    assert_true(first->growing_ns <= leaks.span_ns);
    assert_int_equal(first->n_spark, LEAK_SPARK);
    for (unsigned i = 0; i < LEAK_SPARK; i++) {
        double expected = (double)first->live_bytes * (i + 1) / LEAK_SPARK;
        assert_true(fabs((double)first->spark[i] - expected) < 0.02 * (double)first->live_bytes);
        assert_int_equal(steady->spark[i], 300 * KIB);
    }
    assert_int_equal(first->spark[LEAK_SPARK - 1], first->live_bytes);
    assert_int_equal(warm->spark[LEAK_SPARK - 1], warm->spark[LEAK_SPARK - 2]);
    assert_false(first->fell || first->outside);
    assert_true(first->key && second->key && first->key != second->key);
    assert_int_equal(first->process->pid, getpid());
    for (size_t i = 1; i < leaks.n; i++) /* leaks, then what grows, then the rest */
        assert_true(leaks.rows[i - 1].result.verdict >= leaks.rows[i].result.verdict);
    leaks_release(&leaks);

    /* Only suspects, and only in time. */
    assert_int_equal(leaks_take(growth, follow_ledger(follow), &(struct leaks_options){0}, &leaks),
                     0);
    assert_int_equal(leaks.n, 2);
    leaks_release(&leaks);
    assert_int_equal(leaks_take(growth, follow_ledger(follow),
                                &(struct leaks_options){.deadline_ns = 1}, &leaks),
                     0);
    assert_true(leaks.incomplete);
    leaks_release(&leaks);
    growth_free(growth);
    for (size_t i = 0; i < n; i++)
        give(ids[i]);
    give(churned);
}

static bool nobody(const struct ledger_process *process, void *context)
{
    return false;
}

static bool own(const struct ledger_process *process, void *context)
{
    ++*(size_t *)context;
    return process->pid == getpid();
}

static void processes_that_nobody_asked_for_are_left_out(void **unused)
{
    struct growth *growth;
    struct leaks leaks = {0};
    uint64_t id = take(30, MIB);
    assert_int_equal(growth_new(&watched, &growth), 0);
    look(growth, NS_PER_S);
    assert_int_equal(leaks_take(growth, follow_ledger(follow),
                                &(struct leaks_options){.all = true, .wanted = nobody}, &leaks),
                     0);
    assert_int_equal(leaks.judged, 0);
    leaks_release(&leaks);
    size_t asked = 0;
    assert_int_equal(
        leaks_take(growth, follow_ledger(follow),
                   &(struct leaks_options){.all = true, .wanted = own, .context = &asked}, &leaks),
        0);
    assert_true(leaks.judged > 0 && asked > 0);
    leaks_release(&leaks);
    growth_free(growth);
    give(id);
}

static void runtimes_that_collect_garbage_are_known_by_their_file(void **unused)
{
    static const char *const collected[] = {"/usr/lib/jvm/lib/server/libjvm.so",
                                            "java",
                                            "/usr/bin/node",
                                            "nodejs20",
                                            "/bin/nodejs",
                                            "libnode.so.108",
                                            "/usr/lib/libv8.so",
                                            "deno",
                                            "bun",
                                            "ruby3.1",
                                            "/usr/lib/libruby-3.1.so",
                                            "libmonosgen-2.0.so",
                                            "/x/libmono-2.0.so",
                                            "libcoreclr.so",
                                            "libclrgc.so",
                                            "mono-sgen",
                                            "/usr/lib/erlang/erts/bin/beam.smp",
                                            "node~1"};
    static const char *const others[] = {"/usr/bin/nodemon",
                                         "javac",
                                         "/usr/bin/bundle",
                                         "rubyist",
                                         "nodejunk",
                                         "/node/libc.so.6",
                                         "",
                                         "nod",
                                         "mynode",
                                         "python3",
                                         "/opt/java/bin/"};
    for (size_t i = 0; i < sizeof(collected) / sizeof(*collected); i++)
        assert_true(leaks_file_is_collected(collected[i]));
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        assert_false(leaks_file_is_collected(others[i]));
}

/* Growth of a resident size: of 2 MiB, in five steps, as certain as a leak has to be. */
static void growth_of_a_level_is_told_from_a_size_on(void **unused)
{
    const struct detect_result least = {.verdict = DETECT_GROWING,
                                        .reason = DETECT_LEVEL_ONLY,
                                        .z = 3.3,
                                        .rises = 5,
                                        .grown_bytes = 2 * MIB};
    struct detect_result r = least;
    assert_true(leaks_level_tells(&r));
    r.z = 3.29;
    assert_false(leaks_level_tells(&r));
    r = least;
    r.rises = 4;
    assert_false(leaks_level_tells(&r));
    r = least;
    r.grown_bytes--;
    assert_false(leaks_level_tells(&r));
    r = least;
    r.verdict = DETECT_WARMING;
    assert_false(leaks_level_tells(&r));
    r = least;
    r.reason = DETECT_TEETH;
    assert_false(leaks_level_tells(&r));
}

/* ---- limits ---- */

static char folder[64];

static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); slash++) {
        char parent[256];
        snprintf(parent, sizeof(parent), "mkdir -p %.*s", (int)(slash - path), path);
        assert_int_equal(system(parent), 0);
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static struct headroom headroom(void)
{
    char proc[96], cgroups[96];
    snprintf(proc, sizeof(proc), "%s/proc", folder);
    snprintf(cgroups, sizeof(cgroups), "%s/cg", folder);
    return headroom_below(proc, cgroups, 7);
}

static void the_smallest_limit_counts(void **unused)
{
    char command[96];
    strcpy(folder, "/dev/shm/memoir-test-limit-XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(headroom().kind, HEADROOM_UNKNOWN);

    put("proc/meminfo", "MemTotal:       1000 kB\nMemFree: 10 kB\nMemAvailable:    500 kB\n");
    struct headroom h = headroom();
    assert_int_equal(h.kind, HEADROOM_MACHINE);
    assert_int_equal(h.bytes, 500 * KIB);
    assert_int_equal(h.limit_bytes, 1000 * KIB);

    put("proc/7/cgroup", "0::/a/b\n"); /* version 2; the limit is the parent's */
    put("cg/a/b/memory.max", "max\n");
    put("cg/a/b/memory.current", "1000\n");
    put("cg/a/memory.max", "100000\n");
    put("cg/a/memory.current", "60000\n");
    put("cg/a/memory.stat", "anon 1\ninactive_file 20000\n");
    h = headroom();
    assert_int_equal(h.kind, HEADROOM_CGROUP);
    assert_int_equal(h.bytes, 60000);
    assert_int_equal(h.limit_bytes, 100000);

    put("proc/7/cgroup", "3:cpu,cpuacct:/x\n2:memory,hugetlb:/c\n"); /* version 1 */
    put("cg/memory/c/memory.limit_in_bytes", "9223372036854771712\n");
    put("cg/memory/c/memory.usage_in_bytes", "5\n");
    assert_int_equal(headroom().kind, HEADROOM_MACHINE);
    put("cg/memory/c/memory.limit_in_bytes", "4096\n");
    assert_int_equal(headroom().bytes, 4091);
    put("cg/memory/c/memory.usage_in_bytes", "5000\n");
    assert_int_equal(headroom().bytes, 0);

    put("proc/7/cgroup", "0::/../out\n"); /* not below our root */
    put("out/memory.max", "10\n");
    put("out/memory.current", "1\n");
    assert_int_equal(headroom().kind, HEADROOM_MACHINE);
    put("proc/7/cgroup", "no cgroup\n"); /* and none at all is not the root */
    put("cg/memory.max", "10\n");
    put("cg/memory.current", "1\n");
    assert_int_equal(headroom().kind, HEADROOM_MACHINE);
    put("proc/7/cgroup", "0::/a\n"); /* as much as the machine has: that is what is short */
    put("cg/a/memory.max", "512000\n");
    put("cg/a/memory.current", "0\n");
    put("cg/memory.max", "max\n");
    assert_int_equal(headroom().kind, HEADROOM_MACHINE);
    put("cg/a/memory.max", "511999\n");
    assert_int_equal(headroom().kind, HEADROOM_CGROUP);
    assert_int_equal(headroom().bytes, 511999);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
#define GROWTH_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        GROWTH_TEST(tiers_cover_a_day_in_bounded_memory),
        GROWTH_TEST(coarse_points_are_low_water_marks),
        GROWTH_TEST(many_sites_are_bounded_and_the_largest_stay),
        GROWTH_TEST(books_that_are_gone_are_forgotten),
        GROWTH_TEST(a_site_that_empties_is_dropped_after_a_while),
        GROWTH_TEST(sites_are_watched_from_a_size_on),
        GROWTH_TEST(a_site_stays_while_it_holds_a_quarter),
        GROWTH_TEST(a_larger_site_takes_the_place_of_the_smallest),
        GROWTH_TEST(a_look_that_is_a_quarter_early_counts),
        GROWTH_TEST(a_new_site_held_nothing_since_the_first_look),
        GROWTH_TEST(reading_stops_when_it_is_told_to),
        GROWTH_TEST(leaks_are_told_from_what_is_steady_and_from_warm_ups),
        GROWTH_TEST(processes_that_nobody_asked_for_are_left_out),
        cmocka_unit_test(runtimes_that_collect_garbage_are_known_by_their_file),
        cmocka_unit_test(growth_of_a_level_is_told_from_a_size_on),
        cmocka_unit_test(the_smallest_limit_counts),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}

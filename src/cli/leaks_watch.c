/* A watch without a daemon. See leaks_watch.h. */
#include "cli/leaks_watch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "cli/suspects.h"
#include "ledger/closer.h"
#include "ledger/follow.h"
#include "ledger/growth.h"
#include "ledger/leaks.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"

enum {
    SITES_MAX = 16384, /* 120 points of 40 bytes each: 80 MB at most */
    SITES_PER_BOOK_MAX = 8192,
    LIST_EVERY_NS = 1000000000, /* new books are looked for so often */
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    interrupted = 1;
}

/* One look at all books that are wanted; how many there are. */
static size_t look(const struct leaks_watch *watch, struct ledger *ledger, struct growth *growth)
{
    struct ledger_books books = ledger_books(ledger);
    size_t n = 0;
    growth_begin(growth);
    for (size_t i = 0; i < books.n; i++) {
        if (watch->wanted && !watch->wanted(books.books[i]->process, watch->context))
            continue;
        n++;
        (void)growth_look(growth, books.books[i], proc_monotonic_ns()); /* a gap, else */
    }
    growth_end(growth);
    return n;
}

static void progress(const struct leaks_watch *watch, const struct growth *growth, size_t books,
                     uint64_t since_ns)
{
    char done[UNITS_TEXT_MAX], whole[UNITS_TEXT_MAX];
    struct growth_counts counts = growth_counts(growth);
    if (!watch->progress)
        return;
    fprintf(stderr, "\r\033[Kwatching %zu site%s of %zu book%s: %s of %s (Ctrl-C: judge now)",
            counts.sites, counts.sites == 1 ? "" : "s", books, books == 1 ? "" : "s",
            units_format_duration(done, since_ns / NS_PER_S * NS_PER_S),
            units_format_duration(whole, watch->for_ns));
    fflush(stderr);
}

static void sleep_until(uint64_t time_ns)
{
    struct timespec until = {(time_t)(time_ns / NS_PER_S), (long)(time_ns % NS_PER_S)};
    while (!interrupted && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

/* Listing directories costs more than reading counters, so it is done less often. */
static int watch_all(const struct leaks_watch *watch, struct follow *follow, struct growth *growth,
                     struct closer *closer)
{
    uint64_t begin_ns = clock_monotonic_ns(), listed_ns = 0, told_ns = 0;
    bool any = false;
    for (uint64_t due_ns = begin_ns;; due_ns += watch->interval_ns) {
        sleep_until(due_ns);
        uint64_t now_ns = clock_monotonic_ns();
        if (!listed_ns || now_ns - listed_ns >= LIST_EVERY_NS) {
            int r = follow_look(follow, false);
            if (r < 0)
                return r;
            listed_ns = now_ns;
        }
        size_t books = look(watch, follow_ledger(follow), growth);
        any |= books > 0;
        /* Suspected at half time, so that there are stacks at its end. */
        closer_look(closer, growth, follow_ledger(follow), watch->needs_ns / 2, watch->for_ns / 8,
                    now_ns);
        if (books == 0 && !(any && now_ns - begin_ns < watch->for_ns))
            return any ? 0 : -ENOENT;
        if (now_ns - told_ns >= NS_PER_S) {
            progress(watch, growth, books, now_ns - begin_ns);
            told_ns = now_ns;
        }
        if (interrupted || now_ns - begin_ns >= watch->for_ns + watch->interval_ns / 2)
            return 0;
        if (due_ns + watch->interval_ns < now_ns)
            due_ns = now_ns; /* we were kept from it: no use in catching up */
    }
}

/* Who is still there, and what it holds in which memory. */
static int last_look(const struct leaks_watch *watch, struct follow *follow)
{
    struct ledger *ledger = follow_ledger(follow);
    size_t n;
    int r = follow_look(follow, false);
    struct ledger_process *const *processes = ledger_processes(ledger, &n);
    for (size_t i = 0; r >= 0 && i < n; i++)
        if (!watch->wanted || watch->wanted(processes[i], watch->context))
            ledger_refresh_process(ledger, processes[i]);
    return r;
}

static size_t count_processes(const struct leaks_watch *watch, const struct ledger *ledger)
{
    size_t n, wanted = 0;
    struct ledger_process *const *processes = ledger_processes(ledger, &n);
    for (size_t i = 0; i < n; i++)
        wanted += !watch->wanted || watch->wanted(processes[i], watch->context);
    return wanted;
}

int leaks_watch(const struct leaks_watch *watch, struct follow **ret_follow,
                struct suspects *ret_suspects)
{
    struct growth_options options = {
        .tiers = {{watch->interval_ns, (unsigned)(watch->for_ns / watch->interval_ns) + 16}},
        .sites_max = SITES_MAX,
        .sites_per_user_max = SITES_MAX,
        .sites_per_book_max = SITES_PER_BOOK_MAX,
    };
    MEMOIR_CLEANUP(follow_freep)
    struct follow *follow = NULL;
    MEMOIR_CLEANUP(growth_freep)
    struct growth *growth = NULL;
    MEMOIR_CLEANUP(leaks_release)
    struct leaks leaks = {0};
    struct sigaction before;
    int r = follow_new(watch->dir, &follow);
    if (r >= 0)
        r = growth_new(&options, &growth);
    struct closer *closer = NULL;
    if (r >= 0)
        r = closer_new(&closer);
    if (r < 0)
        return r;
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_interrupt}, &before);
    r = watch_all(watch, follow, growth, closer);
    closer_free(closer, follow_ledger(follow));
    sigaction(SIGINT, &before, NULL);
    if (watch->progress)
        fputs("\r\033[K", stderr);
    if (r >= 0)
        r = last_look(watch, follow);
    if (r >= 0)
        r = leaks_take(growth, follow_ledger(follow),
                       &(struct leaks_options){
                           .needs_ns = watch->needs_ns,
                           .all = watch->all,
                           .ages = true,
                           .wanted = watch->wanted,
                           .context = watch->context,
                       },
                       &leaks);
    if (r >= 0)
        r = suspects_from(&leaks, ret_suspects);
    if (r < 0)
        return r;
    ret_suspects->left_out = growth_counts(growth).left_out;
    ret_suspects->processes = count_processes(watch, follow_ledger(follow));
    *ret_follow = MEMOIR_TAKE(follow);
    return 0;
}

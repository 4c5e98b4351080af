/* See climbing.h. */
#include "daemon/climbing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/accountable.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/asking.h"
#include "daemon/chores.h"
#include "daemon/climbing_internal.h"
#include "daemon/daemon.h"
#include "daemon/hosts.h"
#include "daemon/loop.h"
#include "explain/climb.h"
#include "explain/outside.h"
#include "ledger/host.h"
#include "ledger/leaks.h"
#include "ledger/ledger.h"
#include "profile/suspects.h"

/* ---- who is watched ---- */

static void climber_free(struct climber *c)
{
    if (c)
        outside_release(&c->watch);
    free(c);
}

static void drop(struct climbing *g, size_t i)
{
    climber_free(g->climbers[i]);
    g->climbers[i] = g->climbers[--g->n];
}

struct climber *climbing_find(const struct climbing *g, pid_t pid, uint64_t start_ticks)
{
    for (size_t i = 0; i < g->n; i++)
        if (g->climbers[i]->watch.pid == pid && g->climbers[i]->start_ticks == start_ticks)
            return g->climbers[i];
    return NULL;
}

static bool has_book(const struct climbing *g, pid_t pid)
{
    const struct ledger_process *p = ledger_process_find(g->daemon->ledger, pid);
    for (size_t i = 0; p && i < p->n_accounts; i++)
        if (p->accounts[i].valid && p->accounts[i].space == MEMOIR_SPACE_HEAP)
            return true;
    return false;
}

static size_t places_of(const struct climbing *g, uint32_t payer)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n; i++)
        n += g->climbers[i]->payer == payer;
    return n;
}

/* The one that has not grown for the longest time makes room, if that is long enough; else one of the user who has the most places, if
 * these are more than the newcomer's user has with it. */
static bool room_make(struct climbing *g, uint32_t payer, uint64_t now_ns)
{
    size_t oldest = 0, crowded = 0, most = 0;
    if (g->n < CLIMBING_MAX)
        return true;
    for (size_t i = 0; i < g->n; i++) {
        size_t places = places_of(g, g->climbers[i]->payer);
        if (g->climbers[i]->grown_ns < g->climbers[oldest]->grown_ns)
            oldest = i;
        if (places < most ||
            (places == most && g->climbers[i]->grown_ns >= g->climbers[crowded]->grown_ns))
            continue;
        most = places;
        crowded = i;
    }
    bool idle = now_ns - g->climbers[oldest]->grown_ns >= g->needs_ns / 2;
    if (!idle && most <= places_of(g, payer) + 1)
        return false;
    drop(g, idle ? oldest : crowded);
    return true;
}

/* False: there is no room. */
static bool watch(struct climbing *g, const struct host_process *row, uint64_t now_ns)
{
    uint32_t uid = row->valid & HOST_HAS_STATUS ? row->uid : UINT32_MAX;
    uint32_t payer = accountable_uid(uid);
    struct climber *c = room_make(g, payer, now_ns) ? calloc(1, sizeof(*c)) : NULL;
    if (!c)
        return false;
    outside_init(&c->watch, row->pid, now_ns);
    c->watch.needs_ns = g->needs_ns;
    c->watch.interval_ns = g->interval_ns;
    c->start_ticks = row->start_ticks;
    c->uid = uid;
    c->payer = payer;
    snprintf(c->program, sizeof(c->program), "%s", row->name);
    c->top_bytes = row->rss_bytes;
    c->grown_ns = now_ns;
    g->climbers[g->n++] = c;
    return true;
}

/* What it had at the last look, NULL if it was not there; `at` goes on from row to row. */
static const struct seen *seen_before(const struct climbing *g, size_t *at,
                                      const struct host_process *row)
{
    while (*at < g->n_seen && g->seen[*at].pid < row->pid)
        (*at)++;
    bool same = *at < g->n_seen && g->seen[*at].pid == row->pid &&
                g->seen[*at].start_ticks == row->start_ticks;
    return same ? &g->seen[*at] : NULL;
}

struct candidate {
    const struct host_process *row;
    uint64_t bytes;
    struct seen *seen;
};

static int most_first(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    return (a->bytes < b->bytes) - (a->bytes > b->bytes);
}

/* The table of all processes is ours meanwhile. */
static void scan_rows(struct climbing *g, struct host_process *const *rows, size_t n,
                      uint64_t now_ns)
{
    MEMOIR_CLEANUP(freep)
    struct candidate *found = calloc(n + 1, sizeof(*found));
    struct seen *seen = calloc(n + 1, sizeof(*seen));
    size_t n_found = 0, n_seen = 0, at = 0;
    for (size_t i = 0; found && seen && i < n; i++) {
        const struct host_process *row = rows[i];
        if (row->kernel || !(row->valid & HOST_HAS_MEMORY))
            continue;
        const struct seen *before = seen_before(g, &at, row);
        struct seen *now = &seen[n_seen++];
        *now =
            (struct seen){row->pid, row->start_ticks, row->rss_bytes, before && before->left_out};
        if (before && row->rss_bytes > before->rss_bytes + CLIMBING_STEP &&
            !climbing_find(g, row->pid, row->start_ticks) && !has_book(g, row->pid))
            found[n_found++] = (struct candidate){row, row->rss_bytes - before->rss_bytes, now};
    }
    if (!seen)
        return;
    free(g->seen);
    g->seen = seen;
    g->n_seen = n_seen;
    if (n_found)
        qsort(found, n_found, sizeof(*found), most_first);
    for (size_t i = 0; i < n_found; i++) {
        if (watch(g, found[i].row, now_ns) || found[i].seen->left_out)
            continue;
        found[i].seen->left_out = true;
        g->facts.left_out++;
    }
}

/* Those that have ended, and whose number another process may have. */
static void gone_drop(struct climbing *g, const struct host *host)
{
    for (size_t i = g->n; i-- > 0;) {
        const struct host_process *row = host_process_find(host, g->climbers[i]->watch.pid);
        if (!row || row->start_ticks != g->climbers[i]->start_ticks)
            drop(g, i);
    }
}

static void scan(struct climbing *g, uint64_t now_ns)
{
    struct hosts *hosts = g->daemon->hosts;
    const struct host *host = hosts ? hosts_peek(hosts) : NULL;
    if (!host)
        return;
    if (host_time_ns(host) != g->host_ns) {
        size_t n;
        struct host_process *const *rows = host_processes(host, &n);
        g->host_ns = host_time_ns(host);
        gone_drop(g, host);
        scan_rows(g, rows, n, now_ns);
    }
    hosts_unlock(hosts);
}

/* ---- in turn ---- */

static void look(struct climbing *g, uint64_t now_ns)
{
    for (size_t i = g->n; i-- > 0;) {
        struct climber *c = g->climbers[i];
        bool ended = outside_note(&c->watch, now_ns) < 0;
        uint64_t bytes = climber_bytes(c);
        if (bytes > c->top_bytes + CLIMBING_STEP) {
            c->top_bytes = bytes;
            c->grown_ns = now_ns;
        }
        if (ended || now_ns - c->grown_ns > 2 * g->needs_ns || has_book(g, c->watch.pid))
            drop(g, i);
    }
}

static void on_timer(void *context)
{
    struct climbing *g = context;
    uint64_t now_ns = clock_monotonic_ns();
    if (g->rounds++ % CLIMBING_SCAN == 0)
        scan(g, now_ns);
    look(g, now_ns);
    climbing_explain(g, now_ns);
}

static void climbing_freep(struct climbing **climbing)
{
    climbing_free(*climbing);
}

int climbing_new(struct daemon *daemon, uint64_t needs_ns, struct climbing **ret_climbing)
{
    MEMOIR_CLEANUP(climbing_freep)
    struct climbing *g = calloc(1, sizeof(*g));
    if (!g)
        return -ENOMEM;
    g->daemon = daemon;
    g->needs_ns = needs_ns;
    g->credited_ns = clock_monotonic_ns();
    g->credit_ns = CLIMBING_AHEAD_MS * NS_PER_MS;
    g->interval_ns = needs_ns / CLIMBING_LOOKS;
    if (g->interval_ns < CLIMBING_INTERVAL_MIN_MS * NS_PER_MS)
        g->interval_ns = CLIMBING_INTERVAL_MIN_MS * NS_PER_MS;
    int r = loop_add_timer(daemon->loop, on_timer, g, &g->timer);
    if (r >= 0)
        r = loop_timer_set(g->timer, g->interval_ns, g->interval_ns);
    if (r < 0)
        return r;
    *ret_climbing = MEMOIR_TAKE(g);
    return 0;
}

void climbing_free(struct climbing *g)
{
    if (!g)
        return;
    loop_source_free(g->timer);
    chores_free(g->chores); /* ends the errand */
    free(g->errand.explain);
    for (size_t i = 0; i < g->n; i++)
        climber_free(g->climbers[i]);
    free(g->seen);
    free(g);
}

struct climbing_facts climbing_facts(const struct climbing *g)
{
    struct climbing_facts facts = g ? g->facts : (struct climbing_facts){0};
    facts.watched = g ? g->n : 0;
    return facts;
}

/* ---- rows ---- */

static void points_take(const struct climber *c, struct suspect *row)
{
    uint64_t to_real_ns = clock_real_ns() - clock_monotonic_ns();
    row->points = calloc(c->watch.n, sizeof(*row->points));
    for (size_t i = 0; row->points && i < c->watch.n; i++)
        row->points[row->n_points++] = (struct suspect_point){
            c->watch.points[i].time_ns + to_real_ns, c->watch.points[i].alloc_bytes};
}

/* False: it does not grow, or what grows is not known yet, or the kernel can take it back. */
static bool row_make(struct climbing *g, struct climber *c, struct suspect *ret)
{
    struct detect_result result;
    struct outside_verdict grew = {0};
    if (climber_known(c) < 2 && !c->refused && !climber_is_large(c))
        return false;
    detect_judge(c->watch.points, c->watch.n,
                 &(struct detect_options){.needs_ns = g->needs_ns, .level_only = true}, &result);
    if (!leaks_level_tells(&result))
        return false;
    if (climber_known(c) == 2)
        outside_judge_all(&c->watch, &grew);
    if (grew.kind == EXPLAIN_FILE)
        return false;
    climb_row(ret, c->watch.pid, c->watch.points, c->watch.n, &result);
    climb_name(ret, &grew);
    points_take(c, ret);
    const char *user = c->uid == UINT32_MAX ? NULL : asking_user_name(g->daemon->asking, c->uid);
    ret->uid = c->uid;
    ret->program = strdup(c->program);
    ret->user = user ? strdup(user) : NULL;
    return true;
}

int climbing_suspects(struct climbing *g, const struct asking_viewer *viewer,
                      struct suspects *suspects)
{
    if (!g || g->n == 0)
        return 0;
    struct suspect *rows = realloc(suspects->rows, (suspects->n + g->n + 1) * sizeof(*rows));
    if (!rows)
        return -ENOMEM;
    suspects->rows = rows;
    for (size_t i = 0; i < g->n; i++) {
        if ((viewer && !asking_may_see(viewer, g->climbers[i]->uid)) ||
            !row_make(g, g->climbers[i], &rows[suspects->n]))
            continue;
        suspects->verdicts[rows[suspects->n].verdict]++;
        suspects->sites++;
        suspects->n++;
    }
    return 0;
}

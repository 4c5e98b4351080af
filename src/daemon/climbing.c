/* See climbing.h. */
#include "daemon/climbing.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/accountable.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/asking.h"
#include "daemon/broker.h"
#include "daemon/chores.h"
#include "daemon/daemon.h"
#include "daemon/hosts.h"
#include "daemon/loop.h"
#include "explain/climb.h"
#include "explain/outside.h"
#include "ledger/host.h"
#include "ledger/leaks.h"
#include "ledger/ledger.h"
#include "profile/suspects.h"

enum { NAME_BYTES = 64 };

struct climber {
    struct outside watch;
    uint64_t start_ticks; /* with watch.pid the identity */
    uint32_t uid;         /* UINT32_MAX: not known */
    uint32_t payer;       /* the user whose places it takes (base/accountable.h) */
    char program[NAME_BYTES];
    uint64_t top_bytes, grown_ns; /* the most it had, and when that rose */
    bool refused;                 /* its mappings may not be read */
};

/* What a process had at the last look at all of them. */
struct seen {
    pid_t pid;
    uint64_t start_ticks, rss_bytes;
    bool left_out; /* it is counted as such */
};

/* An explanation that is taken on the thread; the thread's until `done`. */
struct errand {
    struct daemon *daemon;
    bool open;
    pid_t pid;
    uint64_t start_ticks, begin_ns, cost_ns;
    uint32_t uid;
    struct explain *explain;
    int result;
    atomic_bool done;
};

struct climbing {
    struct daemon *daemon;
    struct loop_source *timer;
    struct chores *chores;
    uint64_t needs_ns, interval_ns;
    uint64_t rounds, host_ns; /* of the table that was looked at last */
    struct seen *seen;        /* by pid */
    size_t n_seen;
    struct climber *climbers[CLIMBING_MAX];
    size_t n;
    struct errand errand;
    int64_t credit_ns; /* time that explanations may take; below 0: none begins */
    uint64_t credited_ns;
    struct climbing_facts facts;
};

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

static struct climber *find(const struct climbing *g, pid_t pid, uint64_t start_ticks)
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
            !find(g, row->pid, row->start_ticks) && !has_book(g, row->pid))
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

/* ---- what they are made of ---- */

/* CPU time of children that have ended: explanations are taken in one. Others count, too, where they end at the same time. */
static uint64_t children_ns(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_CHILDREN, &usage) < 0)
        return 0;
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * NS_PER_S +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000;
}

/* With the rights of the user who is shown what was found: of a set-uid program he started, or of one that took the PID, he may see no
 * mappings. And what a user wrote is not interpreted as root. */
static void errand_run(void *context)
{
    struct errand *e = context;
    uint64_t begin_ns = clock_monotonic_ns();
    if (geteuid() == 0 && e->uid != 0) {
        e->result = broker_explain(e->daemon->broker, e->uid, e->pid, OUTSIDE_EXPLAIN_MS,
                                   e->explain, &e->cost_ns);
        if (e->result < 0)
            e->cost_ns = clock_monotonic_ns() - begin_ns;
    } else {
        uint64_t before_ns = children_ns();
        e->result = explain_take_apart(e->pid, e->uid, OUTSIDE_EXPLAIN_MS, e->explain);
        e->cost_ns = children_ns() - before_ns;
    }
    atomic_store_explicit(&e->done, true, memory_order_release);
}

static void errand_drop(void *context)
{
    struct errand *e = context;
    e->result = -ECANCELED;
    atomic_store_explicit(&e->done, true, memory_order_release);
}

static void errand_end(struct climbing *g)
{
    struct errand *e = &g->errand;
    struct climber *c = find(g, e->pid, e->start_ticks);
    int64_t least_ns = -(int64_t)(CLIMBING_AHEAD_MS * NS_PER_MS);
    g->credit_ns -= (int64_t)e->cost_ns;
    g->credit_ns = g->credit_ns > least_ns ? g->credit_ns : least_ns;
    g->facts.explanations++;
    g->facts.explain_ns += e->cost_ns;
    if (c && e->result == 0) {
        outside_explained(&c->watch, MEMOIR_TAKE(e->explain), e->begin_ns, e->cost_ns);
    } else if (c) {
        outside_explained(&c->watch, NULL, e->begin_ns, e->cost_ns);
        c->refused = e->result == -EACCES || e->result == -EPERM;
    }
    free(e->explain);
    e->explain = NULL;
    e->open = false;
}

static uint64_t bytes_now(const struct climber *c)
{
    return c->watch.n ? c->watch.points[c->watch.n - 1].alloc_bytes : 0;
}

static bool is_large(const struct climber *c)
{
    return bytes_now(c) > (uint64_t)CLIMBING_EXPLAIN_GB << 30;
}

static bool is_due(const struct climbing *g, const struct climber *c, uint64_t now_ns)
{
    const struct outside *w = &c->watch;
    uint64_t since_ns = now_ns - w->begin_ns, bytes = bytes_now(c);
    if (c->refused || is_large(c) || now_ns < w->explain_ns)
        return false;
    if (!w->first)
        return w->n >= CLIMBING_LOOKS / 6 && bytes >= w->points[0].alloc_bytes + CLIMBING_EARLY;
    if (w->last_ns == w->first_ns)
        return since_ns - w->first_ns >= g->needs_ns / 2 &&
               bytes >= w->first->rss_bytes + CLIMBING_LATER;
    return since_ns - w->last_ns >= CLIMBING_AGAIN * g->needs_ns && outside_due(w, now_ns);
}

/* Explanations: none, one, or two. */
static int known(const struct climber *c)
{
    return !c->watch.first ? 0 : c->watch.last_ns == c->watch.first_ns ? 1 : 2;
}

static void errand_begin(struct climbing *g, struct climber *c, uint64_t now_ns)
{
    struct errand *e = &g->errand;
    if (!g->chores && chores_new("memoird-climb", &g->chores) < 0)
        return;
    e->explain = calloc(1, sizeof(*e->explain));
    if (!e->explain)
        return;
    e->daemon = g->daemon;
    e->pid = c->watch.pid;
    e->start_ticks = c->start_ticks;
    e->uid = c->uid;
    e->begin_ns = now_ns;
    e->cost_ns = 0;
    atomic_store(&e->done, false);
    e->open = chores_add(g->chores, 0, errand_run, errand_drop, e) == 0;
    if (!e->open) {
        free(e->explain);
        e->explain = NULL;
    }
}

/* ---- in turn ---- */

static void look(struct climbing *g, uint64_t now_ns)
{
    for (size_t i = g->n; i-- > 0;) {
        struct climber *c = g->climbers[i];
        bool ended = outside_note(&c->watch, now_ns) < 0;
        uint64_t bytes = bytes_now(c);
        if (bytes > c->top_bytes + CLIMBING_STEP) {
            c->top_bytes = bytes;
            c->grown_ns = now_ns;
        }
        if (ended || now_ns - c->grown_ns > 2 * g->needs_ns || has_book(g, c->watch.pid))
            drop(g, i);
    }
}

/* Time passes: more explanations may be taken. */
static void credit(struct climbing *g, uint64_t now_ns)
{
    int64_t most_ns = (int64_t)(CLIMBING_AHEAD_MS * NS_PER_MS);
    g->credit_ns += (int64_t)((now_ns - g->credited_ns) / CLIMBING_SHARE);
    g->credit_ns = g->credit_ns < most_ns ? g->credit_ns : most_ns;
    g->credited_ns = now_ns;
}

/* The one that is due and of which the least is known; NULL: none is. */
static struct climber *next_due(const struct climbing *g, uint64_t now_ns)
{
    struct climber *next = NULL;
    for (size_t i = 0; i < g->n; i++) {
        struct climber *c = g->climbers[i];
        if (is_due(g, c, now_ns) && (!next || known(c) < known(next)))
            next = c;
    }
    return next;
}

static void on_timer(void *context)
{
    struct climbing *g = context;
    uint64_t now_ns = clock_monotonic_ns();
    if (g->rounds++ % CLIMBING_SCAN == 0)
        scan(g, now_ns);
    look(g, now_ns);
    if (g->errand.open && atomic_load_explicit(&g->errand.done, memory_order_acquire))
        errand_end(g);
    credit(g, now_ns);
    struct climber *due = g->errand.open || g->credit_ns < 0 ? NULL : next_due(g, now_ns);
    if (due)
        errand_begin(g, due, now_ns);
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
    if (known(c) < 2 && !c->refused && !is_large(c))
        return false;
    detect_judge(c->watch.points, c->watch.n,
                 &(struct detect_options){.needs_ns = g->needs_ns, .level_only = true}, &result);
    if (!leaks_level_tells(&result))
        return false;
    if (known(c) == 2)
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

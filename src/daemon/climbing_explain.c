/* What the watched processes are made of: two explanations of their mappings, taken on a thread. See climbing.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/broker.h"
#include "daemon/chores.h"
#include "daemon/climbing_internal.h"
#include "daemon/daemon.h"
#include "explain/explain.h"

/* CPU time of children that have ended: explanations are taken in one. Others count, too, where they end at the same time. */
static uint64_t children_ns(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_CHILDREN, &usage) < 0)
        return 0;
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * NS_PER_S +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000;
}

/* With the rights of the user to whom the result is shown. That user may not see the mappings of a set-uid program that it started, nor of
 * a process that took the PID. And memory that a user wrote is not interpreted as root. */
static void errand_run(void *context)
{
    struct errand *e = context;
    uint64_t begin_ns = clock_monotonic_ns();
    if (geteuid() == 0 && e->uid != 0) {
        e->result = broker_explain(e->daemon->broker, e->uid, e->pid, OUTSIDE_EXPLAIN_MS,
                                   e->explain, &e->cost_ns);
        if (e->result < 0)
            e->cost_ns = clock_monotonic_ns() - begin_ns;
        broker_rest(e->daemon->broker);
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

/* Did it fail for a reason that its user controls? Then the time that it took says nothing about the processor's. */
static bool is_late(const struct errand *e)
{
    return e->result < 0 && e->uid != 0 && e->result != -EACCES && e->result != -EPERM &&
           e->result != -ESRCH && e->result != -ECANCELED;
}

/* The user pays alone: other users keep their share of explanations. One that comes late on a busy machine costs little, several in
 * a row cost more and more. */
static void user_rest(struct climbing *g, const struct errand *e, uint64_t now_ns)
{
    struct climbing_rest *place = &g->rests[0];
    uint64_t length_ns = e->cost_ns * CLIMBING_REST;
    for (size_t i = 0; i < CLIMBING_MAX; i++) {
        struct climbing_rest *rest = &g->rests[i];
        if (rest->until_ns && rest->payer == e->payer) {
            place = rest;
            break;
        }
        if (rest->until_ns < place->until_ns)
            place = rest;
    }
    bool again = place->until_ns && place->payer == e->payer &&
                 now_ns < place->until_ns + 2 * place->length_ns;
    if (again && 2 * place->length_ns > length_ns)
        length_ns = 2 * place->length_ns;
    if (length_ns > e->cost_ns * CLIMBING_SHARE)
        length_ns = e->cost_ns * CLIMBING_SHARE;
    *place = (struct climbing_rest){e->payer, now_ns + length_ns, length_ns};
}

static bool user_rests(const struct climbing *g, uint32_t payer, uint64_t now_ns)
{
    for (size_t i = 0; i < CLIMBING_MAX; i++)
        if (g->rests[i].payer == payer && g->rests[i].until_ns > now_ns)
            return true;
    return false;
}

static void errand_end(struct climbing *g, uint64_t now_ns)
{
    struct errand *e = &g->errand;
    struct climber *c = climbing_find(g, e->pid, e->start_ticks);
    int64_t least_ns = -(int64_t)(CLIMBING_AHEAD_MS * NS_PER_MS);
    g->facts.explanations++;
    if (is_late(e)) {
        user_rest(g, e, now_ns);
    } else {
        g->credit_ns -= (int64_t)e->cost_ns;
        g->credit_ns = g->credit_ns > least_ns ? g->credit_ns : least_ns;
        g->facts.explain_ns += e->cost_ns;
    }
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

uint64_t climber_bytes(const struct climber *c)
{
    return c->watch.n ? c->watch.points[c->watch.n - 1].alloc_bytes : 0;
}

bool climber_is_large(const struct climber *c)
{
    return climber_bytes(c) > (uint64_t)CLIMBING_EXPLAIN_GB << 30;
}

static bool is_due(const struct climbing *g, const struct climber *c, uint64_t now_ns)
{
    const struct outside *w = &c->watch;
    uint64_t since_ns = now_ns - w->begin_ns, bytes = climber_bytes(c);
    if (c->refused || climber_is_large(c) || now_ns < w->explain_ns ||
        user_rests(g, c->payer, now_ns))
        return false;
    if (!w->first)
        return w->n >= CLIMBING_LOOKS / 6 && bytes >= w->points[0].alloc_bytes + CLIMBING_EARLY;
    if (w->last_ns == w->first_ns)
        return since_ns - w->first_ns >= g->needs_ns / 2 &&
               bytes >= w->first->rss_bytes + CLIMBING_LATER;
    return since_ns - w->last_ns >= CLIMBING_AGAIN * g->needs_ns && outside_due(w, now_ns);
}

unsigned climber_known(const struct climber *c)
{
    return !c->watch.first ? 0 : c->watch.last_ns == c->watch.first_ns ? 1 : 2;
}

static void errand_begin(struct climbing *g, struct climber *c, uint64_t now_ns)
{
    struct errand *e = &g->errand;
    if (!g->chores && chores_new("memoird-climb", 1, &g->chores) < 0)
        return;
    e->explain = calloc(1, sizeof(*e->explain));
    if (!e->explain)
        return;
    e->daemon = g->daemon;
    e->pid = c->watch.pid;
    e->start_ticks = c->start_ticks;
    e->uid = c->uid;
    e->payer = c->payer;
    e->begin_ns = now_ns;
    e->cost_ns = 0;
    atomic_store(&e->done, false);
    e->open = chores_add(g->chores, CHORES_ROOT, errand_run, errand_drop, e) == 0;
    if (!e->open) {
        free(e->explain);
        e->explain = NULL;
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
        if (is_due(g, c, now_ns) && (!next || climber_known(c) < climber_known(next)))
            next = c;
    }
    return next;
}

void climbing_explain(struct climbing *g, uint64_t now_ns)
{
    if (g->errand.open && atomic_load_explicit(&g->errand.done, memory_order_acquire))
        errand_end(g, now_ns);
    credit(g, now_ns);
    struct climber *due = g->errand.open || g->credit_ns < 0 ? NULL : next_due(g, now_ns);
    if (due)
        errand_begin(g, due, now_ns);
}

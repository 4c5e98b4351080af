/* See growing.h. */
#include "daemon/growing.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/loop.h"
#include "ledger/closer.h"
#include "ledger/growth.h"
#include "ledger/leaks.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"

enum { CLOSER_ROUNDS = 5 }; /* suspects are asked for more stacks so often */

struct growing {
    struct daemon *daemon;
    struct growth *growth;
    struct loop_source *timer, *work;
    uint64_t interval_ns;
    bool busy;              /* a round is under way */
    size_t next;            /* book of it */
    uint64_t cost_ns;       /* of it so far */
    uint64_t rest_until_ns; /* no round begins before */
    uint64_t rounds;
    struct closer *closer;
};

static void on_work(void *context)
{
    struct growing *g = context;
    uint64_t begin_ns = clock_monotonic_ns(), now_ns = begin_ns;
    struct ledger_books books = ledger_books(g->daemon->ledger);
    while (g->next < books.n && now_ns - begin_ns < GROWING_TURN_MS * NS_PER_MS) {
        /* What cannot be read now may be in the next round. */
        (void)growth_look(g->growth, books.books[g->next++], proc_monotonic_ns());
        now_ns = clock_monotonic_ns();
    }
    g->cost_ns += now_ns - begin_ns;
    if (g->next < books.n) {
        loop_defer(g->work);
        return;
    }
    growth_end(g->growth);
    closer_look(g->closer, g->growth, g->daemon->ledger, GROWING_NEEDS * g->interval_ns,
                CLOSER_ROUNDS * g->interval_ns, now_ns);
    g->busy = false;
    g->rounds++;
    g->rest_until_ns = now_ns + g->cost_ns * (GROWING_SHARE - 1);
}

static void on_timer(void *context)
{
    struct growing *g = context;
    if (g->busy || clock_monotonic_ns() < g->rest_until_ns)
        return;
    g->busy = true;
    g->next = 0;
    g->cost_ns = 0;
    growth_begin(g->growth);
    loop_defer(g->work);
}

static void growing_freep(struct growing **growing)
{
    growing_free(*growing);
}

/* The tiers keep their proportions, whatever the interval is. */
static struct growth_options options_for(uint64_t interval_ns)
{
    struct growth_options options = growth_daemon;
    for (size_t i = 0; i < GROWTH_TIERS_MAX; i++)
        options.tiers[i].step_ns =
            options.tiers[i].step_ns / growth_daemon.tiers[0].step_ns * interval_ns;
    return options;
}

int growing_new(struct daemon *daemon, uint64_t interval_ns, struct growing **ret_growing)
{
    struct growth_options options = options_for(interval_ns);
    MEMOIR_CLEANUP(growing_freep)
    struct growing *g = calloc(1, sizeof(*g));
    if (!g)
        return -ENOMEM;
    g->daemon = daemon;
    g->interval_ns = interval_ns;
    int r = growth_new(&options, &g->growth);
    if (r >= 0)
        r = closer_new(&g->closer);
    if (r >= 0)
        r = loop_add_deferred(daemon->loop, on_work, g, &g->work);
    if (r >= 0)
        r = loop_add_timer(daemon->loop, on_timer, g, &g->timer);
    if (r >= 0)
        r = loop_timer_set(g->timer, interval_ns, interval_ns);
    if (r < 0)
        return r;
    *ret_growing = MEMOIR_TAKE(g);
    return 0;
}

void growing_free(struct growing *growing)
{
    if (!growing)
        return;
    loop_source_free(growing->timer);
    loop_source_free(growing->work);
    closer_free(growing->closer, growing->daemon->ledger);
    growth_free(growing->growth);
    free(growing);
}

int growing_each(struct growing *growing,
                 int (*each)(const struct growth_series *series, void *context), void *context)
{
    return growing ? growth_each(growing->growth, each, context) : 0;
}

void growing_facts(const struct growing *growing, struct growth_counts *ret_counts,
                   uint64_t *ret_looks, uint64_t *ret_needs_ns)
{
    *ret_counts = growing ? growth_counts(growing->growth) : (struct growth_counts){0};
    *ret_looks = growing ? growing->rounds : 0;
    *ret_needs_ns = growing ? GROWING_NEEDS * growing->interval_ns : 0;
}

int growing_leaks(struct growing *growing, const struct leaks_options *wish,
                  struct leaks *ret_leaks)
{
    struct leaks_options options = *wish;
    *ret_leaks = (struct leaks){0};
    if (!growing)
        return 0;
    options.needs_ns = GROWING_NEEDS * growing->interval_ns;
    return leaks_take(growing->growth, growing->daemon->ledger, &options, ret_leaks);
}

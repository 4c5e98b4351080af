/* See symbol_pool.h. */
#include "daemon/symbol_pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/symbol_hosting.h"
#include "site/symbols.h"

struct member {
    bool held;
    pthread_t holder;              /* with `held` */
    uint32_t owner;                /* whose files its last questions were about */
    uint64_t used;                 /* number of the last time that it was taken */
    struct symbolizer *symbolizer; /* the holder's while it is held; NULL: not made yet */
};

struct symbol_pool {
    struct symbolizer_options options;
    struct symbol_host host;
    pthread_mutex_t lock; /* of all below, held for microseconds */
    struct member members[SYMBOL_POOL_MAX];
    uint64_t taken;
    uint64_t retry_ns; /* none is made before; 0: none failed */
};

int symbol_pool_new(struct daemon *daemon, unsigned timeout_ms, size_t results_bytes_max,
                    struct symbol_pool **ret_pool)
{
    struct symbol_pool *pool = calloc(1, sizeof(*pool));
    if (!pool)
        return -ENOMEM;
    pool->host = symbol_hosting(daemon);
    pool->options = (struct symbolizer_options){.timeout_ms = timeout_ms,
                                                .results_bytes_max = results_bytes_max,
                                                .host = geteuid() == 0 ? &pool->host : NULL};
    pthread_mutex_init(&pool->lock, NULL);
    *ret_pool = pool;
    return 0;
}

void symbol_pool_free(struct symbol_pool *pool)
{
    if (!pool)
        return;
    for (size_t i = 0; i < SYMBOL_POOL_MAX; i++)
        symbolizer_free(pool->members[i].symbolizer);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

/* ---- the lock is held ---- */

static struct member *held_by_us(struct symbol_pool *pool)
{
    for (size_t i = 0; i < SYMBOL_POOL_MAX; i++)
        if (pool->members[i].held && pthread_equal(pool->members[i].holder, pthread_self()))
            return &pool->members[i];
    return NULL;
}

/* Is `a` a better choice than `b`? Made before not made, then the same owner, then the one that was used least recently. */
static bool is_better(const struct member *a, const struct member *b, uint32_t owner)
{
    if (!a->symbolizer != !b->symbolizer)
        return a->symbolizer;
    if ((a->owner == owner) != (b->owner == owner))
        return a->owner == owner;
    return a->used < b->used;
}

static struct member *take(struct symbol_pool *pool, uint32_t owner)
{
    struct member *best = NULL;
    for (size_t i = 0; i < SYMBOL_POOL_MAX; i++) {
        struct member *m = &pool->members[i];
        if (!m->held && (!best || is_better(m, best, owner)))
            best = m;
    }
    if (!best || (!best->symbolizer && clock_monotonic_ns() < pool->retry_ns))
        return NULL;
    best->held = true;
    best->holder = pthread_self();
    best->used = ++pool->taken;
    return best;
}

/* ---- for others ---- */

/* Takes long, so the lock is not held. NULL, and the member is given back. */
static struct symbolizer *make(struct symbol_pool *pool, struct member *member)
{
    int r = symbolizer_new(&pool->options, &member->symbolizer);
    if (r == 0)
        return member->symbolizer;
    log_warn("cannot start the helper that reads debug information: %s, call sites stay without "
             "names for %d s",
             strerror(-r), SYMBOL_POOL_RETRY_S);
    pthread_mutex_lock(&pool->lock);
    member->symbolizer = NULL;
    member->held = false;
    pool->retry_ns = clock_monotonic_ns() + SYMBOL_POOL_RETRY_S * NS_PER_S;
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

struct symbolizer *symbol_pool_get(struct symbol_pool *pool, uint32_t owner)
{
    pthread_mutex_lock(&pool->lock);
    struct member *member = held_by_us(pool);
    if (!member)
        member = take(pool, owner);
    if (member)
        member->owner = owner;
    pthread_mutex_unlock(&pool->lock);
    if (!member)
        return NULL;
    struct symbolizer *symbolizer = member->symbolizer;
    if (!symbolizer)
        symbolizer = make(pool, member);
    if (symbolizer)
        symbolizer_act_as(symbolizer, owner);
    return symbolizer;
}

void symbol_pool_rest(struct symbol_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    struct member *member = held_by_us(pool);
    if (member)
        member->held = false;
    pthread_mutex_unlock(&pool->lock);
}

/* The tree of cgroups of memoird. See cgroup_table.h. */
#include "daemon/cgroup_table.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "ledger/cgroups.h"

struct cgroup_table {
    const char *root; /* constant */

    /* The thread's only. */
    struct cgroups *under_way; /* NULL: none */
    uint64_t cost_ns;          /* of it, so far */

    pthread_mutex_t lock;  /* for what follows */
    struct cgroups *whole; /* the last look; NULL: none, or there are no cgroups */
    uint64_t asked_ns;     /* 0: never */
    uint64_t next_ns;      /* when the next look begins; 0: none has ended yet */
};

int cgroup_table_new(const char *root, struct cgroup_table **ret_table)
{
    struct cgroup_table *table = calloc(1, sizeof(*table));
    if (!table)
        return -ENOMEM;
    table->root = root;
    pthread_mutex_init(&table->lock, NULL);
    *ret_table = table;
    return 0;
}

void cgroup_table_free(struct cgroup_table *table)
{
    if (!table)
        return;
    pthread_mutex_destroy(&table->lock);
    cgroups_free(table->under_way);
    cgroups_free(table->whole);
    free(table);
}

/* ---- the thread ---- */

uint64_t cgroup_table_due_ns(struct cgroup_table *table, uint64_t now_ns)
{
    pthread_mutex_lock(&table->lock);
    bool wanted = table->asked_ns && now_ns < table->asked_ns + CGROUP_TABLE_WANTED_S * NS_PER_S;
    uint64_t next_ns = table->under_way ? now_ns : table->next_ns;
    pthread_mutex_unlock(&table->lock);
    return wanted ? next_ns : UINT64_MAX;
}

/* Between a second and CGROUP_TABLE_REST_MAX_S. */
static uint64_t rest_ns(uint64_t cost_ns)
{
    uint64_t rest = cost_ns * CGROUP_TABLE_SHARE, most = CGROUP_TABLE_REST_MAX_S * NS_PER_S;
    if (rest > most)
        return most;
    return rest > NS_PER_S ? rest : NS_PER_S;
}

/* `look` may be NULL: there is nothing to look at. */
static void publish(struct cgroup_table *table, struct cgroups *look)
{
    uint64_t now = clock_monotonic_ns();
    pthread_mutex_lock(&table->lock);
    struct cgroups *before = table->whole;
    table->whole = look;
    table->next_ns = now + rest_ns(table->cost_ns);
    pthread_mutex_unlock(&table->lock);
    cgroups_free(before);
    table->cost_ns = 0;
}

void cgroup_table_turn(struct cgroup_table *table)
{
    uint64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    int r = table->under_way ? 0 : cgroups_new(table->root, &table->under_way);
    if (r == 0)
        r = cgroups_read(table->under_way, CGROUP_TABLE_SLICE_MS * NS_PER_MS);
    table->cost_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - began;
    if (r == 0)
        return;
    struct cgroups *look = table->under_way;
    table->under_way = NULL;
    if (r < 0) {
        cgroups_free(look);
        look = NULL;
    }
    publish(table, look);
}

/* ---- who asks ---- */

bool cgroup_table_ready(struct cgroup_table *table)
{
    uint64_t now = clock_monotonic_ns();
    pthread_mutex_lock(&table->lock);
    table->asked_ns = now;
    bool ready = table->next_ns && now < table->next_ns + CGROUP_TABLE_STALE_MS * NS_PER_MS;
    pthread_mutex_unlock(&table->lock);
    return ready;
}

const struct cgroups *cgroup_table_lock(struct cgroup_table *table)
{
    pthread_mutex_lock(&table->lock);
    if (table->whole)
        return table->whole;
    pthread_mutex_unlock(&table->lock);
    return NULL;
}

void cgroup_table_unlock(struct cgroup_table *table)
{
    pthread_mutex_unlock(&table->lock);
}

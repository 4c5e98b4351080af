/* See chores.h. */
#include "daemon/chores.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "daemon/worker.h"

struct chore {
    chore_fn *run, *drop;
    void *context;
};

struct chores {
    struct worker worker;
    struct chore waiting[CHORES_WAITING_MAX]; /* a ring; all that follows is under its lock */
    size_t first, n;
};

static bool next(struct chores *chores, struct chore *ret_chore)
{
    worker_lock(&chores->worker);
    while (chores->n == 0 && !chores->worker.stop)
        worker_wait(&chores->worker, UINT64_MAX);
    bool go_on = !chores->worker.stop;
    if (go_on) {
        *ret_chore = chores->waiting[chores->first];
        chores->first = (chores->first + 1) % CHORES_WAITING_MAX;
        chores->n--;
    }
    worker_unlock(&chores->worker);
    return go_on;
}

static void work(void *context)
{
    struct chores *chores = context;
    struct chore chore;
    while (next(chores, &chore))
        chore.run(chore.context);
}

int chores_new(const char *name, struct chores **ret_chores)
{
    struct chores *chores = calloc(1, sizeof(*chores));
    if (!chores)
        return -ENOMEM;
    int r = worker_start(&chores->worker, name, 0, work, chores);
    if (r < 0) {
        free(chores);
        return r;
    }
    *ret_chores = chores;
    return 0;
}

void chores_free(struct chores *chores)
{
    if (!chores)
        return;
    worker_stop(&chores->worker);
    for (; chores->n > 0; chores->n--) {
        struct chore *chore = &chores->waiting[chores->first];
        chore->drop(chore->context);
        chores->first = (chores->first + 1) % CHORES_WAITING_MAX;
    }
    free(chores);
}

int chores_add(struct chores *chores, chore_fn *run, chore_fn *drop, void *context)
{
    worker_lock(&chores->worker);
    int r = chores->n < CHORES_WAITING_MAX && !chores->worker.stop ? 0 : -EBUSY;
    if (r == 0) {
        size_t at = (chores->first + chores->n++) % CHORES_WAITING_MAX;
        chores->waiting[at] = (struct chore){run, drop, context};
        worker_wake(&chores->worker);
    }
    worker_unlock(&chores->worker);
    return r;
}

size_t chores_waiting(struct chores *chores)
{
    worker_lock(&chores->worker);
    size_t n = chores->n;
    worker_unlock(&chores->worker);
    return n;
}

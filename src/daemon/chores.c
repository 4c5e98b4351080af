/* See chores.h. */
#include "daemon/chores.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/worker.h"

struct chore {
    chore_fn *run, *drop;
    void *context;
    unsigned user;
};

struct chores {
    struct worker worker;
    struct chore waiting[CHORES_WAITING_MAX]; /* as they came; all that follows is under its lock */
    size_t n;
    uint64_t last[CHORES_USERS]; /* number of each user's last one that was begun */
    uint64_t begun;
};

static struct chore take(struct chores *chores, size_t i)
{
    struct chore chore = chores->waiting[i];
    chores->n--;
    memmove(&chores->waiting[i], &chores->waiting[i + 1], (chores->n - i) * sizeof(chore));
    return chore;
}

/* The first one of the user whose last one is longest ago: one user's thirty do not keep another's single one waiting. */
static struct chore choose(struct chores *chores)
{
    size_t best = 0;
    for (size_t i = 1; i < chores->n; i++)
        if (chores->last[chores->waiting[i].user] < chores->last[chores->waiting[best].user])
            best = i;
    chores->last[chores->waiting[best].user] = ++chores->begun;
    return take(chores, best);
}

static bool next(struct chores *chores, struct chore *ret_chore)
{
    worker_lock(&chores->worker);
    while (chores->n == 0 && !chores->worker.stop)
        worker_wait(&chores->worker, UINT64_MAX);
    bool go_on = !chores->worker.stop;
    if (go_on)
        *ret_chore = choose(chores);
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
    while (chores->n > 0) {
        struct chore chore = take(chores, 0);
        chore.drop(chore.context);
    }
    free(chores);
}

int chores_add(struct chores *chores, unsigned user, chore_fn *run, chore_fn *drop, void *context)
{
    worker_lock(&chores->worker);
    int r = chores->n < CHORES_WAITING_MAX && !chores->worker.stop ? 0 : -EBUSY;
    if (r == 0) {
        chores->waiting[chores->n++] = (struct chore){run, drop, context, user % CHORES_USERS};
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

/* See chores.h. */
#include "daemon/chores.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

struct chore {
    chore_fn *run, *drop;
    void *context;
};

struct chores {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct chore waiting[CHORES_WAITING_MAX]; /* a ring; all that follows is under the lock */
    size_t first, n;
    bool ending;
};

static bool next(struct chores *chores, struct chore *ret_chore)
{
    pthread_mutex_lock(&chores->lock);
    while (chores->n == 0 && !chores->ending)
        pthread_cond_wait(&chores->changed, &chores->lock);
    bool go_on = !chores->ending;
    if (go_on) {
        *ret_chore = chores->waiting[chores->first];
        chores->first = (chores->first + 1) % CHORES_WAITING_MAX;
        chores->n--;
    }
    pthread_mutex_unlock(&chores->lock);
    return go_on;
}

static void *work(void *context)
{
    struct chores *chores = context;
    struct chore chore;
    while (next(chores, &chore))
        chore.run(chore.context);
    return NULL;
}

int chores_new(const char *name, struct chores **ret_chores)
{
    struct chores *chores = calloc(1, sizeof(*chores));
    sigset_t all, before;
    if (!chores)
        return -ENOMEM;
    pthread_mutex_init(&chores->lock, NULL);
    pthread_cond_init(&chores->changed, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = -pthread_create(&chores->thread, NULL, work, chores);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r < 0) {
        free(chores);
        return r;
    }
    pthread_setname_np(chores->thread, name);
    *ret_chores = chores;
    return 0;
}

void chores_free(struct chores *chores)
{
    if (!chores)
        return;
    pthread_mutex_lock(&chores->lock);
    chores->ending = true;
    pthread_cond_signal(&chores->changed);
    pthread_mutex_unlock(&chores->lock);
    pthread_join(chores->thread, NULL);
    for (; chores->n > 0; chores->n--) {
        struct chore *chore = &chores->waiting[chores->first];
        chore->drop(chore->context);
        chores->first = (chores->first + 1) % CHORES_WAITING_MAX;
    }
    pthread_cond_destroy(&chores->changed);
    pthread_mutex_destroy(&chores->lock);
    free(chores);
}

int chores_add(struct chores *chores, chore_fn *run, chore_fn *drop, void *context)
{
    pthread_mutex_lock(&chores->lock);
    int r = chores->n < CHORES_WAITING_MAX && !chores->ending ? 0 : -EBUSY;
    if (r == 0) {
        size_t at = (chores->first + chores->n++) % CHORES_WAITING_MAX;
        chores->waiting[at] = (struct chore){run, drop, context};
        pthread_cond_signal(&chores->changed);
    }
    pthread_mutex_unlock(&chores->lock);
    return r;
}

size_t chores_waiting(struct chores *chores)
{
    pthread_mutex_lock(&chores->lock);
    size_t n = chores->n;
    pthread_mutex_unlock(&chores->lock);
    return n;
}

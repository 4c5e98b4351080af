/* System calls with a deadline. See deadline.h. */
#include "observe/deadline.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/clock.h"

/* What workers and their caller share. It lives until the last of them is gone. */
struct shared {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t references; /* the caller and every worker */
    uint32_t lost;
    uint32_t lost_owners
        [DEADLINE_LOST_MAX]; /* users for whom `lost` workers were left behind, in no order */
};

struct worker {
    struct shared *shared;
    struct deadline_job *job; /* NULL: idle */
    uint32_t owner;           /* of the job */
    bool leave;               /* end; if it has a job, its caller is gone */
};

struct deadline {
    struct shared *shared;
    struct worker *worker; /* NULL: none was started, or it was left behind */
};

static void shared_unref(struct shared *s)
{
    pthread_mutex_lock(&s->lock);
    bool last = --s->references == 0;
    pthread_mutex_unlock(&s->lock);
    if (!last)
        return;
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static void lost_remove(struct shared *s, uint32_t owner)
{
    for (uint32_t i = 0; i < s->lost; i++) {
        if (s->lost_owners[i] != owner)
            continue;
        s->lost_owners[i] = s->lost_owners[--s->lost];
        return;
    }
}

static bool may_run(struct shared *s, uint32_t owner)
{
    uint32_t n = 0;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < s->lost; i++)
        n += s->lost_owners[i] == owner;
    bool may = n < DEADLINE_OWNER_MAX && s->lost < DEADLINE_LOST_MAX;
    pthread_mutex_unlock(&s->lock);
    return may;
}

static void *worker_run(void *argument)
{
    struct worker *w = argument;
    struct shared *s = w->shared;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!w->job && !w->leave)
            pthread_cond_wait(&s->changed, &s->lock);
        struct deadline_job *job = w->job;
        if (!job)
            break;
        pthread_mutex_unlock(&s->lock);
        job->run(job);
        pthread_mutex_lock(&s->lock);
        w->job = NULL;
        pthread_cond_broadcast(&s->changed);
        if (w->leave) {
            free(job);
            lost_remove(s, w->owner);
            break;
        }
    }
    pthread_mutex_unlock(&s->lock);
    free(w);
    shared_unref(s);
    return NULL;
}

/* Signals are for other threads. */
static int worker_start(struct deadline *d)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, before;
    struct worker *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    w->shared = d->shared;
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(&thread, &attr, worker_run, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (r != 0) {
        free(w);
        return -r;
    }
    pthread_mutex_lock(&d->shared->lock);
    d->shared->references++;
    pthread_mutex_unlock(&d->shared->lock);
    d->worker = w;
    return 0;
}

int deadline_new(struct deadline **ret_deadline)
{
    pthread_condattr_t attr;
    struct deadline *d = calloc(1, sizeof(*d));
    struct shared *s = calloc(1, sizeof(*s));
    if (!d || !s) {
        free(d);
        free(s);
        return -ENOMEM;
    }
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&s->lock, NULL);
    s->references = 1;
    d->shared = s;
    *ret_deadline = d;
    return 0;
}

void deadline_free(struct deadline *d)
{
    if (!d)
        return;
    pthread_mutex_lock(&d->shared->lock);
    if (d->worker)
        d->worker->leave = true;
    pthread_cond_broadcast(&d->shared->changed);
    pthread_mutex_unlock(&d->shared->lock);
    shared_unref(d->shared);
    free(d);
}

int deadline_run(struct deadline *d, uint32_t owner, struct deadline_job *job)
{
    struct shared *s = d->shared;
    if (!may_run(s, owner))
        return -EBUSY;
    int r = d->worker ? 0 : worker_start(d);
    if (r < 0)
        return r;
    uint64_t until = clock_monotonic_ns() + DEADLINE_MS * NS_PER_MS;
    struct timespec at = {.tv_sec = (time_t)(until / NS_PER_S),
                          .tv_nsec = (long)(until % NS_PER_S)};
    pthread_mutex_lock(&s->lock);
    d->worker->job = job;
    d->worker->owner = owner;
    pthread_cond_broadcast(&s->changed);
    while (d->worker->job && r != ETIMEDOUT)
        r = pthread_cond_timedwait(&s->changed, &s->lock, &at);
    bool late = d->worker->job;
    if (late) {
        d->worker->leave = true;
        d->worker = NULL;
        s->lost_owners[s->lost++] = owner;
    }
    pthread_mutex_unlock(&s->lock);
    return late ? -ETIME : 0;
}

uint32_t deadline_lost(struct deadline *d)
{
    pthread_mutex_lock(&d->shared->lock);
    uint32_t lost = d->shared->lost;
    pthread_mutex_unlock(&d->shared->lock);
    return lost;
}

/* Threads beside the loop. See worker.h. */
#include "base/worker.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"

static void *begin(void *context)
{
    struct worker *worker = context;
    pthread_setname_np(pthread_self(), worker->name);
    if (worker->nice)
        (void)setpriority(PRIO_PROCESS, (id_t)gettid(), worker->nice);
    worker->run(worker->context);
    return NULL;
}

int worker_start(struct worker *worker, const char *name, int nice, worker_fn *run, void *context)
{
    sigset_t all, before;
    pthread_condattr_t attributes;
    worker->run = run;
    worker->context = context;
    worker->name = name;
    worker->nice = nice;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->more, &attributes);
    pthread_condattr_destroy(&attributes);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = -pthread_create(&worker->thread, NULL, begin, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    worker->started = r == 0;
    if (r < 0) {
        worker->stop = true;
        pthread_mutex_destroy(&worker->lock);
        pthread_cond_destroy(&worker->more);
    }
    return r;
}

void worker_stop(struct worker *worker)
{
    if (!worker->started)
        return;
    worker_lock(worker);
    worker->stop = true;
    worker_wake(worker);
    worker_unlock(worker);
    pthread_join(worker->thread, NULL);
    pthread_mutex_destroy(&worker->lock);
    pthread_cond_destroy(&worker->more);
    worker->started = false;
}

void worker_wait(struct worker *worker, uint64_t until_ns)
{
    if (until_ns == UINT64_MAX) {
        pthread_cond_wait(&worker->more, &worker->lock);
        return;
    }
    struct timespec until = {(time_t)(until_ns / NS_PER_S), (long)(until_ns % NS_PER_S)};
    (void)pthread_cond_timedwait(&worker->more, &worker->lock, &until);
}

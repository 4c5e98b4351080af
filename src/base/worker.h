/* A thread beside the loop, for what takes long, with the lock and the condition that it shares with those who want
 * something of it.
 *
 *     static void run(void *context)
 *     {
 *         struct thing *thing = context;
 *         worker_lock(&thing->worker);
 *         while (!thing->worker.stop) {
 *             if (nothing to do)
 *                 worker_wait(&thing->worker, UINT64_MAX);
 *             ...                                      // unlocked while it works
 *         }
 *         worker_unlock(&thing->worker);
 *     }
 *
 * It takes no signals: those are the loop's. What is between worker_lock() and worker_unlock() is short, since the loop
 * waits for it. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef void worker_fn(void *context);

struct worker {
    pthread_t thread;
    pthread_mutex_t lock; /* for `stop`, and for all that the owner says */
    pthread_cond_t more;
    bool stop;    /* it shall end, or never ran */
    bool started; /* owner only */

    /* Constant. */
    worker_fn *run;
    void *context;
    const char *name;
    int nice;
};

/* `name` has at most 15 bytes and is borrowed for good; `nice`: how much others come first. `worker` is zeroed, and stays
 * where it is. -errno. */
int worker_start(struct worker *worker, const char *name, int nice, worker_fn *run, void *context);

/* Sets `stop`, wakes it, and waits until it has returned. Fine for one that was not started, and again. */
void worker_stop(struct worker *worker);

static inline void worker_lock(struct worker *worker)
{
    pthread_mutex_lock(&worker->lock);
}

static inline bool worker_try_lock(struct worker *worker)
{
    return pthread_mutex_trylock(&worker->lock) == 0;
}

static inline void worker_unlock(struct worker *worker)
{
    pthread_mutex_unlock(&worker->lock);
}

/* Locked: there is something to do. */
static inline void worker_wake(struct worker *worker)
{
    pthread_cond_signal(&worker->more);
}

/* The thread itself, locked: until it is woken, or until that time (CLOCK_MONOTONIC; UINT64_MAX: none); perhaps earlier. */
void worker_wait(struct worker *worker, uint64_t until_ns);

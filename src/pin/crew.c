/* crew.c: see crew.h. */
#include "pin/crew.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/kernel.h"
#include "pin/manager.h"

enum { STACK = 128 << 10, HANDOVER_SPINS = 200, HANDOVER_NS = 20000 };

/* NONE: no thread. STARTING: crew_start() stores its work, which may not be read yet. BUSY: it has
 * work. IDLE: it looks for some. ASLEEP: it has to be woken, and may end by itself. */
enum { NONE = 0, STARTING = 1, BUSY = 2, IDLE = 3, ASLEEP = 4 };

static struct worker {
    uint32_t state; /* a futex */
    void (*work)(void *);
    void *argument; /* with `work`: stored before the state becomes BUSY */
} workers[CREW_MAX];

/* ---- threads ---- */

/* Copies come one after the other: the next one is often there before a sleep would have begun. */
static bool spin_for_work(struct worker *w)
{
    uint64_t end = clock_monotonic_ns() + CREW_SPIN_NS;
    while (load_acquire(&w->state) == IDLE) {
        for (unsigned i = 0; i < 50; i++)
            cpu_relax();
        uint32_t idle = IDLE;
        if (clock_monotonic_ns() > end && cas_acq_rel(&w->state, &idle, ASLEEP))
            return false;
    }
    return true;
}

/* The worker was taken: wait until its work is stored. The thread that does so may have lost its
 * CPU, so this one sleeps after a while: a yield would not let a thread of lower priority run. */
static void wait_for_handover(const struct worker *w)
{
    const struct timespec pause = {.tv_nsec = HANDOVER_NS};
    for (unsigned turn = 1; load_acquire(&w->state) == STARTING; turn++)
        if (turn < HANDOVER_SPINS)
            cpu_relax();
        else
            (void)kernel_call(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, (long)&pause, 0, 0);
}

/* True: there is work. False: none for a while, and the thread is on no list any more. */
static bool wait_for_work(struct worker *w)
{
    struct timespec limit = {.tv_sec = CREW_IDLE_MS / 1000,
                             .tv_nsec = CREW_IDLE_MS % 1000 * 1000000L};
    if (spin_for_work(w)) {
        wait_for_handover(w);
        return true;
    }
    while (load_acquire(&w->state) == ASLEEP) {
        long r =
            kernel_call(SYS_futex, (long)&w->state, FUTEX_WAIT_PRIVATE, ASLEEP, (long)&limit, 0);
        uint32_t asleep = ASLEEP;
        if (r == -ETIMEDOUT && cas_acq_rel(&w->state, &asleep, NONE))
            return false;
    }
    wait_for_handover(w);
    return true;
}

static void *worker_run(void *argument)
{
    struct worker *w = argument;
    pin_inside = true; /* what it does is not the program's */
    (void)prctl(PR_SET_NAME, "memoir-pin");
    do {
        w->work(w->argument);
        store_release(&w->state, IDLE);
    } while (wait_for_work(w));
    return NULL;
}

static bool worker_make(struct worker *w)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    /* A program may handle faults of its memory, on whatever thread they happen. */
    const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        sigdelset(&all, faults[i]);
    if (pthread_attr_init(&attributes) != 0)
        return false;
    (void)pthread_attr_setstacksize(&attributes, STACK);
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    bool outer = pin_inside;
    pin_inside = true;
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    bool made = pthread_create(&thread, &attributes, worker_run, w) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    pin_inside = outer;
    (void)pthread_attr_destroy(&attributes);
    return made;
}

static bool worker_take(struct worker *w, uint32_t from, void (*work)(void *), void *argument)
{
    if (!cas_acq_rel(&w->state, &from, STARTING))
        return false;
    w->work = work;
    w->argument = argument;
    store_release(&w->state, BUSY);
    return true;
}

bool crew_start(void (*work)(void *), void *argument)
{
    for (unsigned i = 0; i < CREW_MAX; i++)
        if (worker_take(&workers[i], IDLE, work, argument))
            return true;
    for (unsigned i = 0; i < CREW_MAX; i++)
        if (worker_take(&workers[i], ASLEEP, work, argument)) {
            (void)kernel_call(SYS_futex, (long)&workers[i].state, FUTEX_WAKE_PRIVATE, 1, 0, 0);
            return true;
        }
    for (unsigned i = 0; i < CREW_MAX; i++)
        if (worker_take(&workers[i], NONE, work, argument)) {
            if (worker_make(&workers[i]))
                return true;
            store_release(&workers[i].state, NONE);
            return false;
        }
    return false;
}

void crew_forget(void)
{
    memset(workers, 0, sizeof(workers));
}

/* crew.c: see crew.h. */
#include "pin/crew.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
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
#include "book/cgroup.h"
#include "pin/manager.h"
#include "pin/quota.h"
#include "pin/text.h"

enum { STACK = 128 << 10, PATH = 600, TEXT = 512, HANDOVER_SPINS = 200, HANDOVER_NS = 20000 };

/* NONE: no thread. STARTING: crew_start() stores its work, which may not be read yet. BUSY: it has
 * work. IDLE: it looks for some. ASLEEP: it has to be woken, and may end by itself. */
enum { NONE = 0, STARTING = 1, BUSY = 2, IDLE = 3, ASLEEP = 4 };

static struct worker {
    uint32_t state; /* a futex */
    void (*work)(void *);
    void *argument; /* with `work`: stored before the state becomes BUSY */
} workers[CREW_MAX];

/* ---- how many ---- */

static bool text_read(const char *path, char text[static TEXT])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    ssize_t n = fd < 0 ? -1 : read(fd, text, TEXT - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* The smallest quota of the process's cgroup and of those around it; 0: none. Version 2 alone: with
 * version 1 the controller's place is not in the same line. */
static unsigned quota_read(void)
{
    char cgroup[TEXT], path[PATH];
    unsigned least = 0;
    bool v1;
    if (cgroup_path_read("/proc", "self", cgroup, sizeof(cgroup), &v1) < 0 || v1)
        return 0;
    for (char *at = cgroup; *at;) {
        struct pin_text t = {.at = path, .left = sizeof(path) - 1};
        char limit[TEXT];
        pin_text_string(&t, "/sys/fs/cgroup");
        pin_text_string(&t, at);
        pin_text_string(&t, "/cpu.max");
        *t.at = '\0';
        unsigned quota = !t.cut && text_read(path, limit) ? pin_quota_cpus(limit) : 0;
        least = quota && (!least || quota < least) ? quota : least;
        *strrchr(at, '/') = '\0';
    }
    return least;
}

unsigned crew_cpus(void)
{
    static uint64_t read_at_ns;
    static unsigned known;
    uint64_t now = pin_now_ns();
    unsigned cpus = load_relaxed(&known);
    if (cpus && now - load_relaxed(&read_at_ns) < NS_PER_S)
        return cpus;
    cpu_set_t mask;
    int saved = errno;
    unsigned quota = quota_read();
    cpus = sched_getaffinity(0, sizeof(mask), &mask) == 0 ? (unsigned)CPU_COUNT(&mask) : 1;
    errno = saved;
    cpus = quota && quota < cpus ? quota : cpus;
    cpus = cpus ? cpus : 1;
    store_relaxed(&known, cpus);
    store_relaxed(&read_at_ns, now);
    return cpus;
}

unsigned crew_share(void)
{
    unsigned cpus = crew_cpus();
    return cpus <= 4 ? cpus : cpus / 2 < 4 ? 4 : cpus / 2;
}

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

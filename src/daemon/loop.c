/* The event loop. Sources are kept in a list; each has the descriptor that epoll waits for, which the
 * loop owns except for loop_add_fd()'s. */
#include "daemon/loop.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"

enum { LOOP_EVENTS_MAX = 256 }; /* of one turn; the rest waits for the next */

enum source_kind { SOURCE_FD, SOURCE_TIMER, SOURCE_SIGNAL, SOURCE_WAKE, SOURCE_DEFERRED };

struct loop_source {
    struct loop *loop;
    struct loop_source *next, *previous;
    enum source_kind kind;
    int fd; /* -1 for a deferred one */
    bool dead, armed;
    union {
        loop_fd_fn *call_fd;
        loop_fn *call;
    };
    void *context;
};

/* Turns by how long they took: eight classes for each power of two of nanoseconds. The last minute is kept as six
 * parts, each of which is emptied when its time comes again. */
enum { LAG_PARTS = 6, LAG_PART_S = 10, LAG_STEPS = 8, LAG_CLASSES = 40 * LAG_STEPS };

struct lag_part {
    uint64_t number; /* of its 10 seconds, since boot */
    uint32_t turns[LAG_CLASSES];
};

struct loop {
    int epoll_fd;
    bool stopping;
    bool in_turn;
    size_t n_armed; /* deferred sources that want to run */
    struct loop_source *sources;
    struct loop_source *deferred;  /* those of that kind are few: a list of their own */
    struct loop_source *graveyard; /* freed in this turn */
    struct lag_part lag[LAG_PARTS];
};

int loop_new(struct loop **ret_loop)
{
    struct loop *loop = calloc(1, sizeof(*loop));
    if (!loop)
        return -ENOMEM;
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll_fd < 0) {
        int r = -errno;
        free(loop);
        return r;
    }
    *ret_loop = loop;
    return 0;
}

static struct loop_source **list_of(struct loop *loop, enum source_kind kind)
{
    return kind == SOURCE_DEFERRED ? &loop->deferred : &loop->sources;
}

static void source_unlink(struct loop_source *source)
{
    if (source->previous)
        source->previous->next = source->next;
    else
        *list_of(source->loop, source->kind) = source->next;
    if (source->next)
        source->next->previous = source->previous;
}

void loop_source_free(struct loop_source *source)
{
    if (!source || source->dead)
        return;
    struct loop *loop = source->loop;
    source->dead = true;
    if (source->armed)
        loop->n_armed--;
    source->armed = false;
    if (source->fd >= 0) {
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
        if (source->kind != SOURCE_FD)
            close(source->fd);
        source->fd = -1;
    }
    source_unlink(source);
    if (!loop->in_turn) {
        free(source);
        return;
    }
    /* An event of this turn may still point to it. Its `next` stays, for who walks the list. */
    source->previous = loop->graveyard;
    loop->graveyard = source;
}

static void bury_dead(struct loop *loop)
{
    while (loop->graveyard) {
        struct loop_source *source = loop->graveyard;
        loop->graveyard = source->previous;
        free(source);
    }
}

void loop_free(struct loop *loop)
{
    if (!loop)
        return;
    loop->in_turn = false;
    while (loop->sources)
        loop_source_free(loop->sources);
    while (loop->deferred)
        loop_source_free(loop->deferred);
    bury_dead(loop);
    close(loop->epoll_fd);
    free(loop);
}

static int source_new(struct loop *loop, enum source_kind kind, int fd, uint32_t events,
                      void *context, struct loop_source **ret_source)
{
    struct loop_source *source = calloc(1, sizeof(*source));
    if (!source)
        return -ENOMEM;
    *source = (struct loop_source){.loop = loop, .kind = kind, .fd = fd, .context = context};
    struct epoll_event event = {.events = events, .data.ptr = source};
    if (fd >= 0 && epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        int r = -errno;
        free(source);
        return r;
    }
    struct loop_source **list = list_of(loop, kind);
    source->next = *list;
    if (source->next)
        source->next->previous = source;
    *list = source;
    *ret_source = source;
    return 0;
}

int loop_add_fd(struct loop *loop, int fd, uint32_t events, loop_fd_fn *call, void *context,
                struct loop_source **ret_source)
{
    struct loop_source *source = NULL;
    int r = source_new(loop, SOURCE_FD, fd, events, context, &source);
    if (r < 0)
        return r;
    source->call_fd = call;
    *ret_source = source;
    return 0;
}

int loop_fd_events(struct loop_source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    if (source->dead)
        return 0;
    return epoll_ctl(source->loop->epoll_fd, EPOLL_CTL_MOD, source->fd, &event) < 0 ? -errno : 0;
}

/* For descriptors that the loop makes itself; closes `fd` on failure. */
static int own_source_new(struct loop *loop, enum source_kind kind, int fd, loop_fn *call,
                          void *context, struct loop_source **ret_source)
{
    if (fd < 0)
        return -errno;
    struct loop_source *source = NULL;
    int r = source_new(loop, kind, fd, EPOLLIN, context, &source);
    if (r < 0) {
        close(fd);
        return r;
    }
    source->call = call;
    *ret_source = source;
    return 0;
}

int loop_add_timer(struct loop *loop, loop_fn *call, void *context, struct loop_source **ret_source)
{
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    return own_source_new(loop, SOURCE_TIMER, fd, call, context, ret_source);
}

int loop_timer_set(struct loop_source *source, uint64_t first_ns, uint64_t interval_ns)
{
    struct itimerspec spec = {
        .it_value = {(time_t)(first_ns / NS_PER_S), (long)(first_ns % NS_PER_S)},
        .it_interval = {(time_t)(interval_ns / NS_PER_S), (long)(interval_ns % NS_PER_S)},
    };
    return timerfd_settime(source->fd, 0, &spec, NULL) < 0 ? -errno : 0;
}

int loop_add_signal(struct loop *loop, int signal, loop_fn *call, void *context,
                    struct loop_source **ret_source)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -errno;
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return own_source_new(loop, SOURCE_SIGNAL, fd, call, context, ret_source);
}

int loop_add_wake(struct loop *loop, loop_fn *call, void *context, struct loop_source **ret_source)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return own_source_new(loop, SOURCE_WAKE, fd, call, context, ret_source);
}

void loop_wake(struct loop_source *source)
{
    uint64_t one = 1;
    /* Fails only when 2^64 - 2 wake-ups wait already. */
    (void)!write(source->fd, &one, sizeof(one));
}

int loop_add_deferred(struct loop *loop, loop_fn *call, void *context,
                      struct loop_source **ret_source)
{
    struct loop_source *source = NULL;
    int r = source_new(loop, SOURCE_DEFERRED, -1, 0, context, &source);
    if (r < 0)
        return r;
    source->call = call;
    *ret_source = source;
    return 0;
}

void loop_defer(struct loop_source *source)
{
    if (source->dead || source->armed)
        return;
    source->armed = true;
    source->loop->n_armed++;
}

/* Take what made a descriptor readable, so that it is not readable any more. */
static bool source_drain(struct loop_source *source)
{
    union {
        uint64_t count;
        struct signalfd_siginfo info;
    } taken;
    size_t size = source->kind == SOURCE_SIGNAL ? sizeof(taken.info) : sizeof(taken.count);
    bool any = false;
    while (read(source->fd, &taken, size) > 0) {
        any = true;
        if (source->kind != SOURCE_SIGNAL)
            break;
    }
    return any;
}

static void source_dispatch(struct loop_source *source, uint32_t events)
{
    if (source->dead)
        return;
    if (source->kind == SOURCE_FD)
        source->call_fd(source->context, events);
    else if (source_drain(source))
        source->call(source->context);
}

static void run_deferred(struct loop *loop)
{
    if (loop->n_armed == 0)
        return;
    for (struct loop_source *source = loop->deferred; source; source = source->next) {
        if (!source->armed)
            continue;
        source->armed = false;
        loop->n_armed--;
        source->call(source->context);
    }
}

/* ---- how long turns take ---- */

static size_t lag_class(uint64_t ns)
{
    if (ns < LAG_STEPS)
        return (size_t)ns;
    unsigned log = 63 - (unsigned)__builtin_clzll(ns); /* at least 3 */
    size_t class = (size_t)(log - 2) * LAG_STEPS + (ns >> (log - 3)) % LAG_STEPS;
    return class < LAG_CLASSES ? class : LAG_CLASSES - 1;
}

/* The longest that falls into it. */
static uint64_t lag_class_ns(size_t class)
{
    if (class < LAG_STEPS)
        return class;
    unsigned log = (unsigned)(class / LAG_STEPS) + 2;
    return ((UINT64_C(8) + class % LAG_STEPS + 1) << (log - 3)) - 1;
}

static void lag_note(struct loop *loop, uint64_t begin_ns, uint64_t end_ns)
{
    uint64_t number = end_ns / (LAG_PART_S * NS_PER_S);
    struct lag_part *part = &loop->lag[number % LAG_PARTS];
    if (part->number != number)
        *part = (struct lag_part){.number = number};
    part->turns[lag_class(end_ns - begin_ns)]++;
}

struct loop_lag loop_lag(const struct loop *loop)
{
    uint64_t now = clock_monotonic_ns() / (LAG_PART_S * NS_PER_S);
    uint32_t sums[LAG_CLASSES] = {0};
    struct loop_lag lag = {0};
    for (size_t i = 0; i < LAG_PARTS; i++)
        for (size_t k = 0; k < LAG_CLASSES && now - loop->lag[i].number < LAG_PARTS; k++) {
            sums[k] += loop->lag[i].turns[k];
            lag.turns += loop->lag[i].turns[k];
        }
    uint64_t seen = 0;
    for (size_t k = 0; k < LAG_CLASSES; k++) {
        if (!sums[k])
            continue;
        if (seen * 2 < lag.turns)
            lag.p50_ns = lag_class_ns(k);
        if (seen * 100 < lag.turns * 99)
            lag.p99_ns = lag_class_ns(k);
        lag.max_ns = lag_class_ns(k);
        seen += sums[k];
    }
    return lag;
}

int loop_run(struct loop *loop)
{
    struct epoll_event events[LOOP_EVENTS_MAX];
    loop->stopping = false;
    while (!loop->stopping) {
        int n = epoll_wait(loop->epoll_fd, events, LOOP_EVENTS_MAX, loop->n_armed ? 0 : -1);
        if (n < 0 && errno != EINTR)
            return -errno;
        uint64_t begin_ns = clock_monotonic_ns();
        loop->in_turn = true;
        for (int i = 0; i < n && !loop->stopping; i++)
            source_dispatch(events[i].data.ptr, events[i].events);
        if (!loop->stopping)
            run_deferred(loop);
        loop->in_turn = false;
        bury_dead(loop);
        lag_note(loop, begin_ns, clock_monotonic_ns());
    }
    return 0;
}

void loop_stop(struct loop *loop)
{
    loop->stopping = true;
}

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

struct loop {
    int epoll_fd;
    bool stopping;
    bool in_turn;
    size_t n_armed; /* deferred sources that want to run */
    struct loop_source *sources;
    struct loop_source *deferred;  /* those of that kind are few: a list of their own */
    struct loop_source *graveyard; /* freed in this turn */
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

int loop_run(struct loop *loop)
{
    struct epoll_event events[LOOP_EVENTS_MAX];
    loop->stopping = false;
    while (!loop->stopping) {
        int n = epoll_wait(loop->epoll_fd, events, LOOP_EVENTS_MAX, loop->n_armed ? 0 : -1);
        if (n < 0 && errno != EINTR)
            return -errno;
        loop->in_turn = true;
        for (int i = 0; i < n && !loop->stopping; i++)
            source_dispatch(events[i].data.ptr, events[i].events);
        if (!loop->stopping)
            run_deferred(loop);
        loop->in_turn = false;
        bury_dead(loop);
    }
    return 0;
}

void loop_stop(struct loop *loop)
{
    loop->stopping = true;
}

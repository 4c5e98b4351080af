/* See sources.h. */
#include "observe/sources.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "observe/control.h"

int sources_begin(int more)
{
    struct rlimit files;
    sigset_t set;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, more);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

int sources_add(struct sources *s, int fd, uint32_t events, uint32_t what)
{
    struct epoll_event event = {.events = events, .data.u32 = what};
    return epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

void sources_tick_set(struct sources *s, unsigned ms)
{
    struct timespec every = {.tv_nsec = (long)ms * 1000000};
    timerfd_settime(s->tick, 0, &(struct itimerspec){every, every}, NULL);
}

uint64_t sources_ticked(struct sources *s)
{
    uint64_t passed;
    return read(s->tick, &passed, sizeof(passed)) == sizeof(passed) ? passed : 0;
}

int sources_open(struct sources *s, int signals, int ring, const struct control *control,
                 unsigned tick_ms)
{
    *s = (struct sources){
        .epoll = epoll_create1(EPOLL_CLOEXEC),
        .tick = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
        .signals = signals,
    };
    int r = s->epoll < 0 || s->tick < 0 ? -errno : 0;
    if (r == 0)
        sources_tick_set(s, tick_ms);
    if (r == 0)
        r = sources_add(s, ring, EPOLLIN, SOURCE_RING);
    if (r == 0)
        r = sources_add(s, s->tick, EPOLLIN, SOURCE_TICK);
    if (r == 0)
        r = sources_add(s, signals, EPOLLIN, SOURCE_SIGNAL);
    if (r == 0 && control)
        r = sources_add(s, control_fd(control), EPOLLIN, SOURCE_CONTROL);
    if (r < 0)
        sources_close(s);
    return r;
}

void sources_close(struct sources *s)
{
    closep(&s->epoll);
    closep(&s->tick);
    s->epoll = s->tick = -1;
}

int sources_wait(struct sources *s, int ms, uint32_t ret_what[static SOURCES_MAX])
{
    struct epoll_event events[SOURCES_MAX];
    int n = epoll_wait(s->epoll, events, SOURCES_MAX, ms);
    for (int i = 0; i < n; i++)
        ret_what[i] = events[i].data.u32;
    return n >= 0 ? n : errno == EINTR ? 0 : -errno;
}

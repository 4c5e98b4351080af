/* Preloaded, it stops the clocks that answers tell the time by: since 1970 it is FROZEN_S seconds, and since the start of the
 * machine FROZEN_BOOT_S. What programs measure durations with goes on. With SHIFTED_S they go on, too, but are wrong by so much. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t frozen(const char *name)
{
    const char *text = getenv(name);
    return text ? (time_t)strtoll(text, NULL, 10) : 0;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *ret)
{
    if (getenv("SHIFTED_S")) {
        int r = (int)syscall(SYS_clock_gettime, id, ret);
        if (r == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
            ret->tv_sec += frozen("SHIFTED_S");
        return r;
    }
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)
        *ret = (struct timespec){.tv_sec = frozen("FROZEN_S")};
    else if (id == CLOCK_BOOTTIME)
        *ret = (struct timespec){.tv_sec = frozen("FROZEN_BOOT_S")};
    else
        return (int)syscall(SYS_clock_gettime, id, ret);
    return 0;
}

__attribute__((visibility("default"))) time_t time(time_t *ret)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    if (ret)
        *ret = now.tv_sec;
    return now.tv_sec;
}

/* The kernel's clock is not shifted, so a wait until a moment of the shifted one is told to it in its own time. Moments of the
 * clock since the start of the machine are small numbers. */
__attribute__((visibility("default"))) int pthread_cond_timedwait(pthread_cond_t *cond,
                                                                  pthread_mutex_t *mutex,
                                                                  const struct timespec *until)
{
    typedef int wait_fn(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    static wait_fn *next;
    enum { MONOTONIC_MOST_S = 1000000000 };
    struct timespec moment = *until;
    if (!next)
        next = (wait_fn *)dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!next) /* machines whose first version was a later one */
        next = (wait_fn *)dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    if (getenv("SHIFTED_S") && moment.tv_sec > MONOTONIC_MOST_S)
        moment.tv_sec -= frozen("SHIFTED_S");
    return next(cond, mutex, &moment);
}

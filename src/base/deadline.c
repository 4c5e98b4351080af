/* See deadline.h. */
#include "base/deadline.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

static timer_t timer;

int deadline_make(void)
{
    struct sigevent kill = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    return timer_create(CLOCK_MONOTONIC, &kill, &timer) < 0 ? -errno : 0;
}

void deadline_set(uint64_t ms)
{
    struct itimerspec limit = {
        .it_value = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000 * 1000000)}};
    timer_settime(timer, 0, &limit, NULL);
}

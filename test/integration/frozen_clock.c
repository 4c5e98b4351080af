/* Preloaded, it stops the clocks that answers tell the time by: since 1970 it is FROZEN_S seconds, and since the start of the
 * machine FROZEN_BOOT_S. What programs measure durations with goes on. With SHIFTED_S they go on, too, but are wrong by so much. */
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

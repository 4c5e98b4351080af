/* How a process ended, though it is not our child.
 *
 * Since Linux 6.15 a pidfd keeps the exit status once the parent has taken it. Before that moment, and
 * on older kernels, the status stands in /proc/PID/stat for as long as the zombie does. One of the two
 * is nearly always there: ask the pidfd, then the zombie, then the pidfd again for who was buried in
 * between. */
#include "daemon/cause.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ledger/proc.h"
#include "query/exit_file.h"

static_assert((int)CAUSE_TEXT_MAX == (int)EXIT_CAUSE_TEXT_MAX, "one text of a cause");

/* <linux/pidfd.h> of Debian 12 does not have these yet. */
struct pidfd_info_v0 {
    uint64_t mask;
    uint64_t cgroupid;
    uint32_t pid, tgid, ppid;
    uint32_t ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid;
    int32_t exit_code;
};
#define PIDFD_INFO_EXIT_BIT (UINT64_C(1) << 3)
#define PIDFD_GET_INFO_V0   _IOWR(0xFF, 11, struct pidfd_info_v0)

static bool pidfd_status(int pidfd, int *ret_status)
{
    struct pidfd_info_v0 info = {.mask = PIDFD_INFO_EXIT_BIT};
    if (pidfd < 0 || ioctl(pidfd, PIDFD_GET_INFO_V0, &info) < 0 ||
        !(info.mask & PIDFD_INFO_EXIT_BIT))
        return false;
    *ret_status = info.exit_code;
    return true;
}

static bool zombie_status(pid_t pid, uint64_t start_ticks, int *ret_status)
{
    struct proc_stat stat;
    uint64_t ns;
    /* Who may not look gets 0 for the status, the same as a good end; ns/pid has the same rule for
     * who may look, and does say no. */
    if (pid <= 0 || proc_stat_read(pid, &stat) < 0 || !stat.dead ||
        stat.start_ticks != start_ticks || proc_pid_ns(pid, &ns) < 0)
        return false;
    *ret_status = stat.exit_status;
    return true;
}

struct cause cause_of_status(int status)
{
    if (WIFEXITED(status))
        return (struct cause){CAUSE_EXITED, WEXITSTATUS(status)};
    if (WIFSIGNALED(status))
        return (struct cause){CAUSE_KILLED, WTERMSIG(status), .core = WCOREDUMP(status)};
    return (struct cause){CAUSE_UNKNOWN, 0};
}

struct cause cause_read(int pidfd, pid_t pid, uint64_t start_ticks)
{
    int status;
    if (pidfd_status(pidfd, &status) || zombie_status(pid, start_ticks, &status) ||
        pidfd_status(pidfd, &status))
        return cause_of_status(status);
    return (struct cause){CAUSE_UNKNOWN, 0};
}

const char *cause_text(struct cause cause, char text[static CAUSE_TEXT_MAX])
{
    switch (cause.kind) {
    case CAUSE_EXITED:
        return exit_status_text(W_EXITCODE(cause.value, 0), false, text);
    case CAUSE_KILLED:
        return exit_status_text(W_EXITCODE(0, cause.value) | (cause.core ? WCOREFLAG : 0),
                                cause.oom, text);
    case CAUSE_EXEC:
        snprintf(text, CAUSE_TEXT_MAX, "replaced by exec");
        break;
    case CAUSE_DISCONNECTED:
        snprintf(text, CAUSE_TEXT_MAX, "disconnected");
        break;
    case CAUSE_FOUND:
        snprintf(text, CAUSE_TEXT_MAX, "found dead");
        break;
    default:
        snprintf(text, CAUSE_TEXT_MAX, "cause unknown");
    }
    return text;
}

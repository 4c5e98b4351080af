/* A child of the broker, which acts as a user. See broker.h.
 *
 * From broker_become() on it is a process like any other of that user: the kernel decides what it may open and read. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/capabilities.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "daemon/broker.h"
#include "daemon/broker_internal.h"
#include "daemon/steady_file.h"
#include "ledger/proc.h"

enum {
    GROUPS_MAX = 1024, /* further groups of a user give it nothing */
    ACCOUNT_BYTES = 16384,
    NO_GROUP = 65534,
    GRACE_MS = 1000, /* memoird gives up first, so that it can say so */
};

/* ---- who the user is ---- */

struct groups {
    gid_t gid; /* primary */
    gid_t list[GROUPS_MAX];
    int n;
};

/* The real gid of a process of a user that no database has; a set-gid program's effective one is not the user's.
 * By now the PID may be another user's. */
static gid_t process_gid(pid_t pid, uint32_t uid)
{
    struct proc_ids ids;
    return pid > 0 && proc_ids_read(pid, &ids) == 0 && proc_ids_are(&ids, uid) ? ids.real_gid
                                                                               : NO_GROUP;
}

/* As at login: by the databases of users and groups. A database that does not answer is an error, not a user without
 * an account. */
static int groups_find(uint32_t uid, pid_t pid, struct groups *ret_groups)
{
    static char bytes[ACCOUNT_BYTES];
    struct passwd account, *found = NULL;
    int error = getpwuid_r(uid, &account, bytes, sizeof(bytes), &found);
    if (!found && error != 0 && error != ENOENT)
        return -error;
    ret_groups->n = 0;
    if (!found) {
        ret_groups->gid = process_gid(pid, uid);
        return 0;
    }
    ret_groups->gid = account.pw_gid;
    ret_groups->n = GROUPS_MAX;
    if (getgrouplist(account.pw_name, account.pw_gid, ret_groups->list, &ret_groups->n) < 0)
        ret_groups->n = GROUPS_MAX;
    return 0;
}

/* ---- becoming the user ---- */

int broker_become(uint32_t uid, pid_t pid)
{
    struct groups groups;
    uid_t ruid, euid, suid;
    gid_t rgid, egid, sgid, *again = groups.list;
    if (uid == 0 || uid == UINT32_MAX)
        return -EPERM;
    int r = groups_find(uid, pid, &groups);
    if (r < 0)
        return r;
    if (setgroups((size_t)groups.n, groups.list) < 0 ||
        setresgid(groups.gid, groups.gid, groups.gid) < 0 || setresuid(uid, uid, uid) < 0)
        return -errno;
    r = capabilities_drop();
    if (r < 0)
        return r;
    if (getresuid(&ruid, &euid, &suid) < 0 || getresgid(&rgid, &egid, &sgid) < 0)
        return -errno;
    bool is_user = ruid == uid && euid == uid && suid == uid && rgid == groups.gid &&
                   egid == groups.gid && sgid == groups.gid &&
                   getgroups(GROUPS_MAX, again) == groups.n;
    if (!is_user)
        return -EPERM;
    /* Both were reset with the user. It must not be read by other processes of the user. */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    return 0;
}

/* ---- what it does then ---- */

/* May the user trace the process? That is what the kernel asks before it shows its mappings. */
static bool may_trace(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static int file_open(const struct broker_question *q, int mapped)
{
    struct symbol_wanted wanted = {
        .pid = q->pid,
        .mapped = q->has_mapped && q->pid > 0 && may_trace(q->pid) ? mapped : -1,
        .in_root = q->has_root ? q->in_root : NULL,
        .path = q->has_path ? q->path : NULL,
        .before_s = q->before_s,
        .may_open = steady_file, /* the receiver of the descriptor must not hang */
    };
    return symbol_wanted_open(&wanted);
}

static uint64_t cpu_ns(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void serve(int socket)
{
    static struct broker_question q;
    int mapped = -1;
    /* A time limit always runs: no other process may be allowed to end this one. */
    while (deadline_set(BROKER_IDLE_MS), broker_receive(socket, &q, sizeof(q), &mapped) == 0) {
        struct broker_answer answer = {0};
        int fd = -1;
        uint64_t begin_ns = cpu_ns();
        deadline_set((uint64_t)q.timeout_ms + GRACE_MS);
        q.in_root[BROKER_PATH_MAX - 1] = q.path[BROKER_PATH_MAX - 1] = '\0';
        if (q.task == BROKER_TASK_OPEN) {
            fd = file_open(&q, mapped);
            answer.result = fd < 0 ? fd : 0;
        } else if (q.task == BROKER_TASK_AGES) {
            answer.result = heap_ages_look(&q.ages, &answer.found);
        } else if (q.task == BROKER_TASK_SCAN) {
            answer.result = heap_scan_look(&q.scan, &answer.scanned);
        } else if (q.task == BROKER_TASK_EXPLAIN) {
            answer.result = explain_take(q.pid, &answer.explain);
        } else {
            answer.result = -EINVAL;
        }
        answer.cpu_ns = cpu_ns() - begin_ns;
        int r = broker_send(socket, &answer, sizeof(answer), fd);
        if (fd >= 0)
            close(fd);
        if (mapped >= 0)
            close(mapped);
        if (r < 0)
            return;
    }
}

_Noreturn void broker_child_run(int socket, uint32_t uid, pid_t pid)
{
    prctl(PR_SET_NAME, "memoir-as-user");
    if (deadline_make() < 0)
        _exit(1);
    deadline_set(BROKER_OPEN_MS + GRACE_MS); /* the databases may hang, too */
    struct broker_hello hello = {.pid = getpid()};
    if (broker_send(socket, &hello, sizeof(hello), -1) < 0 || broker_become(uid, pid) < 0)
        _exit(1);
    serve(socket);
    _exit(0);
}

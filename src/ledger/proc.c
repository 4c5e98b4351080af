/* Readers of /proc. The files are small and made by the kernel, so a fixed buffer and one read do; a
 * process may vanish between open and read, which gives ESRCH. */
#include "ledger/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/procfs.h"

enum {
    PROC_TEXT_MAX = 8192,     /* status is the largest: 1.5 kB, and 6 bytes for each group */
    USER_NAMESPACES_MAX = 33, /* as deep as the kernel lets them be */
    PROC_PATH_MAX = 512,      /* of a file of a process */
};

/* ---- any file ---- */

int proc_file_open(const char *proc, pid_t pid, const char *file)
{
    char path[PROC_PATH_MAX];
    int len = snprintf(path, sizeof(path), "%s/%d/%s", proc, (int)pid, file);
    if (len < 0 || (size_t)len >= sizeof(path))
        return -ENAMETOOLONG;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

ssize_t proc_file_read(const char *proc, pid_t pid, const char *file, char *ret_text, size_t size)
{
    MEMOIR_CLEANUP(closep)
    int fd = proc_file_open(proc, pid, file);
    if (fd < 0)
        return fd;
    size_t len = 0;
    while (len < size - 1) {
        ssize_t n = read(fd, ret_text + len, size - 1 - len);
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        len += (size_t)n;
    }
    ret_text[len] = '\0';
    return (ssize_t)len;
}

/* Read /proc/PID/FILE as a string. */
static int text_read(pid_t pid, const char *file, char text[static PROC_TEXT_MAX])
{
    ssize_t n = proc_file_read("/proc", pid, file, text, PROC_TEXT_MAX);
    return n == 0 || n == -ENOENT ? -ESRCH : n < 0 ? (int)n : 0;
}

/* ---- time namespaces ----
 * What the kernel shows of clocks and start times is shifted by the offsets of the namespace of who
 * looks. Books have them as the initial namespace does, so ours are taken away again. */

struct offsets {
    int64_t monotonic_ns, boottime_ns;
};

static struct offsets offsets_read(void)
{
    struct offsets found = {0};
    char text[PROC_TEXT_MAX];
    struct stat own, children;
    /* The file tells of the namespace of future children, which need not be our own. */
    if (stat("/proc/self/ns/time", &own) < 0 ||
        stat("/proc/self/ns/time_for_children", &children) < 0 || own.st_ino != children.st_ino ||
        text_read(getpid(), "timens_offsets", text) < 0)
        return found;
    found.monotonic_ns = procfs_time_offset(text, "monotonic");
    found.boottime_ns = procfs_time_offset(text, "boottime");
    return found;
}

/* They cannot change once a process lives in its namespace. */
static struct offsets offsets;

static void offsets_once(void)
{
    offsets = offsets_read();
}

static const struct offsets *offsets_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, offsets_once);
    return &offsets;
}

static uint64_t ticks_of(int64_t ns)
{
    return (uint64_t)(ns / ((int64_t)NS_PER_S / sysconf(_SC_CLK_TCK)));
}

uint64_t proc_initial_ticks(uint64_t ticks)
{
    return ticks - ticks_of(offsets_get()->boottime_ns);
}

/* ---- files ---- */

int proc_stat_read(pid_t pid, struct proc_stat *ret_stat)
{
    char text[PROC_TEXT_MAX];
    struct procfs_stat found;
    int r = text_read(pid, "stat", text);
    if (r < 0)
        return r;
    if (!procfs_stat_parse(text, &found))
        return -EBADMSG;
    struct proc_stat stat = {
        .state = found.state,
        .exiting = found.flags & PROCFS_EXITING,
        .threads = found.threads,
        .start_ticks = proc_initial_ticks(found.start_ticks),
        .vms_bytes = found.vms_bytes,
        .rss_bytes = found.rss_pages * (uint64_t)sysconf(_SC_PAGESIZE),
        .exit_status = procfs_stat_exit_status(&found),
    };
    /* A first thread that ended before the others is a zombie in a living process. */
    stat.dead = stat.state == 'X' || (stat.state == 'Z' && stat.threads <= 1);
    *ret_stat = stat;
    return 0;
}

int proc_ids_read(pid_t pid, struct proc_ids *ret_ids)
{
    char text[PROC_TEXT_MAX];
    int r = text_read(pid, "status", text);
    if (r < 0)
        return r;
    struct proc_ids ids = {.real_gid = UINT32_MAX};
    struct procfs_ids uids, gids;
    if (!procfs_status_ids(text, "\nUid:", &uids))
        return -EBADMSG;
    ids.real_uid = uids.real;
    ids.effective_uid = uids.effective;
    ids.saved_uid = uids.saved;
    ids.fs_uid = uids.fs;
    if (procfs_status_ids(text, "\nGid:", &gids)) {
        ids.real_gid = gids.real;
        ids.one_gid = procfs_ids_are(&gids, gids.real);
    }
    const char *parent = procfs_status_value(text, "\nPPid:");
    ids.parent_pid = parent ? (pid_t)strtol(parent, NULL, 10) : 0;
    /* A long list of groups comes before it and may have used up the buffer. */
    const char *permitted = procfs_status_value(text, "\nCapPrm:");
    ids.permitted = permitted ? strtoull(permitted, NULL, 16) : UINT64_MAX;
    ids.levels = procfs_status_pids(text, ids.pids, PROC_LEVELS_MAX, &ids.inner_pid);
    *ret_ids = ids;
    return 0;
}

int proc_comm_read(pid_t pid, char ret_comm[static PROC_COMM_MAX])
{
    char text[PROC_TEXT_MAX];
    int r = text_read(pid, "comm", text);
    if (r < 0)
        return r;
    snprintf(ret_comm, PROC_COMM_MAX, "%.*s", (int)strcspn(text, "\n"), text);
    return 0;
}

void proc_command_read(pid_t pid, char *ret_command, size_t size)
{
    ssize_t n = proc_file_read("/proc", pid, "cmdline", ret_command, size);
    procfs_command_line(ret_command, n > 0 ? (size_t)n : 0);
}

int proc_memory_read(pid_t pid, struct proc_memory *ret_memory)
{
    char text[PROC_TEXT_MAX];
    int r = text_read(pid, "statm", text);
    if (r < 0)
        return r;
    struct procfs_statm statm;
    if (!procfs_statm_parse(text, &statm))
        return -EBADMSG;
    if (statm.vms == 0)
        return -ESRCH; /* a kernel thread, or its memory is gone already */
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    *ret_memory = (struct proc_memory){statm.vms * page, statm.rss * page, statm.shared * page};
    return 0;
}

int proc_pid_ns(pid_t pid, uint64_t *ret_inode)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
    struct stat st;
    if (stat(path, &st) < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    *ret_inode = st.st_ino;
    return 0;
}

uint32_t proc_namespace_owner(pid_t pid)
{
    char path[64];
    struct stat own, st;
    uint32_t owner = UINT32_MAX;
    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    if (stat("/proc/self/ns/user", &own) < 0)
        return owner;
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (int depth = 0; fd >= 0 && depth < USER_NAMESPACES_MAX; depth++) {
        uid_t uid;
        if (fstat(fd, &st) < 0 || (st.st_dev == own.st_dev && st.st_ino == own.st_ino) ||
            ioctl(fd, NS_GET_OWNER_UID, &uid) < 0)
            break;
        owner = uid;
        int parent = ioctl(fd, NS_GET_PARENT);
        close(fd);
        fd = parent;
    }
    return owner;
}

int proc_owner(pid_t pid, uint32_t *ret_uid)
{
    struct proc_ids ids;
    int r = proc_ids_read(pid, &ids);
    if (r < 0)
        return r;
    uint32_t owner = proc_namespace_owner(pid);
    *ret_uid = owner == UINT32_MAX || owner == 0 ? ids.real_uid : owner;
    return 0;
}

enum proc_claim proc_claim(pid_t pid, const struct proc_ids *ids, uint32_t uid)
{
    bool same = proc_ids_are(ids, uid);
    if (uid == 0)
        return same ? PROC_CLAIM_OWN : PROC_CLAIM_NONE;
    if (same && ids->permitted == 0)
        return PROC_CLAIM_OWN;
    /* Capabilities inside a namespace that the user made are the user's, too. */
    if (proc_namespace_owner(pid) == uid)
        return PROC_CLAIM_OWN;
    return same ? PROC_CLAIM_USER : PROC_CLAIM_NONE;
}

uint64_t proc_monotonic_ns(void)
{
    return clock_monotonic_ns() - (uint64_t)offsets_get()->monotonic_ns;
}

uint64_t proc_ticks_realtime_ns(uint64_t ticks)
{
    uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);
    /* Split, so that no start time overflows. */
    uint64_t ns = ticks / hz * NS_PER_S + ticks % hz * (NS_PER_S / hz);
    uint64_t boot_ns = clock_boot_ns() - (uint64_t)offsets_get()->boottime_ns;
    return clock_real_ns() - boot_ns + ns;
}

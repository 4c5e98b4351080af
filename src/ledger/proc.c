/* Readers of /proc. The files are small and made by the kernel, so a fixed buffer and one read do; a
 * process may vanish between open and read, which gives ESRCH. */
#include "ledger/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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

enum {
    PROC_TEXT_MAX = 4096,     /* status is the largest, about 1.5 kB */
    USER_NAMESPACES_MAX = 33, /* as deep as the kernel lets them be */
    TASK_EXITING = 0x4,       /* PF_EXITING in field 9 of stat */
};

/* Read /proc/PID/FILE as a string. */
static int text_read(pid_t pid, const char *file, char text[static PROC_TEXT_MAX])
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    ssize_t n = read(fd, text, PROC_TEXT_MAX - 1);
    if (n < 0)
        return -errno;
    text[n] = '\0';
    return n == 0 ? -ESRCH : 0;
}

/* ---- time namespaces ----
 * What the kernel shows of clocks and start times is shifted by the offsets of the namespace of who
 * looks. Books have them as the initial namespace does, so ours are taken away again. */

struct offsets {
    int64_t monotonic_ns, boottime_ns;
};

static int64_t offset_parse(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    int64_t seconds = 0, ns = 0;
    if (!at || sscanf(at + strlen(name), "%" SCNd64 " %" SCNd64, &seconds, &ns) != 2)
        return 0;
    return seconds * (int64_t)NS_PER_S + ns;
}

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
    found.monotonic_ns = offset_parse(text, "monotonic");
    found.boottime_ns = offset_parse(text, "boottime");
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

/* Field `n` of stat, where `after_name` points behind the ')' that ends field 2. */
static const char *stat_field(const char *after_name, int n)
{
    const char *at = after_name;
    for (int field = 2; field < n; field++) {
        at = strchr(at, ' ');
        if (!at)
            return NULL;
        at++;
    }
    return at;
}

static uint64_t stat_number(const char *after_name, int n)
{
    const char *at = stat_field(after_name, n);
    return at ? strtoull(at, NULL, 10) : 0;
}

int proc_stat_read(pid_t pid, struct proc_stat *ret_stat)
{
    char text[PROC_TEXT_MAX];
    int r = text_read(pid, "stat", text);
    if (r < 0)
        return r;
    /* The name may hold spaces and parentheses; the last one ends it. */
    const char *at = strrchr(text, ')');
    if (!at || !stat_field(at, 24))
        return -EBADMSG;
    struct proc_stat stat = {
        .state = *stat_field(at, 3),
        .exiting = stat_number(at, 9) & TASK_EXITING,
        .threads = (uint32_t)stat_number(at, 20),
        .start_ticks = proc_initial_ticks(stat_number(at, 22)),
        .vms_bytes = stat_number(at, 23),
        .rss_bytes = stat_number(at, 24) * (uint64_t)sysconf(_SC_PAGESIZE),
        .exit_status = (int32_t)stat_number(at, 52),
    };
    /* A first thread that ended before the others is a zombie in a living process. */
    stat.dead = stat.state == 'X' || (stat.state == 'Z' && stat.threads <= 1);
    *ret_stat = stat;
    return 0;
}

/* The text behind "\nKEY:\t" in status, or NULL. */
static const char *status_value(const char *text, const char *key)
{
    size_t len = strlen(key);
    for (const char *at = text; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, key, len) == 0 && at[len] == ':')
            return at + len + 1;
    }
    return NULL;
}

int proc_ids_read(pid_t pid, struct proc_ids *ret_ids)
{
    char text[PROC_TEXT_MAX];
    int r = text_read(pid, "status", text);
    if (r < 0)
        return r;
    struct proc_ids ids = {.real_gid = UINT32_MAX};
    const char *uid = status_value(text, "Uid"), *gid = status_value(text, "Gid");
    const char *parent = status_value(text, "PPid");
    if (!uid || sscanf(uid, "%" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32, &ids.real_uid,
                       &ids.effective_uid, &ids.saved_uid, &ids.fs_uid) != 4)
        return -EBADMSG;
    if (gid)
        (void)sscanf(gid, "%" SCNu32, &ids.real_gid);
    ids.parent_pid = parent ? (pid_t)strtol(parent, NULL, 10) : 0;
    /* A long list of groups comes before it and may have used up the buffer. */
    const char *permitted = status_value(text, "CapPrm");
    ids.permitted = permitted ? strtoull(permitted, NULL, 16) : UINT64_MAX;
    const char *at = status_value(text, "NSpid");
    while (at && *at && *at != '\n') {
        char *end;
        long value = strtol(at, &end, 10);
        if (end == at)
            break;
        ids.inner_pid = (pid_t)value;
        if (ids.levels < PROC_LEVELS_MAX)
            ids.pids[ids.levels] = (pid_t)value;
        ids.levels++;
        at = end;
    }
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

int proc_memory_read(pid_t pid, struct proc_memory *ret_memory)
{
    char text[PROC_TEXT_MAX];
    int r = text_read(pid, "statm", text);
    if (r < 0)
        return r;
    uint64_t size, resident, shared;
    if (sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64, &size, &resident, &shared) != 3)
        return -EBADMSG;
    if (size == 0)
        return -ESRCH; /* a kernel thread, or its memory is gone already */
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    *ret_memory = (struct proc_memory){size * page, resident * page, shared * page};
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

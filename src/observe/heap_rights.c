/* Who may attach to whom. See heap_internal.h. */
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "ledger/proc.h"
#include "observe/heap_internal.h"

/* A small file of /proc, as a string. False: it cannot be read. */
static bool file_read(const char *path, char *text, size_t size)
{
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static bool same_user_namespace(pid_t pid)
{
    char path[64];
    struct stat own, other;
    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    return stat("/proc/self/ns/user", &own) == 0 && stat(path, &other) == 0 &&
           own.st_ino == other.st_ino && own.st_dev == other.st_dev;
}

static bool yama_restricts(void)
{
    char text[16];
    return file_read("/proc/sys/kernel/yama/ptrace_scope", text, sizeof(text)) && atoi(text) != 0;
}

bool heap_may_trace(uint32_t uid, pid_t pid)
{
    char path[64];
    struct stat st;
    struct proc_ids ids;
    if (uid == 0)
        return true;
    const struct passwd *user = getpwuid(uid);
    uint32_t gid = user ? user->pw_gid : uid;
    if (proc_ids_read(pid, &ids) < 0 || !proc_ids_are(&ids, uid) || ids.real_gid != gid ||
        !ids.one_gid || ids.permitted != 0)
        return false;
    snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
    return stat(path, &st) == 0 && st.st_uid == uid && /* root's, if it may not be dumped */
           same_user_namespace(pid) && !yama_restricts();
}

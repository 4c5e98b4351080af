/* See plain_user.h. */
#include "observe/plain_user.h"

#include <stdio.h>
#include <sys/stat.h>

#include "ledger/proc.h"

bool plain_user_same_namespace(pid_t pid)
{
    char path[64];
    struct stat own, other;
    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    return stat("/proc/self/ns/user", &own) == 0 && stat(path, &other) == 0 &&
           own.st_ino == other.st_ino && own.st_dev == other.st_dev;
}

bool plain_user_is(pid_t pid, uint32_t uid)
{
    char path[64];
    struct stat st;
    struct proc_ids ids;
    if (proc_ids_read(pid, &ids) < 0 || !proc_ids_are(&ids, uid) || !ids.one_gid ||
        (ids.permitted != 0 && plain_user_same_namespace(pid)))
        return false;
    snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
    return stat(path, &st) == 0 && st.st_uid == uid; /* root's, if it may not be dumped */
}

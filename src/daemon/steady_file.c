/* See steady_file.h. */
#include "daemon/steady_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/nsfs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"

#ifndef FUSE_SUPER_MAGIC
#define FUSE_SUPER_MAGIC 0x65735546
#endif

/* Takes the descriptor of a mountinfo. */
static bool lists_mount(int mountinfo, uint64_t id)
{
    MEMOIR_CLEANUP(fclosep)
    FILE *list = mountinfo >= 0 ? fdopen(mountinfo, "r") : NULL;
    char *line = NULL;
    size_t room = 0;
    bool found = false;
    if (!list && mountinfo >= 0)
        close(mountinfo);
    while (list && !found && getline(&line, &room, list) > 0)
        found = strtoull(line, NULL, 10) == id;
    free(line);
    return found;
}

/* Does the mount namespace of a process belong to the user namespace that we live in? */
static bool mounts_are_ours(int process)
{
    struct stat own, st;
    MEMOIR_CLEANUP(closep)
    int mounts = openat(process, "ns/mnt", O_RDONLY | O_CLOEXEC);
    MEMOIR_CLEANUP(closep)
    int users = mounts >= 0 ? ioctl(mounts, NS_GET_USERNS) : -1;
    return users >= 0 && stat("/proc/self/ns/user", &own) == 0 && fstat(users, &st) == 0 &&
           own.st_dev == st.st_dev && own.st_ino == st.st_ino;
}

/* Through one descriptor, so that it is one process; its mounts first, since it can still leave a namespace of ours, but
 * not come back. */
static bool mounted_for(pid_t pid, uint64_t id)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    MEMOIR_CLEANUP(closep)
    int process = pid > 0 ? open(path, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    int mountinfo = process >= 0 ? openat(process, "mountinfo", O_RDONLY | O_CLOEXEC) : -1;
    bool ours = mountinfo >= 0 && mounts_are_ours(process);
    return lists_mount(mountinfo, id) && ours;
}

bool steady_file(int path_fd, pid_t pid)
{
    struct statfs fs;
    struct statx stx;
    if (fstatfs(path_fd, &fs) < 0 || fs.f_type == FUSE_SUPER_MAGIC)
        return false;
    if (fs.f_type != OVERLAYFS_SUPER_MAGIC)
        return true;
    if (statx(path_fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &stx) < 0 ||
        !(stx.stx_mask & STATX_MNT_ID))
        return false;
    return lists_mount(open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC), stx.stx_mnt_id) ||
           mounted_for(pid, stx.stx_mnt_id);
}

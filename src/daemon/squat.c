/* Names of users that others took. See squat.h. */
#include "daemon/squat.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

static bool uid_of(const char *name, uint32_t *ret_uid)
{
    char *end;
    if (*name < '0' || *name > '9' || (*name == '0' && name[1]))
        return false;
    unsigned long long value = strtoull(name, &end, 10);
    if (*end || value >= UINT32_MAX)
        return false;
    *ret_uid = (uint32_t)value;
    return true;
}

static bool squatted(int dirfd, const char *name, uint32_t uid, struct stat *ret_st)
{
    struct statx stx;
    /* A user's own file system may be mounted there, and never answer: what is cached has to do. */
    if (statx(dirfd, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC,
              STATX_UID | STATX_TYPE | STATX_INO, &stx) < 0)
        return false;
    *ret_st = (struct stat){.st_uid = stx.stx_uid, .st_mode = stx.stx_mode, .st_ino = stx.stx_ino};
    return stx.stx_uid != 0 && (stx.stx_uid != uid || !S_ISDIR(stx.stx_mode));
}

/* A directory that is not empty. Its owner may have made way in between and the name's user have taken
 * it: then it goes back. */
static int move_aside(int dirfd, const char *name, uint32_t uid, const struct stat *st)
{
    char aside[64];
    struct stat moved;
    snprintf(aside, sizeof(aside), ".taken-%" PRIu64 "-%" PRIu64, (uint64_t)st->st_ino,
             clock_monotonic_ns()); /* unique */
    if (renameat2(dirfd, name, dirfd, aside, RENAME_NOREPLACE) < 0)
        return -errno;
    if (fstatat(dirfd, aside, &moved, AT_SYMLINK_NOFOLLOW) == 0 && moved.st_uid == uid)
        return renameat2(dirfd, aside, dirfd, name, RENAME_NOREPLACE) < 0 ? -errno : -EAGAIN;
    return 0;
}

static int clear(int dirfd, const char *name, uint32_t uid, const struct stat *st)
{
    if (unlinkat(dirfd, name, S_ISDIR(st->st_mode) ? AT_REMOVEDIR : 0) == 0)
        return 0;
    return errno == ENOTEMPTY || errno == EEXIST ? move_aside(dirfd, name, uid, st) : -errno;
}

static void closedirp(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}

int squat_clear(const char *path)
{
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (st.st_uid != geteuid())
        return -EPERM;
    MEMOIR_CLEANUP(closedirp)
    DIR *dir = fdopendir(fd);
    if (!dir)
        return -errno;
    int at = dirfd(dir), n = 0;
    fd = -1; /* the directory's by now */
    for (struct dirent *e; (e = readdir(dir));) {
        uint32_t uid;
        if (!uid_of(e->d_name, &uid) || !squatted(at, e->d_name, uid, &st))
            continue;
        if (geteuid() != 0 && uid != geteuid())
            continue; /* only our own user's books are ours to watch */
        int r = clear(at, e->d_name, uid, &st);
        if (r >= 0)
            log_debug("'%s/%s' was of uid %u: taken away", path, e->d_name, (unsigned)st.st_uid);
        n += r >= 0;
    }
    return n;
}

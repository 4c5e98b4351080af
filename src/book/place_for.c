/* Where books on behalf of a user go. See place.h. Daemons only. */
#include "book/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"

/* DIR/NAME, made with the owner `uid` if it is not there. A descriptor, or -errno. */
static int make_and_open(const char *directory, const char *name, uint32_t uid)
{
    MEMOIR_CLEANUP(closep)
    int parent = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0)
        return -errno;
    if (fs_is_tmpfs(parent) != 1)
        return -EMEDIUMTYPE;
    if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
        return -errno;
    MEMOIR_CLEANUP(closep)
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    /* One that root made a moment ago, or that a daemon made before and could not give away. */
    if (st.st_uid == 0 && uid != 0 && geteuid() == 0) {
        if (fchown(fd, uid, (gid_t)-1) < 0)
            return -errno;
        st.st_uid = uid;
    }
    if (st.st_uid != uid || st.st_mode & (S_IWGRP | S_IWOTH))
        return -EPERM;
    return MEMOIR_TAKE_FD(fd);
}

int book_place_open_for(const char *root, uint32_t uid, char *path, size_t size)
{
    char name[32];
    snprintf(name, sizeof(name), "%u", uid);
    if (root) {
        snprintf(path, size, "%s/%s", root, name);
        return make_and_open(root, name, uid);
    }
    if (geteuid() != 0) {
        int fd = -ENOENT;
        for (unsigned which = 0; which < BOOK_PLACE_CANDIDATES && fd < 0; which++)
            fd = book_place_open(which, path, size);
        return fd;
    }
    snprintf(name, sizeof(name), "memoir-%u", uid);
    snprintf(path, size, "/dev/shm/%s", name);
    return make_and_open("/dev/shm", name, uid);
}

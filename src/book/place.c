/* place.c: see place.h. */
#include "book/place.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "book/text.h"

static int open_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Ours, closed to other writers, and in memory? */
static int check(int fd)
{
    struct stat info;
    struct statfs system;
    if (fstat(fd, &info) < 0 || fstatfs(fd, &system) < 0)
        return -errno;
    if (info.st_uid != geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)))
        return -EPERM;
    if ((uint32_t)system.f_type != TMPFS_MAGIC)
        return -EMEDIUMTYPE;
    return 0;
}

static int make_and_open(const char *path)
{
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return -errno;
    int fd = open_directory(path);
    if (fd < 0)
        return fd;
    int r = check(fd);
    if (r < 0) {
        close(fd);
        return r;
    }
    return fd;
}

int book_place_open(unsigned which, char *path, size_t path_size)
{
    struct text text = text_begin(path, path_size);
    const char *root = secure_getenv("MEMOIR_DIR");
    if (root) {
        if (which != 0)
            return -ENOENT;
        text_add(&text, root);
        text_add(&text, "/");
        text_add_number(&text, geteuid());
    } else if (which == 0) {
        if (access("/run/memoir", F_OK) < 0)
            return -ENOENT;
        text_add(&text, "/run/memoir/");
        text_add_number(&text, geteuid());
    } else if (which == 1) {
        const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
        if (!runtime || runtime[0] != '/')
            return -ENOENT;
        text_add(&text, runtime);
        text_add(&text, "/memoir");
    } else {
        text_add(&text, "/dev/shm/memoir-");
        text_add_number(&text, geteuid());
    }
    return text.cut ? -ENAMETOOLONG : make_and_open(path);
}

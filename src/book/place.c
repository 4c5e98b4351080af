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

#include "book/descriptor.h"
#include "book/text.h"

static bool in_memory(int fd)
{
    struct statfs system;
    return fstatfs(fd, &system) == 0 && (uint32_t)system.f_type == TMPFS_MAGIC;
}

/* Ours, closed to other writers, and in memory? */
static int check(int fd)
{
    struct stat info;
    if (fstat(fd, &info) < 0)
        return -errno;
    if (info.st_uid != geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)))
        return -EPERM;
    return in_memory(fd) ? 0 : -EMEDIUMTYPE;
}

/* Open `name` in the directory `parent`, making it if it is not there: on a tmpfs only, so that a
 * mistaken path leaves no trace on a disk. With `own` the parent must be ours: after su the runtime
 * directory may be another user's. */
static int make_and_open(const char *parent, const char *name, bool own)
{
    int directory = book_openat(AT_FDCWD, parent, O_RDONLY | O_DIRECTORY, 0);
    if (directory < 0)
        return directory;
    int r = 0;
    struct stat info;
    if (!in_memory(directory))
        r = -EMEDIUMTYPE;
    else if (own && (fstat(directory, &info) < 0 || info.st_uid != geteuid()))
        r = -EPERM;
    else if (mkdirat(directory, name, 0700) < 0 && errno != EEXIST)
        r = -errno;
    int fd = r < 0 ? r : book_openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    close(directory);
    if (fd < 0)
        return fd;
    r = check(fd);
    if (r < 0) {
        close(fd);
        return r;
    }
    return fd;
}

static char remembered[4096];

void book_place_remember(void)
{
    const char *root = secure_getenv("MEMOIR_DIR");
    struct text text = text_begin(remembered, sizeof(remembered));
    text_add(&text, root ? root : "");
    if (text.cut)
        remembered[0] = '\0';
}

/* Where candidate number `which` is: a directory and a name in it. False if there is none. */
static bool candidate(unsigned which, const char **ret_parent, struct text *name)
{
    const char *root = secure_getenv("MEMOIR_DIR");
    if (!root && remembered[0])
        root = remembered;
    if (root) {
        *ret_parent = root;
        text_add_number(name, geteuid());
        return which == 0 && root[0] == '/';
    }
    if (which == 0) {
        *ret_parent = "/run/memoir";
        text_add_number(name, geteuid());
        return true;
    }
    if (which == 1) {
        *ret_parent = secure_getenv("XDG_RUNTIME_DIR");
        text_add(name, "memoir");
        return *ret_parent && (*ret_parent)[0] == '/';
    }
    *ret_parent = "/dev/shm";
    text_add(name, "memoir-");
    text_add_number(name, geteuid());
    return true;
}

int book_place_open(unsigned which, char *path, size_t path_size)
{
    char buffer[32];
    struct text name = text_begin(buffer, sizeof(buffer)), text = text_begin(path, path_size);
    const char *parent;
    if (!candidate(which, &parent, &name))
        return -ENOENT;
    text_add(&text, parent);
    text_add(&text, "/");
    text_add(&text, buffer);
    bool own = which == 1; /* XDG_RUNTIME_DIR */
    return text.cut ? -ENAMETOOLONG : make_and_open(parent, buffer, own);
}

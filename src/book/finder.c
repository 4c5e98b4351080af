/*
 * finder.c: the directories where books are, and the names in them.
 *
 * Every directory is opened without following its last link, and judged by what was opened: who owns
 * it, who else may write to it, and whether it lies in memory. Directories in /dev/shm and below
 * /run/user are made by their users, so nothing about them is taken on trust.
 */
#include "book/finder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "book/reader.h"

#define DIR_FLAGS  (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)

#define RUN_MEMOIR "/run/memoir"
#define RUN_USER   "/run/user"
#define DEV_SHM    "/dev/shm"
#define SHM_PREFIX "memoir-"

static void closedirp(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}

void book_places_release(struct book_places *places)
{
    free(places->places);
    *places = (struct book_places){0};
}

/* ---- judging directories ---- */

/* One step of a path, without asking its file system anything. */
static int step_open(int at, const char *name, int flags, struct statx *ret)
{
    int fd = openat(at, name, O_PATH | O_DIRECTORY | O_CLOEXEC | flags);
    if (fd < 0)
        return -errno;
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_UID, ret) < 0) {
        int r = -errno;
        close(fd);
        return r;
    }
    return fd;
}

static bool in_memory(const struct statx *st)
{
    return fs_device_is_memory(AT_FDCWD, "/proc/self/mountinfo", st->stx_dev_major,
                               st->stx_dev_minor);
}

/* A user may mount a file system of its own (FUSE) over its directory or over the one that it is in, and never answer. So each is
 * opened for its name alone, and used only if nothing is mounted there but memory. */
static int directory_open(const char *path)
{
    char parent[PATH_MAX], again[64];
    struct statx above, here;
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path || (size_t)(slash - path) >= sizeof(parent))
        return -EINVAL;
    memcpy(parent, path, (size_t)(slash - path));
    parent[slash - path] = '\0';
    MEMOIR_CLEANUP(closep)
    int up = step_open(AT_FDCWD, parent, 0, &above);
    if (up < 0)
        return up;
    bool roots = above.stx_uid == 0;
    if (!roots && !in_memory(&above))
        return -EMEDIUMTYPE;
    MEMOIR_CLEANUP(closep)
    int fd = step_open(up, slash + 1, O_NOFOLLOW, &here);
    if (fd < 0)
        return fd;
    bool same =
        here.stx_dev_major == above.stx_dev_major && here.stx_dev_minor == above.stx_dev_minor;
    if (!same && !in_memory(&here))
        return -EMEDIUMTYPE;
    snprintf(again, sizeof(again), "/proc/self/fd/%d", fd);
    int opened = open(again, DIR_FLAGS & ~O_NOFOLLOW);
    return opened < 0 ? -errno : opened;
}

/* Open a directory that may hold books of `uid`, or say why it may not. */
static int place_open(const char *path, uint32_t uid)
{
    MEMOIR_CLEANUP(closep)
    int fd = directory_open(path);
    if (fd < 0)
        return fd;
    struct stat st;
    struct statfs fs;
    if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
        return -errno;
    if ((st.st_uid != uid && st.st_uid != 0) || (st.st_mode & (S_IWGRP | S_IWOTH)))
        return -EPERM;
    if (fs.f_type != TMPFS_MAGIC && fs.f_type != RAMFS_MAGIC)
        return -EMEDIUMTYPE;
    return MEMOIR_TAKE_FD(fd);
}

/* Decimal, as we print it: no sign, no leading zero, no uid_t -1. */
static bool uid_parse(const char *text, uint32_t *ret_uid)
{
    uint64_t v = 0;
    if (text[0] == '\0' || (text[0] == '0' && text[1] != '\0'))
        return false;
    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '9')
            return false;
        v = v * 10 + (uint64_t)(*p - '0');
        if (v >= UINT32_MAX)
            return false;
    }
    *ret_uid = (uint32_t)v;
    return true;
}

static bool places_have(const struct book_places *places, const char *path)
{
    for (size_t i = 0; i < places->n; i++)
        if (strcmp(places->places[i].path, path) == 0)
            return true;
    return false;
}

static int places_add(struct book_places *places, const char *path, uint32_t uid)
{
    struct book_place place = {.uid = uid};
    if (strlen(path) >= sizeof(place.path))
        return -ENAMETOOLONG;
    strcpy(place.path, path);
    if ((places->n & (places->n - 1)) == 0) { /* full at every power of two */
        size_t room = places->n ? places->n * 2 : 1;
        struct book_place *grown = reallocarray(places->places, room, sizeof(place));
        if (!grown)
            return -ENOMEM;
        places->places = grown;
    }
    places->places[places->n++] = place;
    return 0;
}

/* Add it if it is a place; that it is none is no error. */
static int places_try(struct book_places *places, const char *path, uint32_t uid)
{
    if (geteuid() != 0 && uid != geteuid())
        return 0;
    MEMOIR_CLEANUP(closep)
    int fd = place_open(path, uid);
    if (fd == -ENOMEM || fd == -EMFILE || fd == -ENFILE)
        return fd;
    return fd < 0 ? 0 : places_add(places, path, uid);
}

/* ---- finding them ---- */

/* For every DIR/PREFIXuid: DIR/PREFIXuid + SUFFIX may be a place. */
static int places_below(struct book_places *places, const char *dir, const char *prefix,
                        const char *suffix)
{
    MEMOIR_CLEANUP(closedirp)
    DIR *d = opendir(dir);
    if (!d)
        return errno == ENOMEM || errno == EMFILE || errno == ENFILE ? -errno : 0;
    for (struct dirent *e; (e = readdir(d));) {
        uint32_t uid;
        if (e->d_type != DT_DIR && e->d_type != DT_UNKNOWN)
            continue;
        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0 ||
            !uid_parse(e->d_name + strlen(prefix), &uid))
            continue;
        char path[sizeof(places->places->path)];
        int n = snprintf(path, sizeof(path), "%s/%s%s", dir, e->d_name, suffix);
        if (n < 0 || (size_t)n >= sizeof(path))
            continue;
        int r = places_try(places, path, uid);
        if (r < 0)
            return r;
    }
    return 0;
}

/* --dir, else $MEMOIR_DIR, else NULL for the usual places. */
static const char *root_override(const char *root)
{
    if (root)
        return root;
    const char *env = secure_getenv("MEMOIR_DIR");
    return env && env[0] == '/' ? env : NULL;
}

/* The session's own directory, which need not lie below /run/user. */
static int runtime_dir(const char *suffix, char *ret_path, size_t size)
{
    const char *env = secure_getenv("XDG_RUNTIME_DIR");
    if (!env || env[0] != '/')
        return -ENOENT;
    int n = snprintf(ret_path, size, "%s%s", env, suffix);
    return n > 0 && (size_t)n < size ? 0 : -ENAMETOOLONG;
}

int book_places_find(const char *root, struct book_places *ret_places)
{
    MEMOIR_CLEANUP(book_places_release)
    struct book_places places = {0};
    const char *override = root_override(root);
    int r;
    if (override) {
        r = places_below(&places, override, "", "");
    } else {
        char path[sizeof(places.places->path)];
        r = places_below(&places, RUN_MEMOIR, "", "");
        if (r == 0)
            r = places_below(&places, RUN_USER, "", "/memoir");
        if (r == 0 && runtime_dir("/memoir", path, sizeof(path)) == 0 &&
            !places_have(&places, path))
            r = places_try(&places, path, geteuid());
        if (r == 0)
            r = places_below(&places, DEV_SHM, SHM_PREFIX, "");
    }
    if (r < 0)
        return r;
    *ret_places = places;
    places = (struct book_places){0};
    return 0;
}

static int roots_try(struct book_places *roots, const char *path, uint32_t uid)
{
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || places_have(roots, path) ? 0 : places_add(roots, path, uid);
}

/* Each user's runtime directory, in which `memoir` may appear. */
static int roots_of_users(struct book_places *roots)
{
    MEMOIR_CLEANUP(closedirp)
    DIR *d = opendir(RUN_USER);
    if (!d)
        return 0;
    for (struct dirent *e; (e = readdir(d));) {
        uint32_t uid;
        char path[sizeof(roots->places->path)];
        if (!uid_parse(e->d_name, &uid) || (geteuid() != 0 && uid != geteuid()))
            continue;
        int n = snprintf(path, sizeof(path), RUN_USER "/%s", e->d_name);
        int r = n > 0 && (size_t)n < sizeof(path) ? roots_try(roots, path, uid) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

int book_roots_find(const char *root, struct book_places *ret_roots)
{
    MEMOIR_CLEANUP(book_places_release)
    struct book_places roots = {0};
    const char *override = root_override(root);
    char path[sizeof(roots.places->path)];
    int r;
    if (override) {
        r = roots_try(&roots, override, geteuid());
    } else {
        r = roots_try(&roots, "/run", 0); /* where /run/memoir itself may appear */
        if (r == 0)
            r = roots_try(&roots, RUN_MEMOIR, 0);
        if (r == 0)
            r = roots_try(&roots, RUN_USER, 0);
        if (r == 0)
            r = roots_of_users(&roots);
        if (r == 0 && runtime_dir("", path, sizeof(path)) == 0)
            r = roots_try(&roots, path, geteuid());
        if (r == 0)
            r = roots_try(&roots, DEV_SHM, 0);
    }
    if (r < 0)
        return r;
    *ret_roots = roots;
    roots = (struct book_places){0};
    return 0;
}

/* ---- names in a place ---- */

static const char *digits(const char *p)
{
    if (*p < '0' || *p > '9')
        return NULL;
    while (*p >= '0' && *p <= '9')
        p++;
    return p;
}

static const char *word(const char *p)
{
    const char *start = p;
    while ((*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z'))
        p++;
    return p == start ? NULL : p;
}

bool book_name_check(const char *name)
{
    const char *p = digits(name);
    if (!p || *p != '-')
        return false;
    p = digits(p + 1);
    if (!p || *p != '-')
        return false;
    p = word(p + 1);
    if (!p || *p != '-')
        return false;
    p = word(p + 1);
    return p && strcmp(p, ".book") == 0;
}

static bool ends_in_book(const char *name)
{
    size_t len = strlen(name);
    return len > 5 && strcmp(name + len - 5, ".book") == 0;
}

static bool owner_fits(const struct book_place *place, const struct stat *st)
{
    return S_ISREG(st->st_mode) && (st->st_uid == place->uid || st->st_uid == 0);
}

int book_place_scan(const struct book_place *place, size_t max,
                    int (*each)(int dirfd, const char *name, void *context), void *context,
                    size_t *ret_skipped)
{
    int fd = place_open(place->path, place->uid);
    if (fd < 0)
        return fd;
    MEMOIR_CLEANUP(closedirp)
    DIR *dir = fdopendir(fd);
    if (!dir) {
        int r = -errno;
        close(fd);
        return r;
    }
    size_t n = 0, skipped = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        if ((e->d_type != DT_REG && e->d_type != DT_UNKNOWN) || !ends_in_book(e->d_name))
            continue;
        if (n == max) {
            skipped++;
            continue;
        }
        struct stat st;
        if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !owner_fits(place, &st))
            continue;
        n++;
        int r = each(fd, e->d_name, context);
        if (r != 0)
            return r;
    }
    if (ret_skipped)
        *ret_skipped = skipped;
    return 0;
}

int book_place_open_reader(const struct book_place *place, int dirfd, const char *name,
                           struct book_reader **ret_reader, int *ret_fd)
{
    if (strchr(name, '/') || name[0] == '\0')
        return -EINVAL;
    MEMOIR_CLEANUP(closep)
    int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -errno;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EBADMSG;
    if (!owner_fits(place, &st))
        return -EPERM;
    MEMOIR_CLEANUP(book_reader_freep)
    struct book_reader *reader = NULL;
    int r = book_reader_open_fd(fd, &reader);
    if (r < 0)
        return r;
    if (st.st_uid != place->uid && !(book_reader_identity(reader)->compat & BOOK_COMPAT_ON_BEHALF))
        return -EPERM;
    *ret_reader = MEMOIR_TAKE(reader);
    if (ret_fd)
        *ret_fd = MEMOIR_TAKE_FD(fd);
    return 0;
}

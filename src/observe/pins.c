/* Directories of pins. See pins.h. */
#include "observe/pins.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "trace/ask.h"

#define PREFIX      "memoir-"
#define BPFFS_MAGIC 0xcafe4a11

/* Tried in turn: the usual place, and one that is writable where /sys is not. */
static const char *const places[] = {"/sys/fs/bpf", TRACE_ASK_DIR "/bpf"};
enum {
    PLACES = sizeof(places) / sizeof(places[0]),
    LOCK_TRIES = 100,
    SWEPT_TRIES = 3, /* a sweeper holds a lock for some microseconds: look again, so often, */
    SWEPT_MS = 2,    /* after this time */
    STALE_S = 10,    /* a lock file that is younger may be between open() and flock() */
};

static bool is_bpffs(const char *path)
{
    struct statfs fs;
    return statfs(path, &fs) == 0 && (unsigned long)fs.f_type == BPFFS_MAGIC;
}

/* Many a bpffs is one in which every user can create names, as /tmp is: that is its default. What is called as ours must be a
 * directory of ours, not one of another user's, nor a link to where that user wants to have files removed. A descriptor, or -errno. */
static int own_open(const char *path)
{
    struct stat st;
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (st.st_uid != geteuid() || st.st_mode & (S_IWGRP | S_IWOTH))
        return -EPERM;
    return MEMOIR_TAKE_FD(fd);
}

/* Can other users rename or remove what is ours there? */
static bool is_open_to_others(const char *place)
{
    struct stat st;
    return stat(place, &st) < 0 || st.st_uid != geteuid() ||
           (st.st_mode & (S_IWGRP | S_IWOTH) && !(st.st_mode & S_ISVTX));
}

static int directory_make(const char *place, const char *name, char path[static PINS_PATH_MAX])
{
    if (is_open_to_others(place))
        return -EPERM;
    snprintf(path, PINS_PATH_MAX, "%s/%s%s", place, PREFIX, name);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return -errno;
    int fd = own_open(path);
    if (fd < 0)
        return fd == -ENOTDIR || fd == -ELOOP ? -EPERM : fd;
    close(fd);
    return 0;
}

static int bpffs_mount(const char *place)
{
    if (mkdir(place, 0700) < 0 && errno != EEXIST)
        return -errno;
    return mount("bpf", place, "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0700") < 0 ? -errno
                                                                                         : 0;
}

/* In a bpffs that is mounted, else in one that gets mounted here. */
static int directory_find(const char *name, char path[static PINS_PATH_MAX])
{
    int r = -ENOENT;
    for (size_t i = 0; i < PLACES && r < 0; i++)
        if (is_bpffs(places[i]))
            r = directory_make(places[i], name, path);
    for (size_t i = 0; i < PLACES && r < 0; i++) {
        if (is_bpffs(places[i]))
            continue;
        r = bpffs_mount(places[i]);
        if (r == 0)
            r = directory_make(places[i], name, path);
    }
    return r;
}

int pins_tracefs(void)
{
    if (access("/sys/kernel/tracing/events", F_OK) == 0 ||
        access("/sys/kernel/debug/tracing/events", F_OK) == 0)
        return 0;
    unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    return mount("tracefs", "/sys/kernel/tracing", "tracefs", flags, "mode=0700") < 0 ? -errno : 0;
}

/* ---- locks ---- */

#define LOCK_PREFIX "observe-"
#define LOCK_SUFFIX ".lock"

static void lock_path(const char *name, char path[static PINS_PATH_MAX])
{
    snprintf(path, PINS_PATH_MAX, "%s/" LOCK_PREFIX "%.64s" LOCK_SUFFIX, TRACE_ASK_DIR, name);
}

/* Its holder removes the file at its end, perhaps between our open() and flock(): then the lock is of no use. */
static bool is_current(int fd, const char *path)
{
    struct stat own, there;
    return fstat(fd, &own) == 0 && stat(path, &there) == 0 && own.st_dev == there.st_dev &&
           own.st_ino == there.st_ino;
}

/* -EBUSY: it is held. */
static int lock_take(const char *name)
{
    char path[PINS_PATH_MAX];
    int r = trace_ask_dir_make();
    if (r < 0)
        return r;
    lock_path(name, path);
    for (int tries = 0, held = 0; tries < LOCK_TRIES && held < SWEPT_TRIES; tries++) {
        MEMOIR_CLEANUP(closep)
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
            return -errno;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            if (is_current(fd, path))
                return MEMOIR_TAKE_FD(fd);
            continue;
        }
        if (errno != EWOULDBLOCK)
            return -errno;
        if (++held < SWEPT_TRIES)
            nanosleep(&(struct timespec){.tv_nsec = SWEPT_MS * 1000000L}, NULL);
    }
    return -EBUSY;
}

static bool has_pins(const char *name)
{
    for (size_t i = 0; i < PLACES; i++) {
        char path[PINS_PATH_MAX];
        snprintf(path, sizeof(path), "%s/%s%.64s", places[i], PREFIX, name);
        if (access(path, F_OK) == 0)
            return true;
    }
    return false;
}

/* Is it the lock file of an observer that is gone for good: nothing holds it, and nothing is pinned under its name? */
static bool is_stale(int fd, const char *path, const char *name)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_mtime + STALE_S < time(NULL) &&
           !has_pins(name) && flock(fd, LOCK_EX | LOCK_NB) == 0 && is_current(fd, path);
}

/* Remove lock files of observers that were killed and whose pins are gone. */
static void locks_sweep(void)
{
    DIR *dir = opendir(TRACE_ASK_DIR);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char name[65], path[PINS_PATH_MAX];
        size_t len = strlen(entry->d_name), prefix = strlen(LOCK_PREFIX),
               suffix = strlen(LOCK_SUFFIX);
        if (len <= prefix + suffix || len - prefix - suffix >= sizeof(name) ||
            strncmp(entry->d_name, LOCK_PREFIX, prefix) != 0 ||
            strcmp(entry->d_name + len - suffix, LOCK_SUFFIX) != 0)
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)(len - prefix - suffix), entry->d_name + prefix);
        lock_path(name, path);
        MEMOIR_CLEANUP(closep)
        int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd >= 0 && is_stale(fd, path, name))
            unlink(path);
    }
    if (dir)
        closedir(dir);
}

void pins_unlock(const char *path, int lock)
{
    char of[PINS_PATH_MAX];
    const char *name = strrchr(path, '/');
    if (name && strncmp(name + 1, PREFIX, strlen(PREFIX)) == 0) {
        lock_path(name + 1 + strlen(PREFIX), of);
        unlink(of);
    }
    close(lock);
}

int pins_open(const char *name, char path[static PINS_PATH_MAX], int *ret_lock)
{
    MEMOIR_CLEANUP(closep)
    int lock = lock_take(name);
    if (lock < 0)
        return lock;
    locks_sweep();
    int r = directory_find(name, path);
    if (r < 0) {
        char own[PINS_PATH_MAX];
        lock_path(name, own);
        unlink(own); /* we hold it */
        path[0] = '\0';
        return r;
    }
    *ret_lock = MEMOIR_TAKE_FD(lock);
    return 0;
}

void pins_empty(const char *path)
{
    int fd = own_open(path);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        closep(&fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
}

void pins_remove(const char *path)
{
    pins_empty(path);
    if (rmdir(path) < 0)
        log_warn("cannot remove '%s': %m", path);
}

int pins_orphans(const char *only, bool remove, void (*each)(void *context, const char *name),
                 void *context)
{
    int n = 0;
    for (size_t i = 0; i < PLACES; i++) {
        DIR *dir = is_bpffs(places[i]) ? opendir(places[i]) : NULL;
        for (struct dirent *entry; dir && (entry = readdir(dir));) {
            if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0)
                continue;
            const char *name = entry->d_name + strlen(PREFIX);
            char path[PINS_PATH_MAX];
            if (only && strcmp(name, only) != 0)
                continue;
            snprintf(path, sizeof(path), "%s/%.64s", places[i], entry->d_name);
            int own = own_open(path);
            if (own < 0)
                continue; /* another user called it so */
            close(own);
            int lock = lock_take(name);
            if (lock < 0)
                continue; /* its observer runs */
            if (each)
                each(context, name);
            if (remove)
                pins_remove(path);
            pins_unlock(path, lock);
            n++;
        }
        if (dir)
            closedir(dir);
    }
    return n;
}

/* File helpers; see the header for what each promises. */
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"

#define READ_STEP 4096

/* One read of at most READ_STEP, and less near the limit; at the limit one byte is asked for, only to
 * learn whether the file goes on. Returns the bytes appended. */
static ssize_t read_step(int fd, struct buffer *out)
{
    size_t room = out->limit - out->len;
    char probe;
    if (room == 0) {
        ssize_t n = read(fd, &probe, 1);
        return n > 0 ? -EFBIG : n < 0 ? -errno : 0;
    }
    size_t step = room < READ_STEP ? room : READ_STEP;
    char *to = buffer_reserve(out, step);
    if (!to)
        return out->error;
    ssize_t n = read(fd, to, step);
    if (n < 0)
        return -errno;
    buffer_commit(out, (size_t)n);
    return n;
}

int fs_read_fd(int fd, struct buffer *out)
{
    if (out->error)
        return out->error;
    size_t before = out->len;
    ssize_t n;
    do
        n = read_step(fd, out);
    while (n > 0 || n == -EINTR);
    if (n < 0 && out->data) {
        out->len = before;
        out->data[before] = '\0';
    }
    return (int)n;
}

int fs_read_file_at(int dir_fd, const char *path, struct buffer *out)
{
    MEMOIR_CLEANUP(closep)
    int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    return fd < 0 ? -errno : fs_read_fd(fd, out);
}

int fs_read_file(const char *path, struct buffer *out)
{
    return fs_read_file_at(AT_FDCWD, path, out);
}

int fs_write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

/* The rename itself must reach the disk too, or a crash may bring the old name back. Some file systems
 * cannot flush a directory; then there is nothing more to do. */
static void sync_parent(const char *path)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;
    snprintf(dir, sizeof(dir), "%.*s", (int)len, path);
    const char *name = !slash ? "." : len == 0 ? "/" : dir;
    MEMOIR_CLEANUP(closep)
    int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        (void)fsync(fd);
}

static int fill(int fd, const void *data, size_t len, mode_t mode)
{
    if (fchmod(fd, mode) < 0)
        return -errno;
    int r = fs_write_all(fd, data, len);
    if (r < 0)
        return r;
    return fsync(fd) < 0 ? -errno : 0;
}

static bool is_stream(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 &&
           (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode) || S_ISFIFO(st.st_mode));
}

static int write_stream(const char *path, const void *data, size_t len)
{
    /* A pipe that nobody reads is an error (-ENXIO) rather than a wait for ever. */
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fcntl(fd, F_SETFL, 0) < 0)
        return -errno;
    return fs_write_all(fd, data, len);
}

int fs_write_file_atomic(const char *path, const void *data, size_t len, mode_t mode)
{
    char temp[PATH_MAX];
    if (is_stream(path))
        return write_stream(path, data, len);
    int n = snprintf(temp, sizeof(temp), "%s.XXXXXX", path);
    if (n < 0 || (size_t)n >= sizeof(temp))
        return -ENAMETOOLONG;
    MEMOIR_CLEANUP(closep)
    int fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int r = fill(fd, data, len, mode);
    if (r == 0 && rename(temp, path) < 0)
        r = -errno;
    if (r < 0) {
        unlink(temp);
        return r;
    }
    sync_parent(path);
    return 0;
}

static int make_dir(const char *path, mode_t mode)
{
    if (mkdir(path, mode) == 0)
        return 0;
    int error = errno;
    struct stat st;
    /* Existing is fine, whatever mkdir said: on a read-only file system it says EROFS. */
    if (stat(path, &st) == 0)
        return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
    return -error;
}

int fs_mkdir_all(const char *path, mode_t mode)
{
    char part[PATH_MAX];
    size_t len = strlen(path);
    if (len == 0)
        return -ENOENT;
    if (len >= sizeof(part))
        return -ENAMETOOLONG;
    memcpy(part, path, len + 1);
    for (size_t i = 1; i < len; i++) {
        if (part[i] != '/' || part[i - 1] == '/')
            continue;
        part[i] = '\0';
        int r = make_dir(part, mode);
        if (r < 0)
            return r;
        part[i] = '/';
    }
    return make_dir(part, mode);
}

int fs_is_tmpfs(int fd)
{
    struct statfs st;
    if (fstatfs(fd, &st) < 0)
        return -errno;
    return st.f_type == TMPFS_MAGIC || st.f_type == RAMFS_MAGIC;
}

/* "36 35 0:25 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw": is it that device, and in memory? */
static bool mount_is_memory(char *line, unsigned dev_major, unsigned dev_minor)
{
    unsigned major, minor;
    char type[16];
    const char *dash = strstr(line, " - ");
    return sscanf(line, "%*u %*u %u:%u", &major, &minor) == 2 && major == dev_major &&
           minor == dev_minor && dash && sscanf(dash, " - %15s", type) == 1 &&
           (strcmp(type, "tmpfs") == 0 || strcmp(type, "ramfs") == 0);
}

bool fs_device_is_memory(int dir_fd, const char *mountinfo, unsigned dev_major, unsigned dev_minor)
{
    MEMOIR_CLEANUP(closep)
    int fd = openat(dir_fd, mountinfo, O_RDONLY | O_CLOEXEC);
    MEMOIR_CLEANUP(fclosep)
    FILE *mounts = fd < 0 ? NULL : fdopen(fd, "r");
    MEMOIR_CLEANUP(freep)
    char *line = NULL;
    size_t size = 0;
    if (!mounts)
        return false;
    fd = -1;
    for (size_t n = 0; n < FS_MOUNTS_MAX && getline(&line, &size, mounts) > 0; n++)
        if (mount_is_memory(line, dev_major, dev_minor))
            return true;
    return false;
}

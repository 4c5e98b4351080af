/* The tmpfs for books. See mount.h. */
#include "daemon/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/log.h"

enum { MODE = 01777, INODES_SHARE = 4 };

static bool is_mount_point(int fd)
{
    struct statx stx;
    return statx(fd, "", AT_EMPTY_PATH, 0, &stx) == 0 &&
           stx.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT &&
           stx.stx_attributes & STATX_ATTR_MOUNT_ROOT;
}

/* Ours to use: root's, and every user may add a directory but remove only its own. */
static int make_usable(int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_uid != 0)
        return -EPERM;
    if ((st.st_mode & 07777) != MODE && fchmod(fd, MODE) < 0)
        return -errno;
    return 0;
}

static int mount_tmpfs(const char *path, uint64_t size, uint64_t inodes, const char *more,
                       unsigned long flags)
{
    char options[320];
    snprintf(options, sizeof(options), "mode=%o,size=%" PRIu64 ",nr_inodes=%" PRIu64 "%s", MODE,
             size, inodes, more);
    return mount("memoir", path, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | flags, options) < 0
               ? -errno
               : 0;
}

/* Quotas of users in a tmpfs came with Linux 6.6. */
static bool has_quotas(void)
{
    struct utsname system;
    unsigned major, minor;
    return uname(&system) < 0 || sscanf(system.release, "%u.%u", &major, &minor) != 2 ||
           major > 6 || (major == 6 && minor >= 6);
}

static int mount_fresh(const char *path, uint64_t size, uint64_t inodes, uint64_t user_size)
{
    char quota[128];
    /* Older kernels refuse the word, and say so in their log. */
    if (!has_quotas()) {
        log_debug("cannot limit what each user has in '%s': it takes Linux 6.6", path);
        return mount_tmpfs(path, size, inodes, "", 0);
    }
    snprintf(quota, sizeof(quota),
             ",usrquota,usrquota_block_hardlimit=%" PRIu64 ",usrquota_inode_hardlimit=%" PRIu64,
             user_size, inodes / INODES_SHARE);
    int r = mount_tmpfs(path, size, inodes, quota, 0);
    if (r != -EINVAL && r != -ENOSYS && r != -ESRCH)
        return r;
    log_debug("cannot limit what each user has in '%s': %s", path, strerror(-r));
    return mount_tmpfs(path, size, inodes, "", 0);
}

static int open_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* One that is mounted already, by an earlier memoird or by the system's own table: use it, with our
 * limits if we may set them. */
static int reuse(int fd, const char *path, uint64_t size, uint64_t inodes)
{
    int r = mount_tmpfs(path, size, inodes, "", MS_REMOUNT);
    if (r < 0)
        log_info("cannot change the limits of '%s': %s, it keeps those it has", path, strerror(-r));
    return make_usable(fd);
}

int mount_books(const char *path, uint64_t size, uint64_t inodes, uint64_t user_size)
{
    bool made = mkdir(path, 0755) == 0;
    MEMOIR_CLEANUP(closep)
    int fd = open_dir(path);
    if (fd < 0) {
        log_warn("cannot use '%s': %s, books go to /dev/shm and to users' runtime directories",
                 path, strerror(-fd));
        return fd;
    }
    bool in_memory = fs_is_tmpfs(fd) > 0;
    if (in_memory && is_mount_point(fd))
        return reuse(fd, path, size, inodes);
    int r = mount_fresh(path, size, inodes, user_size);
    if (r >= 0) {
        /* The descriptor still shows what is below the mount. */
        MEMOIR_CLEANUP(closep)
        int top = open_dir(path);
        return top < 0 ? top : make_usable(top);
    }
    if (in_memory) {
        log_warn("cannot mount a tmpfs on '%s': %s, using the directory without limits of its own",
                 path, strerror(-r));
        return make_usable(fd);
    }
    log_warn("cannot mount a tmpfs on '%s': %s, books go to /dev/shm and to users' runtime "
             "directories",
             path, strerror(-r));
    if (made)
        rmdir(path);
    return r;
}

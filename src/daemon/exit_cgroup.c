/* Paths of cgroups. See exit_cgroup.h. */
#include "daemon/exit_cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include "base/clock.h"
#include "base/hash.h"

enum {
    HANDLE_KERNFS = 0xfe, /* FILEID_KERNFS: the number itself */
    PATH_BYTES_MAX = 128,
    KEEP_S = 60, /* a cgroup may be renamed, and a number be used again */
};

struct entry {
    uint64_t id, looked_ns;
    bool v1, found;
    char path[PATH_BYTES_MAX];
};

struct exit_cgroups {
    int roots[2]; /* by v1; -1: not mounted */
    struct entry entries[EXIT_CGROUPS_MAX];
};

/* A hierarchy by its mount point, if that is what it should be. */
static int root_open(const char *path, bool v1)
{
    struct statfs fs;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && fstatfs(fd, &fs) == 0 &&
        (unsigned long)fs.f_type == (v1 ? CGROUP_SUPER_MAGIC : CGROUP2_SUPER_MAGIC))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

int exit_cgroups_new(struct exit_cgroups **ret_cgroups)
{
    struct exit_cgroups *cgroups = calloc(1, sizeof(*cgroups));
    if (!cgroups)
        return -ENOMEM;
    cgroups->roots[1] = root_open("/sys/fs/cgroup/memory", true);
    cgroups->roots[0] = root_open("/sys/fs/cgroup", false);
    if (cgroups->roots[0] < 0)
        cgroups->roots[0] = root_open("/sys/fs/cgroup/unified", false);
    *ret_cgroups = cgroups;
    return 0;
}

void exit_cgroups_free(struct exit_cgroups *cgroups)
{
    if (!cgroups)
        return;
    for (int i = 0; i < 2; i++)
        if (cgroups->roots[i] >= 0)
            close(cgroups->roots[i]);
    free(cgroups);
}

static ssize_t fd_path(int fd, char path[static PATH_MAX])
{
    char link[32];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = '\0';
    return n;
}

static bool look(int root, uint64_t id, char path[static PATH_BYTES_MAX])
{
    union {
        struct file_handle handle;
        char room[sizeof(struct file_handle) + sizeof(uint64_t)];
    } h = {.handle = {.handle_bytes = sizeof(id), .handle_type = HANDLE_KERNFS}};
    char top[PATH_MAX], whole[PATH_MAX];
    memcpy(h.handle.f_handle, &id, sizeof(id));
    int fd = root < 0 ? -1 : open_by_handle_at(root, &h.handle, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = fd_path(fd, whole), begin = fd_path(root, top);
    close(fd);
    if (n <= 0 || begin <= 0 || strncmp(whole, top, (size_t)begin) != 0)
        return false;
    const char *rest = whole + begin;
    size_t len = strlen(rest);
    if (len == 0)
        snprintf(path, PATH_BYTES_MAX, "/");
    else if (len < PATH_BYTES_MAX)
        memcpy(path, rest, len + 1);
    else
        snprintf(path, PATH_BYTES_MAX, "...%s", rest + len - (PATH_BYTES_MAX - 4));
    return true;
}

bool exit_cgroups_path(struct exit_cgroups *cgroups, uint64_t id, bool v1, char *path, size_t size)
{
    struct entry *e = &cgroups->entries[hash_combine(id, v1) % EXIT_CGROUPS_MAX];
    uint64_t now = clock_monotonic_coarse_ns();
    if (e->id != id || e->v1 != v1 || now - e->looked_ns > KEEP_S * NS_PER_S) {
        *e = (struct entry){.id = id, .v1 = v1, .looked_ns = now};
        e->found = look(cgroups->roots[v1], id, e->path);
    }
    if (!e->found)
        return false;
    size_t len = strlen(e->path);
    if (len < size)
        memcpy(path, e->path, len + 1);
    else
        snprintf(path, size, "...%s", e->path + len - (size - 4));
    return true;
}

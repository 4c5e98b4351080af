/* Finding and opening modules and their debug files. */
#include "site/symbol_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Turn a descriptor that only names a file into one that reads it, if it is a regular file. Looking
 * first matters: opening a device or a FIFO already does something. */
static int reopen_regular(int path_fd)
{
    struct stat st;
    char link[64];
    if (fstat(path_fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EBADMSG;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
    int fd = open(link, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    return fd < 0 ? -errno : fd;
}

static int take_path_fd(int path_fd)
{
    if (path_fd < 0)
        return -errno;
    int fd = reopen_regular(path_fd);
    close(path_fd);
    return fd;
}

int symbol_file_open(const char *path)
{
    return take_path_fd(open(path, O_PATH | O_CLOEXEC));
}

/* The file that the process has mapped at `start`, whatever its name is by now. The kernel asks for
 * CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN. */
static int open_mapped(pid_t pid, uint64_t start)
{
    char name[64], *line = NULL;
    size_t room = 0;
    snprintf(name, sizeof(name), "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(name, "re");
    if (!maps)
        return -errno;
    int result = -ENOENT;
    while (getline(&line, &room, maps) > 0) {
        unsigned long long lo, hi;
        if (sscanf(line, "%llx-%llx", &lo, &hi) != 2 || lo != start)
            continue;
        snprintf(name, sizeof(name), "/proc/%d/map_files/%llx-%llx", (int)pid, lo, hi);
        result = take_path_fd(open(name, O_PATH | O_CLOEXEC));
        break;
    }
    free(line);
    fclose(maps);
    return result;
}

/* A path as the process sees it; links inside cannot lead out of its root. */
static int open_in_root(pid_t pid, const char *path)
{
    char root[64];
    snprintf(root, sizeof(root), "/proc/%d/root", (int)pid);
    int root_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root_fd < 0)
        return -errno;
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    int fd = take_path_fd((int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how)));
    close(root_fd);
    return fd;
}

static int only_public(int fd)
{
    struct stat st;
    if (fd < 0 || (fstat(fd, &st) == 0 && st.st_mode & S_IROTH))
        return fd;
    close(fd);
    return -EACCES;
}

static int open_main(const struct symbol_query *q, bool public_only)
{
    int fd = -ENOENT;
    if (q->pid > 0) {
        if (q->map_start != 0)
            fd = open_mapped(q->pid, q->map_start);
        if (fd >= 0)
            return fd; /* whoever runs it may know what it is */
        if (q->path && q->path[0] == '/')
            fd = open_in_root(q->pid, q->path);
    }
    /* A process that is gone leaves only its path; the build-id then tells whether that is still the
     * same file. Without one, a path of another's file system is not believed in ours. */
    bool checked = q->pid <= 0 || q->build_id_len > 0;
    if (fd < 0 && checked && q->path && q->path[0] == '/')
        fd = symbol_file_open(q->path);
    return public_only ? only_public(fd) : fd;
}

static int open_debug(const struct symbol_query *q, const char *debug_dir)
{
    char path[4096];
    if (q->build_id_len < 2 || q->build_id_len > SYMBOL_BUILD_ID_MAX)
        return -1;
    int n = snprintf(path, sizeof(path) - 2 * SYMBOL_BUILD_ID_MAX - 8, "%s/.build-id/%02x/",
                     debug_dir, q->build_id[0]);
    if (n < 0 || (size_t)n >= sizeof(path) - 2 * SYMBOL_BUILD_ID_MAX - 8)
        return -1;
    for (size_t i = 1; i < q->build_id_len; i++)
        n += sprintf(path + n, "%02x", q->build_id[i]);
    memcpy(path + n, ".debug", sizeof(".debug"));
    int fd = symbol_file_open(path);
    return fd < 0 ? -1 : fd;
}

void symbol_files_open(const struct symbol_query *query, const char *debug_dir, bool public_only,
                       struct symbol_files *ret_files)
{
    struct symbol_files files = {.main_fd = open_main(query, public_only),
                                 .debug_fd = open_debug(query, debug_dir)};
    if (files.main_fd < 0) {
        files.main_error = files.main_fd;
        files.main_fd = -1;
    }
    *ret_files = files;
}

void symbol_files_close(struct symbol_files *files)
{
    if (files->main_fd >= 0)
        close(files->main_fd);
    if (files->debug_fd >= 0)
        close(files->debug_fd);
    files->main_fd = files->debug_fd = -1;
}

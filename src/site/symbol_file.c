/* Finding and opening modules and their debug files. */
#include "site/symbol_file.h"
#include "base/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PATH_BYTES_MAX = 4096 };

/* Turn a descriptor that only names a file into one that reads it, if it is a regular file. Looking
 * first matters: opening a device or a FIFO already does something. */
static int reopen_regular(int path_fd, const struct symbol_wanted *wanted)
{
    struct stat st;
    char link[64];
    if (fstat(path_fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EBADMSG;
    if (wanted->may_open && !wanted->may_open(path_fd, wanted->pid))
        return -EOPNOTSUPP;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
    int fd = open(link, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

static int take_path_fd(int path_fd, const struct symbol_wanted *wanted)
{
    if (path_fd < 0)
        return -errno;
    int fd = reopen_regular(path_fd, wanted);
    close(path_fd);
    return fd;
}

/* Names (O_PATH) the file that the process has mapped at `start`, whatever its path is by now. The kernel asks for
 * CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN. */
static int mapped_find(pid_t pid, uint64_t start)
{
    char name[64], *line = NULL;
    size_t room = 0;
    snprintf(name, sizeof(name), "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(name, "re");
    if (!maps)
        return -errno;
    int result = -ENOENT;
    while (getline(&line, &room, maps) > 0) {
        struct procfs_mapping m;
        if (!procfs_mapping_parse(line, line + strcspn(line, "\n"), &m) || m.start != start)
            continue;
        snprintf(name, sizeof(name), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, (int)pid, m.start,
                 m.end);
        result = open(name, O_PATH | O_CLOEXEC);
        result = result < 0 ? -errno : result;
        break;
    }
    free(line);
    fclose(maps);
    return result;
}

/* A path as the process sees it; links inside cannot lead out of its root. */
static int open_in_root(const struct symbol_wanted *wanted)
{
    char root[64];
    snprintf(root, sizeof(root), "/proc/%d/root", (int)wanted->pid);
    int root_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root_fd < 0)
        return -errno;
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    int fd = take_path_fd((int)syscall(SYS_openat2, root_fd, wanted->in_root, &how, sizeof(how)),
                          wanted);
    close(root_fd);
    return fd;
}

static int only_before(int fd, int64_t before_s)
{
    struct stat st;
    if (fd < 0 || before_s == 0 ||
        (fstat(fd, &st) == 0 && st.st_mtim.tv_sec < before_s && st.st_ctim.tv_sec < before_s))
        return fd;
    close(fd);
    return -ESTALE;
}

int symbol_wanted_open(const struct symbol_wanted *wanted)
{
    int fd = -ENOENT;
    if (wanted->mapped >= 0)
        fd = reopen_regular(wanted->mapped, wanted);
    if (fd < 0 && wanted->pid > 0 && wanted->in_root && wanted->in_root[0] == '/')
        fd = open_in_root(wanted);
    if (fd < 0 && wanted->path && wanted->path[0] == '/')
        fd = take_path_fd(open(wanted->path, O_PATH | O_CLOEXEC), wanted);
    return only_before(fd, wanted->before_s);
}

static int wanted_open(const struct symbol_host *host, uint32_t owner,
                       const struct symbol_wanted *wanted)
{
    if (host)
        return owner == (uint32_t)SYMBOL_OWNER_NONE ? -EACCES
                                                    : host->open(host->context, owner, wanted);
    return symbol_wanted_open(wanted);
}

static int open_main(const struct symbol_query *q, const struct symbol_host *host)
{
    struct symbol_wanted wanted = {.pid = q->pid, .mapped = -1};
    if (q->pid > 0 && q->map_start != 0)
        wanted.mapped = mapped_find(q->pid, q->map_start);
    if (q->pid > 0)
        wanted.in_root = q->path;
    /* A process that is gone leaves only its path; the build-id then tells whether that is still the
     * same file. Without one, a path of another's file system is not believed in ours. */
    if (q->pid <= 0 || q->build_id_len > 0)
        wanted.path = q->path;
    if (q->build_id_len == 0)
        wanted.before_s = q->before_s;
    int fd = wanted_open(host, q->owner, &wanted);
    if (wanted.mapped >= 0)
        close(wanted.mapped);
    return fd;
}

/* The path of a debug file by build-id; false if it does not fit. */
static bool debug_path(const char *debug_dir, const uint8_t *id, size_t len,
                       char ret_path[static PATH_BYTES_MAX])
{
    if (len < 2 || len > SYMBOL_BUILD_ID_MAX)
        return false;
    size_t room = PATH_BYTES_MAX - 2 * SYMBOL_BUILD_ID_MAX - 8;
    int n = snprintf(ret_path, room, "%s/.build-id/%02x/", debug_dir, id[0]);
    if (n < 0 || (size_t)n >= room)
        return false;
    for (size_t i = 1; i < len; i++)
        n += sprintf(ret_path + n, "%02x", id[i]);
    memcpy(ret_path + n, ".debug", sizeof(".debug"));
    return true;
}

static int open_debug(const struct symbol_query *q, const char *debug_dir,
                      const struct symbol_host *host)
{
    char path[PATH_BYTES_MAX];
    if (!debug_path(debug_dir, q->build_id, q->build_id_len, path))
        return -1;
    int fd = wanted_open(host, q->owner,
                         &(struct symbol_wanted){.pid = q->pid, .mapped = -1, .path = path});
    return fd < 0 ? -1 : fd;
}

void symbol_files_open(const struct symbol_query *query, const char *debug_dir,
                       const struct symbol_host *host, struct symbol_files *ret_files)
{
    struct symbol_files files = {.main_fd = open_main(query, host),
                                 .debug_fd = open_debug(query, debug_dir, host)};
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

/* ---- what the worker asks for ---- */

/* The worker may be in the hands of a file's author: root gives it nothing that is not for everybody. */
static int give_one(const struct symbol_query *q, const struct symbol_host *host, const char *path)
{
    struct stat st;
    int fd = wanted_open(host, q->owner,
                         &(struct symbol_wanted){.pid = q->pid, .mapped = -1, .path = path});
    if (fd < 0 || host || geteuid() != 0 || (fstat(fd, &st) == 0 && st.st_mode & S_IROTH))
        return fd;
    close(fd);
    return -EACCES;
}

/* A link names a file, not a place. */
static size_t give_link(const struct symbol_query *q, const char *debug_dir,
                        const struct symbol_host *host, const char *name, int *ret_fds)
{
    static const struct {
        bool under_debug_dir;
        const char *sub;
    } places[SYMBOL_GIVEN_MAX] = {{false, ""}, {false, "/.debug"}, {true, ""}};
    size_t n = 0;
    if (!q->path || q->path[0] != '/' || !name[0] || strchr(name, '/'))
        return 0;
    int dir_len = (int)(strrchr(q->path, '/') - q->path);
    for (size_t i = 0; i < SYMBOL_GIVEN_MAX; i++) {
        char path[PATH_BYTES_MAX];
        int len =
            snprintf(path, sizeof(path), "%s%.*s%s/%s", places[i].under_debug_dir ? debug_dir : "",
                     dir_len, q->path, places[i].sub, name);
        if (len < 0 || (size_t)len >= sizeof(path) || strcmp(path, q->path) == 0)
            continue;
        int fd = give_one(q, host, path);
        if (fd >= 0)
            ret_fds[n++] = fd;
    }
    return n;
}

size_t symbol_files_give(const struct symbol_query *query, const char *debug_dir,
                         const struct symbol_host *host, const struct symbol_want *want,
                         int ret_fds[static SYMBOL_GIVEN_MAX])
{
    char text[SYMBOL_WANT_MAX + 1], path[PATH_BYTES_MAX];
    memcpy(text, want->bytes, want->len);
    text[want->len] = '\0';
    if (want->kind == SYMBOL_WANT_LINK)
        return strlen(text) == want->len ? give_link(query, debug_dir, host, text, ret_fds) : 0;
    size_t dir_len = strlen(debug_dir);
    bool inside = want->kind == SYMBOL_WANT_PATH && strncmp(text, debug_dir, dir_len) == 0 &&
                  text[dir_len] == '/' && !strstr(text, "/../");
    bool by_id = want->kind == SYMBOL_WANT_BUILD_ID &&
                 debug_path(debug_dir, (const uint8_t *)text, want->len, path);
    if (!inside && !by_id)
        return 0;
    ret_fds[0] = give_one(query, host, inside ? text : path);
    return ret_fds[0] >= 0;
}

/* See clustering_confine.h. */
#include "daemon/clustering_confine.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/landlock.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/capabilities.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/seccomp.h"

enum {
    CONFIG_BYTES_MAX = 1 << 20,
    EXIT_CONFINE = 125,
    ABI_TRUNCATE = 3,
    ABI_NET = 4,
    ABI_SCOPE = 6
};

const char *clustering_server_program(void)
{
    static const char *const places[] = {"/usr/bin/nats-server", "/usr/sbin/nats-server",
                                         "/usr/local/bin/nats-server"};
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
        if (access(places[i], X_OK) == 0)
            return places[i];
    return NULL;
}

/* ---- files ---- */

/* As kernels have it since 6.12; older ones take its first fields. */
struct ruleset {
    uint64_t fs, net, scoped;
};

#define RIGHTS_READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define RIGHTS_RUN  (RIGHTS_READ | LANDLOCK_ACCESS_FS_EXECUTE)
#define RIGHTS_OWN                                                               \
    (RIGHTS_READ | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG | \
     LANDLOCK_ACCESS_FS_REMOVE_FILE)
#define RIGHTS_FIRST   ((LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1) /* of the first version */
#define RIGHT_TRUNCATE (UINT64_C(1) << 14)
#define NET_CONNECT    (UINT64_C(1) << 1)
#define SCOPE_ALL      UINT64_C(3) /* abstract sockets, signals */

static int landlock_version(void)
{
    return (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

bool clustering_confine_whole(void)
{
    return landlock_version() >= 1;
}

/* What is not there needs no rule. */
static int path_allow(int ruleset, const char *path, uint64_t rights)
{
    struct stat st;
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISDIR(st.st_mode))
        rights &= ~(uint64_t)(LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                              LANDLOCK_ACCESS_FS_REMOVE_FILE);
    struct landlock_path_beneath_attr rule = {.allowed_access = rights, .parent_fd = fd};
    return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0
               ? -errno
               : 0;
}

/* The folder of a file that the configuration names by `key: "PATH"`: a renewed certificate is another file there. */
static int named_allow(int ruleset, const char *config, const char *key)
{
    char path[PATH_MAX], real[PATH_MAX];
    const char *at = strstr(config, key);
    const char *begin = at ? strchr(at, '"') : NULL, *end = begin ? strchr(begin + 1, '"') : NULL;
    if (!end || (size_t)(end - begin) > sizeof(path))
        return 0;
    snprintf(path, sizeof(path), "%.*s", (int)(end - begin - 1), begin + 1);
    int r = path_allow(ruleset, path, RIGHTS_READ);
    return r == 0 && realpath(path, real) ? path_allow(ruleset, dirname(real), RIGHTS_READ) : r;
}

static int paths_allow(int ruleset, const char *config, uint64_t truncate)
{
    static const char *const run[] = {"/usr", "/lib", "/lib64"};
    static const char *const read[] = {"/etc/ssl",           "/etc/hosts",       "/etc/resolv.conf",
                                       "/etc/nsswitch.conf", "/etc/ld.so.cache", "/etc/localtime"};
    char folder[PATH_MAX];
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(CONFIG_BYTES_MAX);
    snprintf(folder, sizeof(folder), "%s", config);
    int r = fs_read_file(config, &text);
    if (r == 0)
        r = path_allow(ruleset, dirname(folder), RIGHTS_OWN | truncate);
    for (size_t i = 0; i < sizeof(run) / sizeof(*run) && r == 0; i++)
        r = path_allow(ruleset, run[i], RIGHTS_RUN);
    for (size_t i = 0; i < sizeof(read) / sizeof(*read) && r == 0; i++)
        r = path_allow(ruleset, read[i], RIGHTS_READ);
    if (r == 0)
        r = named_allow(ruleset, buffer_string(&text), "cert_file:");
    return r == 0 ? named_allow(ruleset, buffer_string(&text), "key_file:") : r;
}

static int files_drop(const char *config)
{
    int version = landlock_version();
    if (version < 1)
        return 0;
    uint64_t truncate = version >= ABI_TRUNCATE ? RIGHT_TRUNCATE : 0;
    struct ruleset wanted = {RIGHTS_FIRST | truncate, version >= ABI_NET ? NET_CONNECT : 0,
                             version >= ABI_SCOPE ? SCOPE_ALL : 0};
    size_t bytes = sizeof(uint64_t) * (version >= ABI_SCOPE ? 3 : version >= ABI_NET ? 2 : 1);
    MEMOIR_CLEANUP(closep)
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &wanted, bytes, 0);
    if (ruleset < 0)
        return -errno;
    int r = paths_allow(ruleset, config, truncate);
    if (r == 0 && syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
        r = -errno;
    if (r < 0)
        return r;
    /* Is it in force? */
    MEMOIR_CLEANUP(closep)
    int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    return fd >= 0 || errno != EACCES ? -EPERM : 0;
}

/* ---- system calls ---- */

/* No Unix sockets, and no other way to make one. x32 calls have this bit. */
static int sockets_drop(void)
{
    enum { X32 = 0x40000000 };
    struct sock_filter program[] = {
        FILTER_LOAD(arch),
        FILTER_IF_EQUAL(FILTER_ARCH, 1, 0),
        FILTER_RETURN(SECCOMP_RET_KILL_PROCESS),
        FILTER_LOAD(nr),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32, 5, 0),
        FILTER_IF_EQUAL(SYS_io_uring_setup, 4, 0),
        FILTER_IF_EQUAL(SYS_socket, 0, 2),
        FILTER_LOAD(args[0]),
        FILTER_IF_EQUAL(AF_UNIX, 1, 0),
        FILTER_RETURN(SECCOMP_RET_ALLOW),
        FILTER_RETURN(SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog filter = {.len = sizeof(program) / sizeof(*program), .filter = program};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
        return -errno;
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) >= 0 || errno != EPERM ? -EPERM : 0;
}

int clustering_server_become(const char *config)
{
    const char *program = clustering_server_program();
    int r = program ? 0 : -ENOENT;
    /* Without new privileges, root's exec gets no capability back. */
    if (r == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        r = -errno;
    if (r == 0)
        r = capabilities_drop();
    if (r == 0)
        r = files_drop(config);
    if (r == 0)
        r = sockets_drop();
    if (r == 0)
        execl(program, "nats-server", "-c", config, NULL);
    return EXIT_CONFINE;
}

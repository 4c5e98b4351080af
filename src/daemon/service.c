/* memoird among other programs. See service.h. */
#include "daemon/service.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"

/* ---- one instance ---- */

static pid_t holder_read(int fd)
{
    char text[16] = "";
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    return n > 0 ? (pid_t)strtol(text, NULL, 10) : 0;
}

/* In a directory where others may write, another user may have put a file there before us. A file that has lost its
 * name since we opened it was swept or left behind by who ended: what bears the name now is not ours to remove. */
static int lock_open(int dirfd, const char *name)
{
    for (int try = 0; try < 2; try++) {
        MEMOIR_CLEANUP(closep)
        int fd = openat(dirfd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
        struct stat st;
        if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
            st.st_nlink <= 1)
            return MEMOIR_TAKE_FD(fd);
        int error = fd < 0 ? errno : EPERM;
        if ((fd < 0 && error != ELOOP && error != EISDIR && error != ENXIO) ||
            unlinkat(dirfd, name, 0) < 0)
            return -error;
    }
    return -EPERM;
}

/* Who ends, or sweeps, removes the file under its lock: then ours would be on a file without a name. */
static bool lock_named(int dirfd, const char *name, int fd)
{
    struct stat st, named;
    return fstat(fd, &st) == 0 && fstatat(dirfd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           st.st_dev == named.st_dev && st.st_ino == named.st_ino;
}

int service_lock(int dirfd, const char *name, pid_t *ret_holder)
{
    *ret_holder = 0;
    MEMOIR_CLEANUP(closep)
    int fd = lock_open(dirfd, name);
    if (fd < 0)
        return fd;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK)
            return -errno;
        *ret_holder = holder_read(fd);
        return -EBUSY;
    }
    if (!lock_named(dirfd, name, fd))
        return -EBUSY;
    char text[16];
    int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());
    /* Only people read it; the lock is what counts, so a full disk does not matter. */
    if (ftruncate(fd, 0) == 0)
        (void)!pwrite(fd, text, (size_t)n, 0);
    return MEMOIR_TAKE_FD(fd);
}

static void closedirp(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}

void service_lock_sweep(const char *path, const char *prefix)
{
    MEMOIR_CLEANUP(closedirp)
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0)
            continue;
        MEMOIR_CLEANUP(closep)
        int fd = openat(dirfd(dir), e->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && lock_named(dirfd(dir), e->d_name, fd))
            unlinkat(dirfd(dir), e->d_name, 0);
    }
}

int service_pid_file(const char *path)
{
    char text[16];
    int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());
    return fs_write_file_atomic(path, text, (size_t)n, 0644);
}

/* ---- background ---- */

static int ready_fd = -1; /* the parent waits at its other end */

/* The parent's part: it never returns. */
static void wait_ready(int fd, pid_t child)
{
    char byte;
    ssize_t n;
    do
        n = read(fd, &byte, 1);
    while (n < 0 && errno == EINTR);
    if (n == 1)
        _exit(0);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    _exit(WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : 1);
}

int service_background(void)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    pid_t child = fork();
    if (child < 0) {
        int r = -errno;
        close(fds[0]);
        close(fds[1]);
        return r;
    }
    if (child > 0) {
        close(fds[1]);
        wait_ready(fds[0], child);
    }
    close(fds[0]);
    ready_fd = fds[1];
    setsid();
    return chdir("/") < 0 ? -errno : 0;
}

void service_ready(const char *status)
{
    char state[256];
    snprintf(state, sizeof(state), "READY=1\nSTATUS=%s\nMAINPID=%d", status, (int)getpid());
    service_notify(state);
    if (ready_fd < 0)
        return;
    /* Errors could be shown up to here; from now on there is only the log file. */
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        for (int fd = 0; fd <= 2; fd++)
            dup2(null, fd);
        close(null);
    }
    (void)!write(ready_fd, "1", 1);
    close(ready_fd);
    ready_fd = -1;
}

/* ---- systemd ---- */

void service_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = path ? strlen(path) : 0;
    if (len == 0 || (path[0] != '/' && path[0] != '@') || len >= sizeof(address.sun_path))
        return;
    memcpy(address.sun_path, path, len);
    if (address.sun_path[0] == '@')
        address.sun_path[0] = '\0'; /* the abstract namespace */
    MEMOIR_CLEANUP(closep)
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
                         (struct sockaddr *)&address, size) < 0)
        log_debug("cannot notify '%s': %m", path);
}

void service_notify_reloading(void)
{
    char state[64];
    snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
             clock_monotonic_ns() / NS_PER_US);
    service_notify(state);
}

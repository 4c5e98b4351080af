/* Asking the observer. See ask.h. */
#include "trace/ask.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"

enum { HEAD_MAX = 320 };

int trace_ask_dir_make(void)
{
    struct stat st;
    bool made = mkdir(TRACE_ASK_DIR, 0755) == 0;
    if ((!made && errno != EEXIST) || (made && chmod(TRACE_ASK_DIR, 0755) < 0))
        return -errno;
    if (lstat(TRACE_ASK_DIR, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return -ENOTDIR;
    return st.st_uid != 0 || st.st_mode & (S_IWGRP | S_IWOTH) ? -EPERM : 0;
}

/* ---- observers of heaps ---- */

void trace_ask_heap_socket(pid_t pid, const char *dir, char path[static TRACE_ASK_PATH_MAX])
{
    char real[PATH_MAX];
    if (!dir || !*dir) {
        snprintf(path, TRACE_ASK_PATH_MAX, "%s/heap-%d.sock", TRACE_ASK_DIR, (int)pid);
        return;
    }
    uint64_t hash = hash_string(realpath(dir, real) ? real : dir, 0);
    snprintf(path, TRACE_ASK_PATH_MAX, "%s/heap-%d-%016" PRIx64 ".sock", TRACE_ASK_DIR, (int)pid,
             hash);
}

pid_t trace_ask_heap_pid(const char *name, const char *dir)
{
    char path[TRACE_ASK_PATH_MAX];
    int pid = 0;
    if (sscanf(name, "heap-%d", &pid) != 1 || pid <= 0)
        return 0;
    trace_ask_heap_socket(pid, dir, path);
    return strcmp(path + sizeof(TRACE_ASK_DIR), name) == 0 ? pid : 0;
}

bool trace_ask_heap_find(pid_t pid, const char *but, char path[static TRACE_ASK_PATH_MAX])
{
    bool found = false;
    DIR *dir = opendir(TRACE_ASK_DIR);
    for (struct dirent *entry; dir && !found && (entry = readdir(dir));) {
        int other = 0;
        if (sscanf(entry->d_name, "heap-%d", &other) != 1 || other != pid ||
            snprintf(path, TRACE_ASK_PATH_MAX, "%s/%.64s", TRACE_ASK_DIR, entry->d_name) >=
                TRACE_ASK_PATH_MAX ||
            (but && strcmp(path, but) == 0))
            continue;
        int fd = trace_ask_open(path);
        found = fd >= 0;
        if (found)
            close(fd);
    }
    if (dir)
        closedir(dir);
    return found;
}

/* Answers name processes of any user, so they must not come from just any process. */
static bool peer_is_trusted(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
           (peer.uid == 0 || peer.uid == geteuid());
}

int trace_ask_open(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    strcpy(address.sun_path, path);
    MEMOIR_CLEANUP(closep)
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    /* An observer that hangs takes no connections: connect() must not wait, for the caller may be memoird's loop. */
    int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return -errno;
    if (!peer_is_trusted(fd))
        return -EPERM;
    fcntl(fd, F_SETFL, flags);
    return MEMOIR_TAKE_FD(fd);
}

/* Until that time; 0: TRACE_ASK_WAIT_MS from now. */
static int wait_ms(uint64_t until_ns)
{
    uint64_t now = until_ns ? clock_monotonic_ns() : 0;
    if (!until_ns)
        return TRACE_ASK_WAIT_MS;
    return now >= until_ns ? 0 : (int)((until_ns - now + NS_PER_MS - 1) / NS_PER_MS);
}

/* Bytes that came; 0: the other side closed. */
static ssize_t receive(int fd, void *to, size_t bytes, uint64_t until_ns)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    for (;;) {
        int r = poll(&wait, 1, wait_ms(until_ns));
        if (r == 0)
            return -ETIMEDOUT;
        ssize_t n = r < 0 ? -1 : recv(fd, to, bytes, 0);
        if (n >= 0)
            return n;
        if (errno != EINTR)
            return -errno;
    }
}

/* The first line, byte by byte: what follows it is not touched. */
static int head_read(int fd, uint64_t until_ns, char head[static HEAD_MAX])
{
    for (size_t n = 0; n < HEAD_MAX; n++) {
        ssize_t r = receive(fd, head + n, 1, until_ns);
        if (r <= 0)
            return r < 0 ? (int)r : -ECONNRESET;
        if (head[n] == '\n') {
            head[n] = '\0';
            return 0;
        }
    }
    return -EBADMSG;
}

static int body_read(int fd, uint64_t until_ns, size_t bytes, struct buffer *out)
{
    while (bytes > 0) {
        char piece[65536];
        ssize_t n = receive(fd, piece, bytes < sizeof(piece) ? bytes : sizeof(piece), until_ns);
        if (n <= 0)
            return n < 0 ? (int)n : -ECONNRESET;
        int r = out ? buffer_append(out, piece, (size_t)n) : 0;
        if (r < 0)
            return r;
        bytes -= (size_t)n;
    }
    return 0;
}

int trace_ask(int fd, const char *request, struct buffer *out, char why[static TRACE_ASK_WHY_MAX])
{
    return trace_ask_until(fd, request, 0, out, why);
}

int trace_ask_until(int fd, const char *request, uint64_t until_ns, struct buffer *out,
                    char why[static TRACE_ASK_WHY_MAX])
{
    char line[128], head[HEAD_MAX], *end;
    int len = snprintf(line, sizeof(line), "%s\n", request);
    if (len >= (int)sizeof(line))
        return -EINVAL;
    if (send(fd, line, (size_t)len, MSG_NOSIGNAL) != len)
        return -errno;
    int r = head_read(fd, until_ns, head);
    if (r < 0)
        return r;
    if (strncmp(head, "error ", 6) == 0) {
        snprintf(why, TRACE_ASK_WHY_MAX, "%.*s", TRACE_ASK_WHY_MAX - 1, head + 6);
        return -EREMOTEIO;
    }
    if (strncmp(head, "ok ", 3) != 0)
        return -EBADMSG;
    unsigned long long bytes = strtoull(head + 3, &end, 10);
    if (*end || end == head + 3)
        return -EBADMSG;
    return body_read(fd, until_ns, bytes, out);
}

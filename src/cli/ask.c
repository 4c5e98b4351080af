/* Questions to memoird. See ask.h. */
#include "cli/ask.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"

enum { PATH_BYTES_MAX = 4096, READ_BYTES = 65536 };

static const char machine_path[] = "/run/memoird/memoir.sock";

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = ASK_PATIENCE_S};
    if (strlen(path) >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    strcpy(address.sun_path, path);
    MEMOIR_CLEANUP(closep)
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0 ||
        connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
        return -errno;
    return MEMOIR_TAKE_FD(fd);
}

int ask_connect(const char *path)
{
    char own[PATH_BYTES_MAX];
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (path)
        return connect_to(path);
    if (runtime && runtime[0] == '/') {
        snprintf(own, sizeof(own), "%s/memoird.sock", runtime);
        int fd = connect_to(own);
        if (fd >= 0)
            return fd;
    }
    return connect_to(machine_path);
}

static int send_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? -ETIMEDOUT : -errno;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

int ask_line(int fd, const char *question, struct buffer *ret_answer)
{
    int r = send_all(fd, question, strlen(question));
    if (r == 0)
        r = send_all(fd, "\n", 1);
    while (r == 0) {
        char *to = buffer_reserve(ret_answer, READ_BYTES);
        if (!to)
            return ret_answer->error;
        ssize_t n = recv(fd, to, READ_BYTES, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0 ? -ECONNRESET : errno == EAGAIN ? -ETIMEDOUT : -errno;
        bool whole = memchr(to, '\n', (size_t)n);
        buffer_commit(ret_answer, (size_t)n);
        if (whole)
            return 0;
    }
    return r;
}

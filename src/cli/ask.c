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

enum { READ_BYTES = 65536 };

int ask_connect_within(const char *path, unsigned patience_s)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = patience_s};
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

void ask_own_path(char ret_path[static ASK_PATH_MAX])
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    ret_path[0] = '\0';
    if (runtime && runtime[0] == '/')
        snprintf(ret_path, ASK_PATH_MAX, "%s/memoird.sock", runtime);
}

int ask_connect(const char *path)
{
    char own[ASK_PATH_MAX];
    if (path)
        return ask_connect_within(path, ASK_PATIENCE_S);
    ask_own_path(own);
    int fd = *own ? ask_connect_within(own, ASK_PATIENCE_S) : -ENOENT;
    return fd >= 0 ? fd : ask_connect_within(ASK_MACHINE_PATH, ASK_PATIENCE_S);
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

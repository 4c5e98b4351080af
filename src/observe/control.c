/* The observer's socket. See control.h. */
#include "observe/control.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

enum { ANSWER_WAIT_MS = 2000 }; /* for a client that does not read */

struct client {
    int fd; /* -1: free */
    bool holds;
    size_t len;
    char line[CONTROL_LINE_MAX];
};

struct control {
    control_request_fn *request;
    void *context;
    int listener, epoll;
    char path[108];
    struct client clients[CONTROL_CLIENTS_MAX];
};

int control_new(control_request_fn *request, void *context, const char *path,
                struct control **ret_control)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    strcpy(address.sun_path, path);
    struct control *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->request = request;
    c->context = context;
    for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
        c->clients[i].fd = -1;
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    c->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    unlink(path);
    mode_t mask = umask(0177);
    int r = c->listener < 0 || c->epoll < 0 ||
                    bind(c->listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
                    listen(c->listener, 16) < 0
                ? -errno
                : 0;
    umask(mask);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = CONTROL_CLIENTS_MAX};
    if (r == 0 && epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->listener, &event) < 0)
        r = -errno;
    if (r < 0) {
        control_free(c);
        return r;
    }
    strcpy(c->path, path);
    *ret_control = c;
    return 0;
}

static void client_close(struct client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    *client = (struct client){.fd = -1};
}

void control_free(struct control *c)
{
    if (!c)
        return;
    /* The socket goes first: a client whose connection ends finds that no observer is there any more. */
    if (c->path[0])
        unlink(c->path);
    closep(&c->listener);
    for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
        client_close(&c->clients[i]);
    closep(&c->epoll);
    free(c);
}

void control_forget(struct control *c, int fd)
{
    for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
        if (c->clients[i].fd >= 0 && c->clients[i].fd != fd)
            close(c->clients[i].fd);
    close(c->listener);
}

int control_fd(const struct control *c)
{
    return c->epoll;
}

size_t control_holders(const struct control *c)
{
    size_t n = 0;
    for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
        n += c->clients[i].fd >= 0 && c->clients[i].holds;
    return n;
}

/* A client that reads too slowly is cut off: the ring must not wait for it. */
static bool send_all(int fd, const void *data, size_t len)
{
    uint64_t end_ns = clock_monotonic_ns() + ANSWER_WAIT_MS * NS_PER_MS;
    for (size_t done = 0; done < len;) {
        ssize_t n = send(fd, (const char *)data + done, len - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            done += (size_t)n;
            continue;
        }
        struct pollfd wait = {.fd = fd, .events = POLLOUT};
        if (n == 0 || (errno != EAGAIN && errno != EINTR) || clock_monotonic_ns() > end_ns ||
            poll(&wait, 1, ANSWER_WAIT_MS) <= 0)
            return false;
    }
    return true;
}

static bool answer(const struct client *client, const struct buffer *payload)
{
    char head[48];
    if (payload->error)
        return send_all(client->fd, "error out of memory\n", 20);
    int n = snprintf(head, sizeof(head), "ok %zu\n", payload->len);
    return send_all(client->fd, head, (size_t)n) &&
           send_all(client->fd, payload->data ? payload->data : "", payload->len);
}

static bool refuse(const struct client *client, const char *why)
{
    char text[CONTROL_LINE_MAX + 16];
    int n = snprintf(text, sizeof(text), "error %.*s\n", CONTROL_LINE_MAX, why);
    return send_all(client->fd, text, (size_t)n);
}

/* False: the connection is of no use any more. */
static bool line_serve(struct control *c, struct client *client, const char *line)
{
    struct buffer out = BUFFER_INIT(CONTROL_ANSWER_MAX);
    char why[CONTROL_WHY_MAX] = "unknown request";
    enum control_result result = CONTROL_ANSWERED;
    if (strcmp(line, "hold") == 0)
        client->holds = true;
    else
        result = c->request(c->context, client->fd, line, &out, why);
    bool good = result == CONTROL_ANSWERED  ? answer(client, &out)
                : result == CONTROL_REFUSED ? refuse(client, why)
                                            : false;
    buffer_release(&out);
    return good;
}

static void client_serve(struct control *c, struct client *client)
{
    ssize_t n = recv(client->fd, client->line + client->len, sizeof(client->line) - client->len,
                     MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        client_close(client);
        return;
    }
    client->len += (size_t)n;
    for (char *end; (end = memchr(client->line, '\n', client->len));) {
        *end = '\0';
        if (!line_serve(c, client, client->line)) {
            client_close(client);
            return;
        }
        size_t used = (size_t)(end - client->line) + 1;
        memmove(client->line, end + 1, client->len - used);
        client->len -= used;
    }
    if (client->len == sizeof(client->line)) {
        refuse(client, "request too long");
        client_close(client);
    }
}

static void connection_take(struct control *c)
{
    MEMOIR_CLEANUP(closep)
    int fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct ucred peer;
    socklen_t len = sizeof(peer);
    if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return;
    if (peer.uid != 0 && peer.uid != geteuid())
        return;
    for (uint32_t i = 0; i < CONTROL_CLIENTS_MAX; i++) {
        if (c->clients[i].fd >= 0)
            continue;
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        if (epoll_ctl(c->epoll, EPOLL_CTL_ADD, fd, &event) == 0)
            c->clients[i].fd = MEMOIR_TAKE_FD(fd);
        return;
    }
}

void control_serve(struct control *c)
{
    struct epoll_event events[16];
    int n = epoll_wait(c->epoll, events, 16, 0);
    for (int i = 0; i < n; i++) {
        uint32_t which = events[i].data.u32;
        if (which == CONTROL_CLIENTS_MAX)
            connection_take(c);
        else if (c->clients[which].fd >= 0)
            client_serve(c, &c->clients[which]);
    }
}

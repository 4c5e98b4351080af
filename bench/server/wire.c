/* See wire.h. */
#include "wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../book/harness.h"

enum { SEND_BUFFER_BYTES = 1 << 20 }; /* as the original client asks for */

const char *const wire_space_names[WIRE_SPACES] = {"dram",  "l1", "l1_small",
                                                   "trace", "cb", "kernel"};

int wire_connect(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || strlen(path) >= sizeof(address.sun_path))
        bench_fail("cannot make a socket for '%s': %m", path);
    strcpy(address.sun_path, path);
    int bytes = SEND_BUFFER_BYTES;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    while (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        if (errno != EINTR)
            bench_fail("cannot connect to '%s': %m", path);
    return fd;
}

void wire_server_open(struct wire_server *server, char *text)
{
    char *equal = strchr(text, '=');
    if (!equal)
        bench_fail("not NAME=SOCKET: '%s'", text);
    *equal = '\0';
    *server = (struct wire_server){.name = text, .path = equal + 1};
    server->fd = wire_connect(server->path);
}

void wire_send(int fd, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    while (n > 0) {
        ssize_t done = send(fd, at, n, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            bench_fail("the server takes no more: %m");
        at += done;
        n -= (size_t)done;
    }
}

void wire_receive(int fd, void *bytes, size_t n)
{
    uint8_t *at = bytes;
    while (n > 0) {
        ssize_t done = recv(fd, at, n, 0);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            bench_fail("the server hung up: %s", done < 0 ? strerror(errno) : "end of stream");
        at += done;
        n -= (size_t)done;
    }
}

void wire_query(int fd, int device, struct wire_totals *ret_totals)
{
    struct wire_message message = {.type = WIRE_QUERY, .device = device, .pid = (int32_t)getpid()};
    wire_send(fd, &message, sizeof(message));
    wire_receive(fd, &message, sizeof(message));
    if (message.type != WIRE_RESPONSE)
        bench_fail("message of type %u instead of a response", message.type);
    memcpy(ret_totals->bytes, message.allocated, sizeof(ret_totals->bytes));
}

void wire_check(const char *server, const struct wire_totals *wanted,
                const struct wire_totals *answer)
{
    for (int i = 0; i < WIRE_SPACES; i++)
        if (wanted->bytes[i] != answer->bytes[i])
            bench_fail("%s says %llu bytes of %s instead of %llu", server,
                       (unsigned long long)answer->bytes[i], wire_space_names[i],
                       (unsigned long long)wanted->bytes[i]);
}

void wire_make_alloc(struct wire_message *message, int device, int32_t pid, uint64_t id,
                     enum wire_space space, uint64_t size)
{
    static const uint8_t buffer_types[WIRE_SPACES] = {0, 1, 3, 4, 0, 0};
    *message = (struct wire_message){
        .type = space == WIRE_CB       ? WIRE_CB_ALLOC
                : space == WIRE_KERNEL ? WIRE_KERNEL_LOAD
                                       : WIRE_ALLOC,
        .device = device,
        .size = size,
        .buffer_type = buffer_types[space],
        .pid = pid,
        .id = id,
    };
}

/* The original client tells device and id of a buffer that it frees, and the size of CBs and kernels. */
void wire_make_free(struct wire_message *message, int device, int32_t pid, uint64_t id,
                    enum wire_space space, uint64_t size)
{
    *message = (struct wire_message){
        .type = space == WIRE_CB       ? WIRE_CB_FREE
                : space == WIRE_KERNEL ? WIRE_KERNEL_UNLOAD
                                       : WIRE_FREE,
        .device = device,
        .size = space == WIRE_CB || space == WIRE_KERNEL ? size : 0,
        .pid = pid,
        .id = id,
    };
}

void wire_totals_add(struct wire_totals *totals, uint64_t id)
{
    totals->bytes[wire_space_of(id)] += wire_size_of(id);
}

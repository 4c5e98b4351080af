/* The least that an answer over a socket can cost: what comes, goes back.
 *
 * Usage: bench_server_echo SOCKET
 *
 * One client at a time, blocking, no loop that waits for several; so it has fewer system calls for each
 * answer than any server with many clients can have. Prints "ready" when it listens. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../book/harness.h"
#include "wire.h"

int main(int argc, char **argv)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (argc != 2 || strlen(argv[1]) >= sizeof(address.sun_path))
        bench_fail("usage: bench_server_echo SOCKET");
    strcpy(address.sun_path, argv[1]);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        listen(listener, 1) < 0)
        bench_fail("cannot listen at '%s': %m", argv[1]);
    puts("ready");
    fflush(stdout);
    for (;;) {
        struct wire_message message;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            bench_fail("cannot accept: %m");
        for (ssize_t n; (n = recv(fd, &message, sizeof(message), 0)) > 0;) {
            message.type = WIRE_RESPONSE;
            if (send(fd, &message, (size_t)n, MSG_NOSIGNAL) != n)
                break;
        }
        close(fd);
    }
}

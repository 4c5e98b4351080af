/* A server that leaks, for the tests of the dashboard: each request keeps a session that nobody ever closes, and
 * reads a request that is given back. It says "ready PID" and ends when its standard input closes. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REQUEST_MS = 10, SESSION_BYTES = 8 << 10, REQUEST_BYTES = 4 << 10 };

struct session {
    struct session *next;
    char data[SESSION_BYTES];
};

static struct session *sessions;

__attribute__((noinline)) static struct session *session_new(int number)
{
    struct session *session = malloc(sizeof(*session));
    if (!session)
        exit(1);
    memset(session->data, number, sizeof(session->data));
    session->next = sessions;
    return session;
}

__attribute__((noinline)) static void answer_request(int number)
{
    char *request = malloc(REQUEST_BYTES);
    if (!request)
        exit(1);
    memset(request, number, REQUEST_BYTES);
    sessions = session_new(number);
    free(request);
}

__attribute__((noinline)) static void serve(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    for (int number = 0; poll(&input, 1, REQUEST_MS) == 0; number++)
        answer_request(number);
}

int main(void)
{
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    serve();
    return 0;
}

/* Asking an observer that hangs: the caller, which may be memoird's loop, does not hang with it. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trace/ask.h"
#include "trace_fixture.h"

static void a_connection_is_not_waited_for(void **state)
{
    (void)state;
    char folder[] = "/tmp/memoir-ask-XXXXXX";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fds[16], n = 0;
    assert_non_null(mkdtemp(folder));
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/sock", folder);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(listener, 2), 0);
    alarm(20); /* that it does not end by itself is the failure */
    while (n < 16 && (fds[n] = trace_ask_open(address.sun_path)) >= 0)
        n++;
    assert_true(n > 0 && n < 16);
    assert_int_equal(fds[n], -EAGAIN);
    alarm(0);
    while (n > 0)
        close(fds[--n]);
    close(listener);
    unlink(address.sun_path);
    rmdir(folder);
}

/* Any user can make a socket; only root's and our own are observers. */
static void a_socket_of_another_user_is_refused(void **state)
{
    (void)state;
    char folder[] = "/tmp/memoir-ask-XXXXXX", byte;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int ready[2];
    if (geteuid() != 0)
        skip();
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chmod(folder, 0777), 0);
    assert_int_equal(pipe(ready), 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/sock", folder);
    pid_t child = fork();
    if (child == 0) {
        int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (setresuid(65534, 65534, 65534) < 0 ||
            bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
            listen(listener, 2) < 0 || write(ready[1], "r", 1) != 1)
            _exit(1);
        pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(trace_ask_open(address.sun_path), -EPERM);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ready[0]);
    unlink(address.sun_path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_is_not_waited_for),
        cmocka_unit_test(a_socket_of_another_user_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* fatal.c: see fatal.h. Uses nothing that could allocate. */
#include "malloc/fatal.h"

#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "malloc/line.h"

void fatal_end(void)
{
    sigset_t abort_only;
    sigemptyset(&abort_only);
    sigaddset(&abort_only, SIGABRT);
    pthread_sigmask(SIG_UNBLOCK, &abort_only, NULL);
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGABRT);
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid),
            SIGKILL); /* somebody handled it, and came back */
    for (;;)
        _exit(127);
}

void fatal_block(const char *function, const char *problem, const void *block)
{
    struct line l = {.length = 0};
    line_text(&l, "memoir-malloc: ");
    line_text(&l, function);
    line_text(&l, "(): ");
    line_hex(&l, (uintptr_t)block);
    line_text(&l, ": ");
    line_text(&l, problem);
    line_write(&l, STDERR_FILENO);
    fatal_end();
}

/*
 * guard.c: SIGBUS becomes -EIO for reads of mapped books.
 *
 * The handler jumps out of the faulting read to the innermost guard of the thread. It is installed
 * with SA_NODEFER, so the signal is not blocked while it runs and the jump has no mask to restore:
 * a guard is then a plain register save without a system call.
 */
#include "book/guard.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

static _Thread_local sigjmp_buf *volatile guard_target;

static pthread_mutex_t install_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool installed;
static struct sigaction previous;

/* A fault is synchronous and has an address; kill() and machine checks of other pages are not. */
static bool is_own_fault(const siginfo_t *info)
{
    return info->si_code == BUS_ADRERR || info->si_code == BUS_OBJERR ||
           info->si_code == BUS_ADRALN || info->si_code == BUS_MCEERR_AR;
}

static void pass_on(int signo, siginfo_t *info, void *ucontext)
{
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(signo, info, ucontext);
        return;
    }
    if (previous.sa_handler == SIG_IGN && !is_own_fault(info))
        return;
    if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(signo);
        return;
    }
    /* Die of the signal itself, so that the parent sees the true cause: a fault happens again on
     * return, a sent signal has to be sent again. */
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    sigaction(signo, &dfl, NULL);
    if (!is_own_fault(info))
        raise(signo);
}

static void on_sigbus(int signo, siginfo_t *info, void *ucontext)
{
    sigjmp_buf *target = guard_target;
    if (target && is_own_fault(info))
        siglongjmp(*target, 1);
    int saved = errno;
    pass_on(signo, info, ucontext);
    errno = saved;
}

int book_guard_install(void)
{
    if (atomic_load(&installed))
        return 0;
    int r = 0;
    pthread_mutex_lock(&install_lock);
    if (!atomic_load(&installed)) {
        struct sigaction action = {
            .sa_sigaction = on_sigbus,
            .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK,
        };
        sigemptyset(&action.sa_mask);
        /* `previous` is filled before the handler can need it. */
        if (sigaction(SIGBUS, NULL, &previous) < 0 || sigaction(SIGBUS, &action, NULL) < 0)
            r = -errno;
        else
            atomic_store(&installed, true);
    }
    pthread_mutex_unlock(&install_lock);
    return r;
}

int book_guard_run(int (*fn)(void *context), void *context)
{
    sigjmp_buf here;
    sigjmp_buf *const outer = guard_target;
    int r;
    if (sigsetjmp(here, 0) == 0) {
        guard_target = &here;
        r = fn(context);
    } else {
        r = -EIO;
    }
    guard_target = outer;
    return r;
}

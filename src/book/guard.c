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
#include <stdbool.h>
#include <stddef.h>

static _Thread_local sigjmp_buf *volatile guard_target;
static _Thread_local volatile bool passing; /* this thread is in the previous handler */

static pthread_mutex_t install_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction previous;

/* A fault is synchronous and has an address; kill() and machine checks of other pages are not. */
static bool is_own_fault(const siginfo_t *info)
{
    return info->si_code == BUS_ADRERR || info->si_code == BUS_OBJERR ||
           info->si_code == BUS_ADRALN || info->si_code == BUS_MCEERR_AR;
}

/* Die of the signal itself, so that the parent sees the true cause: a fault happens again on return,
 * a sent signal has to be sent again. */
static void die(int signo, const siginfo_t *info)
{
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    sigaction(signo, &dfl, NULL);
    if (!is_own_fault(info))
        raise(signo);
}

static void pass_on(int signo, siginfo_t *info, void *ucontext)
{
    if (previous.sa_flags & SA_SIGINFO)
        previous.sa_sigaction(signo, info, ucontext);
    else if (previous.sa_handler == SIG_DFL ||
             (previous.sa_handler == SIG_IGN && is_own_fault(info)))
        die(signo, info);
    else if (previous.sa_handler != SIG_IGN)
        previous.sa_handler(signo);
}

static void on_sigbus(int signo, siginfo_t *info, void *ucontext)
{
    sigjmp_buf *target = guard_target;
    if (target && is_own_fault(info))
        siglongjmp(*target, 1);
    int saved = errno;
    if (passing) {
        die(signo, info); /* the previous handler gave it back to us: nobody wants it */
    } else {
        passing = true;
        pass_on(signo, info, ucontext);
        passing = false;
    }
    errno = saved;
}

int book_guard_install(void)
{
    int r = 0;
    pthread_mutex_lock(&install_lock);
    struct sigaction now;
    if (sigaction(SIGBUS, NULL, &now) < 0) {
        r = -errno;
    } else if (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction != on_sigbus) {
        struct sigaction action = {
            .sa_sigaction = on_sigbus,
            .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK,
        };
        sigemptyset(&action.sa_mask);
        previous = now; /* filled before the handler can need it */
        if (sigaction(SIGBUS, &action, NULL) < 0)
            r = -errno;
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

/*
 * sandbox.c: a program that is about to lock itself up comes by here.
 *
 * Sandboxes for programs by themselves (seccomp) are made once all files are open, and many kill who makes a call that their list has
 * not. The list is made for glibc's malloc, which maps and unmaps; to look how scarce memory is we open files, and accounting makes its book
 * with the first block. So what has to be opened is opened before, and nothing afterwards. Who asks for a filter has to give up new privileges
 * first, or to be root, and libseccomp does so for root, too: by prctl(), whichever call then sets the filter. What was set before the
 * program began let the loader open files, too. At the end a book is left to who makes the next one.
 */
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "malloc/entry.h"
#include "malloc/lock.h"
#include "malloc/pressure.h"
#include "malloc/thread.h"
#include "track/track.h"

EXPORT int prctl(int option, ...);

/* Between vfork() and exec a child has its parent's memory. Where that is not known it is taken for a process of its own: its parent
 * then sees less, but is not killed. */
static bool is_in_vfork(void)
{
    pid_t pid = load_relaxed(&lock_page.process.pid);
    return pid != 0 && pid != getpid() && pid == getppid();
}

/* A constructor may come here before ours has run. */
static void before_sandbox(void)
{
    start_modes();
    track_lock_up();
    pressure_blind();
}

/* It came to nothing: some only ask so whether the kernel knows filters. */
static void no_sandbox(void)
{
    pressure_see();
    track_unlock();
}

int prctl(int option, ...)
{
    unsigned long args[4];
    va_list list;
    va_start(list, option);
    for (int i = 0; i < 4; i++)
        args[i] =
            va_arg(list, unsigned long); /* all, however many there are: as the C library does */
    va_end(list);
    bool locks = (option == PR_SET_SECCOMP || option == PR_SET_NO_NEW_PRIVS) && !is_in_vfork();
    if (locks)
        before_sandbox();
    int r = (int)syscall(SYS_prctl, option, args[0], args[1], args[2], args[3]);
    if (locks && r < 0)
        no_sandbox();
    return r;
}

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
#include "malloc/pressure.h"
#include "malloc/thread.h"
#include "track/track.h"

EXPORT int prctl(int option, ...);

static void before_sandbox(void)
{
    if (thread_modes & MODE_ACCOUNT)
        track_lock_up();
    pressure_blind();
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
    if (option == PR_SET_SECCOMP || option == PR_SET_NO_NEW_PRIVS)
        before_sandbox();
    return (int)syscall(SYS_prctl, option, args[0], args[1], args[2], args[3]);
}

/* descriptor.c: see descriptor.h. System calls are made by hand: those of the C library are points where a thread may be
 * cancelled, and an allocator, which looks at memory's pressure in here, is none. */
#include "book/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STANDARD = 3 };

/* Nothing can be read or written by such a descriptor: as if its number were still free. */
static int place_take(void)
{
    return (int)syscall(SYS_openat, AT_FDCWD, "/", O_PATH | O_CLOEXEC, 0);
}

/* Unless somebody has put one of his own there meanwhile. */
static void place_leave(int fd)
{
    long flags = syscall(SYS_fcntl, fd, F_GETFL, 0);
    if (flags >= 0 && flags & O_PATH)
        (void)syscall(SYS_close, fd);
}

int book_openat(int directory, const char *path, int flags, mode_t mode)
{
    int held[STANDARD], n = 0, place;
    while (n < STANDARD && (place = place_take()) >= 0) {
        if (place >= STANDARD) {
            (void)syscall(SYS_close, place);
            break;
        }
        held[n++] = place;
    }
    int fd = (int)syscall(SYS_openat, directory, path, flags | O_CLOEXEC, mode), error = errno;
    while (n > 0)
        place_leave(held[--n]);
    if (fd < 0)
        return -error;
    if (fd >= STANDARD)
        return fd;
    /* Closed since we looked, or no place was to be had. */
    int higher = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, STANDARD);
    error = errno;
    (void)syscall(SYS_close, fd);
    return higher < 0 ? -error : higher;
}

/* descriptor.c: see descriptor.h. */
#include "book/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { STANDARD = 3 };

/* Nothing can be read or written by such a descriptor: as if its number were still free. */
static int place_take(void)
{
    return open("/", O_PATH | O_CLOEXEC);
}

/* Unless somebody has put one of his own there meanwhile. */
static void place_leave(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && flags & O_PATH)
        close(fd);
}

int book_openat(int directory, const char *path, int flags, mode_t mode)
{
    int held[STANDARD], n = 0, place;
    while (n < STANDARD && (place = place_take()) >= 0) {
        if (place >= STANDARD) {
            close(place);
            break;
        }
        held[n++] = place;
    }
    int fd = openat(directory, path, flags | O_CLOEXEC, mode), error = errno;
    while (n > 0)
        place_leave(held[--n]);
    if (fd < 0)
        return -error;
    if (fd >= STANDARD)
        return fd;
    int higher = fcntl(fd, F_DUPFD_CLOEXEC,
                       STANDARD); /* closed since we looked, or no place was to be had */
    error = errno;
    close(fd);
    return higher < 0 ? -error : higher;
}

/*
 * control.c: read and write a book's control page.
 */
#include "book/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "book/reader_internal.h"

/* The same file, with a control page whose bytes are there. A write past the end or into a hole
 * would make the stranger's file grow. */
static int control_find(const struct book_reader *reader, int fd, uint64_t *ret_offset)
{
    const struct book_shape *s = &reader->shape[BOOK_SECTION_CONTROL];
    int r = book_reader_check_fd(reader, fd);
    if (r < 0)
        return r;
    struct book_live live;
    r = book_reader_live_get(reader, BOOK_SECTION_CONTROL, &live);
    if (r < 0)
        return r;
    if (live.open < sizeof(struct book_control))
        return -ENODEV;
    *ret_offset = s->offset;
    return 0;
}

static int open_writable(int fd)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int out = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    return out < 0 ? -errno : out;
}

int book_control_read(const struct book_reader *reader, int fd, struct book_control *ret_control)
{
    uint64_t offset;
    int r = control_find(reader, fd, &offset);
    if (r < 0)
        return r;
    struct book_control control;
    r = book_pread_all(fd, &control, sizeof(control), offset);
    if (r < 0)
        return r;
    *ret_control = control;
    return 0;
}

int book_control_write(const struct book_reader *reader, int fd, uint32_t flags_set,
                       uint32_t flags_clear, int32_t daemon_pid)
{
    uint64_t offset;
    int r = control_find(reader, fd, &offset);
    if (r < 0)
        return r;
    int mode = fcntl(fd, F_GETFL);
    if (mode < 0)
        return -errno;
    MEMOIR_CLEANUP(closep)
    int own = -1;
    if ((mode & O_ACCMODE) != O_RDWR) {
        own = open_writable(fd);
        if (own < 0)
            return own;
        fd = own;
        r = control_find(reader, fd, &offset);
        if (r < 0)
            return r;
    }
    struct book_control control;
    size_t len = offsetof(struct book_control, spare); /* what later versions put there stays */
    r = book_pread_all(fd, &control, len, offset);
    if (r < 0)
        return r;
    control.flags = (control.flags & ~flags_clear) | flags_set;
    control.daemon_pid = daemon_pid;
    ssize_t n = pwrite(fd, &control, len, (off_t)offset);
    if (n < 0)
        return -errno;
    return (size_t)n == len ? 0 : -EIO;
}

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

enum { FLAGS_TRIES = 16 };

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

static int write_at(int fd, const void *bytes, size_t len, uint64_t offset)
{
    ssize_t n = pwrite(fd, bytes, len, (off_t)offset);
    if (n < 0)
        return -errno;
    return (size_t)n == len ? 0 : -EIO;
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

/* Two daemons may get here at once. Each stores its own slot, then the flags of all; who stored the
 * flags last has seen both slots, or sees on looking again that he has not. */
static int flags_settle(int fd, uint64_t offset)
{
    for (int i = 0; i < FLAGS_TRIES; i++) {
        struct book_control control;
        int r = book_pread_all(fd, &control, sizeof(control), offset);
        if (r < 0)
            return r;
        uint32_t flags = control.flags_more;
        for (size_t k = 0; k < BOOK_WATCHERS; k++)
            flags |= control.watchers[k].pid ? control.watchers[k].flags : 0;
        if (flags == control.flags)
            return 0;
        r = write_at(fd, &flags, sizeof(flags), offset + offsetof(struct book_control, flags));
        if (r < 0)
            return r;
    }
    return -EBUSY;
}

/* A descriptor of the same book that can be written, for close(), and where its page is. */
static int find_writable(const struct book_reader *reader, int fd, uint64_t *ret_offset)
{
    int r = control_find(reader, fd, ret_offset);
    if (r < 0)
        return r;
    int mode = fcntl(fd, F_GETFL);
    if (mode < 0)
        return -errno;
    if ((mode & O_ACCMODE) == O_RDWR) {
        int same = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        return same < 0 ? -errno : same;
    }
    MEMOIR_CLEANUP(closep)
    int own = open_writable(fd);
    if (own < 0)
        return own;
    r = control_find(reader, own, ret_offset);
    return r < 0 ? r : MEMOIR_TAKE_FD(own);
}

int book_control_ask(const struct book_reader *reader, int any_fd, uint32_t mask, uint32_t flags)
{
    uint64_t offset;
    MEMOIR_CLEANUP(closep)
    int fd = find_writable(reader, any_fd, &offset);
    struct book_control control;
    if (fd < 0)
        return fd;
    int r = book_pread_all(fd, &control, sizeof(control), offset);
    if (r < 0)
        return r;
    uint32_t more = (control.flags_more & ~mask) | (flags & mask);
    r = write_at(fd, &more, sizeof(more), offset + offsetof(struct book_control, flags_more));
    return r < 0 ? r : flags_settle(fd, offset);
}

int book_control_close(const struct book_reader *reader, int any_fd, uint64_t close_sites)
{
    uint64_t offset;
    MEMOIR_CLEANUP(closep)
    int fd = find_writable(reader, any_fd, &offset);
    if (fd < 0)
        return fd;
    return write_at(fd, &close_sites, sizeof(close_sites),
                    offset + offsetof(struct book_control, close_sites));
}

int book_control_write(const struct book_reader *reader, int any_fd, enum book_watcher_slot slot,
                       const struct book_watcher *watcher)
{
    uint64_t offset;
    MEMOIR_CLEANUP(closep)
    int fd = find_writable(reader, any_fd, &offset);
    if (fd < 0)
        return fd;
    struct book_watcher value = watcher ? *watcher : (struct book_watcher){0};
    int r = write_at(fd, &value, sizeof(value),
                     offset + offsetof(struct book_control, watchers) + slot * sizeof(value));
    return r < 0 ? r : flags_settle(fd, offset);
}

/* republish.c: a book takes the file of the one that it was copied from. See writer.h. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "book/writer.h"

struct target {
    int fd;
    uint64_t at; /* end of the last stretch */
};

/* Pages that are there stay as they are; what is missing is zero, which means "nothing" to readers. */
static int reserve_stretch(void *context, uint64_t offset, uint64_t bytes)
{
    struct target *target = context;
    if (offset < target->at)
        return -EINVAL; /* clearing what lies between needs them in order */
    target->at = offset + bytes;
    return fallocate(target->fd, 0, (off_t)offset, (off_t)bytes) < 0 ? -errno : 0;
}

static int clear(int fd, uint64_t from, uint64_t to)
{
    return to > from && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
                                  (off_t)(to - from)) < 0
               ? -errno
               : 0;
}

static int clear_before(void *context, uint64_t offset, uint64_t bytes)
{
    struct target *target = context;
    uint64_t from = target->at;
    target->at = offset + bytes;
    return clear(target->fd, from, offset);
}

int book_writer_publish_over(struct book_writer *w, int fd, const char *name)
{
    static const char no_magic[8];
    struct stat st;
    if (strlen(name) >= sizeof(w->name))
        return -ENAMETOOLONG;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 || fstat(fd, &st) < 0)
        return -errno;
    struct target target = {.fd = fd};
    int r = book_writer_each_open(w, reserve_stretch, &target);
    if (r < 0)
        return r;
    /* From here on it is the new book or none. */
    if (pwrite(fd, no_magic, sizeof(no_magic), 0) != sizeof(no_magic))
        return -EIO;
    target.at = 0;
    r = book_writer_each_open(w, clear_before, &target);
    if (r == 0)
        r = clear(fd, target.at, (uint64_t)st.st_size);
    if (r == 0)
        r = book_writer_fill(w, fd);
    if (r == 0)
        strcpy(w->name, name);
    return r;
}

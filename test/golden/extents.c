/* A sparse book to its compact form and back: extents dump BOOK FILE, extents expand FILE BOOK. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "../unit/book_extents.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "book/reader.h"

static int dump(const char *book, const char *file)
{
    MEMOIR_CLEANUP(closep)
    int fd = open(book, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    struct extents e = extents_dump(fd);
    int r = fs_write_file_atomic(file, e.bytes, e.len, 0644);
    free(e.bytes);
    return r;
}

static int expand(const char *file, const char *book)
{
    struct buffer b = BUFFER_INIT(64u << 20);
    int r = fs_read_file(file, &b);
    MEMOIR_CLEANUP(closep)
    int fd = open(book, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (r == 0 && fd < 0)
        r = -errno;
    if (r == 0)
        extents_apply(fd, (const uint8_t *)buffer_string(&b), b.len, false, BOOK_READER_FILE_MAX);
    buffer_release(&b);
    return r;
}

int main(int argc, char **argv)
{
    int r;
    if (argc == 4 && strcmp(argv[1], "dump") == 0) {
        r = dump(argv[2], argv[3]);
    } else if (argc == 4 && strcmp(argv[1], "expand") == 0) {
        r = expand(argv[2], argv[3]);
    } else {
        fprintf(stderr, "usage: extents dump BOOK FILE | extents expand FILE BOOK\n");
        return 2;
    }
    if (r < 0)
        fprintf(stderr, "extents: %s\n", strerror(-r));
    return r < 0;
}

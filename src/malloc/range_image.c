/* range_image.c: see range_image.h. */
#include "malloc/range_image.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"

static int write_all(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, data, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        data += n;
        bytes -= (size_t)n;
    }
    return 0;
}

int image_flush(struct image_stream *s)
{
    size_t n = s->n;
    s->n = 0;
    return write_all(s->fd, s->buffer, n);
}

int image_put(struct image_stream *s, const void *data, size_t bytes)
{
    s->check = hash_bytes(data, bytes, s->check);
    if (bytes > sizeof(s->buffer) - s->n) {
        int r = image_flush(s);
        if (r < 0 || bytes > sizeof(s->buffer))
            return r < 0 ? r : write_all(s->fd, data, bytes);
    }
    memcpy(s->buffer + s->n, data, bytes);
    s->n += bytes;
    return 0;
}

int image_get(struct image_stream *s, void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = read(s->fd, (char *)data + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EBADMSG;
        done += (size_t)n;
    }
    s->check = hash_bytes(data, bytes, s->check);
    return 0;
}

uint64_t image_header_check(const struct image_header *h)
{
    return hash_bytes(h, offsetof(struct image_header, check), IMAGE_VERSION);
}

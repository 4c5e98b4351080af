/* gzip by zlib. See gzip.h. */
#include "http/gzip.h"

#include <errno.h>
#include <stdint.h>
#include <zlib.h>

#include "base/buffer.h"

enum {
    LEVEL =
        1, /* tables of figures shrink to a fifth already; level 6 takes four times as long for a tenth more */
    WINDOW_GZIP = 15 + 16,
    MEMORY = 8,
    EXPAND_STEP = 64 << 10,
};

int gzip_compress(const void *data, size_t len, struct buffer *out)
{
    z_stream stream = {.next_in = (Bytef *)data, .avail_in = (uInt)len};
    if (len > UINT32_MAX ||
        deflateInit2(&stream, LEVEL, Z_DEFLATED, WINDOW_GZIP, MEMORY, Z_DEFAULT_STRATEGY) != Z_OK)
        return -ENOMEM;
    char *to = buffer_reserve(out, len);
    int r = to ? 0 : out->error;
    if (to) {
        stream.next_out = (Bytef *)to;
        stream.avail_out = (uInt)len;
        r = deflate(&stream, Z_FINISH) == Z_STREAM_END ? 0 : -ENOBUFS;
    }
    if (r == 0)
        buffer_commit(out, len - stream.avail_out);
    deflateEnd(&stream);
    return r;
}

int gzip_expand(const void *data, size_t len, struct buffer *out)
{
    z_stream stream = {.next_in = (Bytef *)data, .avail_in = (uInt)len};
    if (len > UINT32_MAX || inflateInit2(&stream, WINDOW_GZIP) != Z_OK)
        return -ENOMEM;
    int r = 0, state = Z_OK;
    while (r == 0 && state == Z_OK) {
        char *to = buffer_reserve(out, EXPAND_STEP);
        r = to ? 0 : out->error;
        if (!to)
            break;
        stream.next_out = (Bytef *)to;
        stream.avail_out = EXPAND_STEP;
        state = inflate(&stream, Z_NO_FLUSH);
        if (state != Z_OK && state != Z_STREAM_END)
            r = -EBADMSG;
        else
            buffer_commit(out, EXPAND_STEP - stream.avail_out);
    }
    inflateEnd(&stream);
    return r;
}

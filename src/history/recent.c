/* Rows of `recent`. See recent.h. */
#include "history/recent.h"

#include <errno.h>

#include "base/buffer.h"
#include "history/pack.h"

enum { VARINT_MAX = 10 };

static size_t varint_put(uint8_t to[static VARINT_MAX], uint64_t v)
{
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        to[n++] = (uint8_t)(v | 0x80);
    to[n++] = (uint8_t)v;
    return n;
}

static int varint_get(struct recent_cursor *c, uint64_t *ret)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64 && c->at < c->len; shift += 7) {
        uint8_t byte = c->data[c->at++];
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *ret = v;
            return 0;
        }
    }
    return -EBADMSG;
}

int recent_append(struct buffer *out, uint64_t before, uint64_t series, const void *chunk,
                  size_t len)
{
    uint8_t head[2 * VARINT_MAX];
    size_t n = varint_put(head, series - before);
    n += varint_put(head + n, len);
    buffer_append(out, head, n);
    return buffer_append(out, chunk, len);
}

int recent_next(struct recent_cursor *cursor)
{
    uint64_t step, len;
    if (cursor->at == cursor->len)
        return 0;
    if (varint_get(cursor, &step) < 0 || varint_get(cursor, &len) < 0)
        return -EBADMSG;
    if (step == 0 || __builtin_add_overflow(cursor->series, step, &cursor->series) ||
        len > PACK_BYTES_MAX || len > cursor->len - cursor->at)
        return -EBADMSG;
    cursor->chunk = cursor->data + cursor->at;
    cursor->chunk_len = len;
    cursor->at += len;
    return 1;
}

/* Integers of variable length: 7 bits a byte, the lowest first, the top bit set in all but the last. Used by
 * our snapshots and by protocol buffers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

enum { VARINT_BYTES_MAX = 10 };

static inline void varint_put(struct buffer *out, uint64_t value)
{
    char bytes[VARINT_BYTES_MAX];
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[n++] = (char)(0x80 | (value & 0x7f));
    bytes[n++] = (char)value;
    buffer_append(out, bytes, n);
}

/* Bytes of anybody. After the first that make no sense `bad` stays set and all further ones are 0. */
struct varint_reader {
    const uint8_t *at, *end;
    bool bad;
};

static inline struct varint_reader varint_reader(const void *data, size_t len)
{
    const uint8_t *start = data;
    return (struct varint_reader){start, start + len, false};
}

static inline size_t varint_left(const struct varint_reader *in)
{
    return (size_t)(in->end - in->at);
}

static inline uint64_t varint_take(struct varint_reader *in)
{
    uint64_t value = 0;
    for (unsigned shift = 0; !in->bad; shift += 7) {
        if (in->at == in->end || shift > 63 || (shift == 63 && *in->at > 1))
            break;
        uint8_t byte = *in->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    in->bad = true;
    return 0;
}

/* `len` bytes as they are; NULL if there are fewer. */
static inline const uint8_t *varint_bytes(struct varint_reader *in, size_t len)
{
    if (in->bad || len > varint_left(in)) {
        in->bad = true;
        return NULL;
    }
    in->at += len;
    return in->at - len;
}

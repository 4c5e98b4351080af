/* The few things of protocol buffers that a writer of messages needs. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "base/buffer.h"
#include "base/varint.h"

enum { PROTOBUF_VARINT = 0, PROTOBUF_BYTES = 2 };

/* A number; 0 is what is there when nothing is said. */
static inline void protobuf_number(struct buffer *out, unsigned field, uint64_t value)
{
    if (!value)
        return;
    varint_put(out, field << 3 | PROTOBUF_VARINT);
    varint_put(out, value);
}

static inline void protobuf_bytes(struct buffer *out, unsigned field, const void *data, size_t len)
{
    varint_put(out, field << 3 | PROTOBUF_BYTES);
    varint_put(out, len);
    buffer_append(out, data, len);
}

/* A message, or packed numbers, that was written into a buffer of its own. */
static inline void protobuf_message(struct buffer *out, unsigned field, struct buffer *message)
{
    protobuf_bytes(out, field, buffer_string(message), message->len);
    if (message->error && !out->error)
        out->error = message->error;
    buffer_reset(message);
}

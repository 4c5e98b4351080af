/* A row of `recent`: what one flush brought, points of many series in one window.
 *
 * The bytes are entries in the order of their series: the difference to the series before, the length, and
 * a packed chunk; both numbers as little-endian base 128. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct buffer;

/* Append one entry; `before` is the series of the one before, or 0. Returns the buffer's error. */
int recent_append(struct buffer *out, uint64_t before, uint64_t series, const void *chunk,
                  size_t len);

/* Walks over the entries of bytes that may be anything. */
struct recent_cursor {
    const uint8_t *data;
    size_t len, at;
    uint64_t series; /* the current entry's */
    const uint8_t *chunk;
    size_t chunk_len;
};

/* 1 and the next entry, 0 at the end, -EBADMSG when the bytes make no sense. */
int recent_next(struct recent_cursor *cursor);

/* Bytes as text in 64 characters (RFC 4648, with padding), for binary parts of JSON documents. */
#pragma once

#include <stddef.h>

struct buffer;

/* Append the text of `len` bytes. 0 or the buffer's error. */
int base64_append(struct buffer *out, const void *bytes, size_t len);

/* Append the bytes of a text. -EINVAL for anything that base64_append() does not write, or the buffer's error; `out` may
 * then hold some of them. */
int base64_decode(struct buffer *out, const char *text, size_t len);

/* Compressing answers as HTTP wants it. */
#pragma once

#include <stddef.h>

struct buffer;

/* Append `data` as a gzip member to `out`. -ENOBUFS when it would not be smaller than it was. */
int gzip_compress(const void *data, size_t len, struct buffer *out);
/* And the other way; -EBADMSG for what is none. */
int gzip_expand(const void *data, size_t len, struct buffer *out);

/* A growable byte buffer with a limit.
 *
 * Errors stick: after the first failure every append does nothing and returns the same error, so a
 * long document is written without a check per line and checked once at the end. Nothing is ever cut
 * short silently: an append that does not fit leaves the buffer as it was and sets the error. */
#pragma once

#include <assert.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

struct buffer {
    char *data;   /* NULL until the first append; else NUL-terminated at data[len] */
    size_t len;   /* bytes in use */
    size_t cap;   /* bytes allocated, terminator included; never more than limit + 1 */
    size_t limit; /* len never passes it */
    int error;    /* 0, -ENOMEM, or -ENOBUFS when the limit was reached */
};

#define BUFFER_INIT(limit_bytes) ((struct buffer){.limit = (limit_bytes)})

/* Nothing is allocated before the first append. */
void buffer_init(struct buffer *b, size_t limit_bytes);

/* Gives the memory back; the buffer can be used again, with the same limit. */
void buffer_release(struct buffer *b);

/* Empty it and forget its error, keeping the memory for the next document. */
void buffer_reset(struct buffer *b);

char *buffer_reserve_grow(struct buffer *b, size_t len); /* the slow path of buffer_reserve() */

/* Room for `len` more bytes at the end, to be filled by the caller and then made part of the buffer
 * by buffer_commit(), whole or in part. NULL on error. */
static inline char *buffer_reserve(struct buffer *b, size_t len)
{
    /* Where there is room it is within the limit. */
    if (b->error || len >= b->cap - b->len)
        return buffer_reserve_grow(b, len);
    return b->data + b->len;
}

/* That about `len` more bytes will come: they get their room at once, where that can be had. No error where not. */
void buffer_expect(struct buffer *b, size_t len);

static inline void buffer_commit(struct buffer *b, size_t len)
{
    assert(len < b->cap - b->len);
    b->len += len;
    b->data[b->len] = '\0';
}

/* Each returns 0 or the (sticky) error. The caller keeps what it passes. */
static inline int buffer_append(struct buffer *b, const void *data, size_t len)
{
    char *to = buffer_reserve(b, len);
    if (!to)
        return b->error;
    if (len > 0)
        memcpy(to, data, len);
    buffer_commit(b, len);
    return 0;
}

static inline int buffer_append_char(struct buffer *b, char c)
{
    return buffer_append(b, &c, 1);
}

static inline int buffer_append_str(struct buffer *b, const char *s)
{
    return buffer_append(b, s, strlen(s));
}

int buffer_printf(struct buffer *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int buffer_vprintf(struct buffer *b, const char *fmt, va_list args)
    __attribute__((format(printf, 2, 0)));

/* The content as a string ("" when empty); borrowed, good until the next append. */
const char *buffer_string(const struct buffer *b);

/* Gives the memory to the caller as a string for free(), and empties the buffer. It is not much more than the string
 * takes: at most twice as much, while memory can be had. NULL on error, with the buffer as it was. */
char *buffer_take(struct buffer *b);

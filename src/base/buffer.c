/* The growable buffer: doubling, always one byte spare for the terminator. */
#include "base/buffer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Fits most log lines and small answers in one allocation. */
#define FIRST_CAP 256

void buffer_init(struct buffer *b, size_t limit_bytes)
{
    *b = BUFFER_INIT(limit_bytes);
}

void buffer_release(struct buffer *b)
{
    free(b->data);
    buffer_init(b, b->limit);
}

void buffer_reset(struct buffer *b)
{
    b->len = 0;
    b->error = 0;
    if (b->data)
        b->data[0] = '\0';
}

static int fail(struct buffer *b, int error)
{
    b->error = error;
    return error;
}

/* Make data[len .. len + more] ours, terminator included. */
static int grow(struct buffer *b, size_t more)
{
    if (b->error)
        return b->error;
    if (more > b->limit - b->len)
        return fail(b, -ENOBUFS);
    size_t need = b->len + more + 1;
    if (need == 0) /* a limit of SIZE_MAX leaves no room for the terminator */
        return fail(b, -ENOBUFS);
    if (need <= b->cap)
        return 0;
    size_t cap = b->cap ? b->cap : FIRST_CAP;
    while (cap < need)
        cap = cap > (size_t)-1 / 2 ? need : cap * 2;
    /* Near the limit, doubling would hold memory that can never be used. */
    if (b->limit < (size_t)-1 && cap > b->limit + 1)
        cap = b->limit + 1;
    char *data = realloc(b->data, cap);
    if (!data)
        return fail(b, -ENOMEM);
    b->data = data;
    b->cap = cap;
    return 0;
}

char *buffer_reserve_grow(struct buffer *b, size_t len)
{
    return grow(b, len) < 0 ? NULL : b->data + b->len;
}

void buffer_expect(struct buffer *b, size_t len)
{
    if (b->error || len > b->limit - b->len)
        return;
    (void)grow(b, len);
    b->error = 0; /* whoever needs the room asks for it himself */
}

int buffer_vprintf(struct buffer *b, const char *fmt, va_list args)
{
    if (b->error)
        return b->error;
    /* Try in the room there is: one pass is the common case. */
    size_t room = b->cap - b->len;
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(b->data ? b->data + b->len : NULL, room, fmt, again);
    va_end(again);
    if (n >= 0 && (size_t)n < room && (size_t)n <= b->limit - b->len) {
        b->len += (size_t)n;
        return 0;
    }
    if (b->data)
        b->data[b->len] = '\0'; /* take back the half-printed try */
    if (n < 0)
        return fail(b, -errno);
    if (grow(b, (size_t)n) < 0)
        return b->error;
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, args);
    buffer_commit(b, (size_t)n);
    return 0;
}

int buffer_printf(struct buffer *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int r = buffer_vprintf(b, fmt, args);
    va_end(args);
    return r;
}

const char *buffer_string(const struct buffer *b)
{
    return b->data ? b->data : "";
}

char *buffer_take(struct buffer *b)
{
    if (grow(b, 0) < 0)
        return NULL;
    b->data[b->len] = '\0';
    char *data = b->data, *fitted = NULL;
    /* Whoever takes it may keep it for long, and counts its length. */
    if (b->cap / 2 > b->len + 1)
        fitted = realloc(data, b->len + 1);
    buffer_init(b, b->limit);
    return fitted ? fitted : data;
}

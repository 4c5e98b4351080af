/* tracer_public.h: structs that begin with struct_size, taken from and given to callers that may know a smaller or a larger one. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { PUBLIC_STRUCT_MAX = 1 << 16 };

/* 0: not a size. */
static inline size_t public_size(const void *s)
{
    size_t size = 0;
    if (s)
        memcpy(&size, s, sizeof(size));
    return size >= sizeof(size_t) && size <= PUBLIC_STRUCT_MAX ? size : 0;
}

/* The caller's struct as ours: what it does not know is zero. */
static inline bool public_take(void *to, size_t size, const void *from)
{
    size_t given = public_size(from);
    if (!given)
        return false;
    memset(to, 0, size);
    memcpy(to, from, given < size ? given : size);
    return true;
}

/* Element i of an array whose first element says how large each is. */
static inline void public_put(void *array, size_t stride, size_t i, const void *from, size_t size)
{
    char *to = (char *)array + i * stride;
    memcpy(to, from, stride < size ? stride : size);
    memcpy(to, &stride, sizeof(stride));
}

static inline int public_give(void *to, const void *from, size_t size)
{
    size_t wanted = public_size(to);
    if (!wanted)
        return -EINVAL;
    public_put(to, wanted, 0, from, size);
    return 0;
}

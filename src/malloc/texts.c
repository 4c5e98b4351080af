/*
 * texts.c: functions of the C library on text, in the shared library alone, for the same reason as those of calls.c: the loader looks up
 * every name that we import whenever a program starts, and has a page or two of ours more to read for it. These are called
 * where settings, files of the kernel and books are read: never where blocks are given out, so they are as plain as can be. What
 * blocks are copied and compared with stays the C library's.
 *
 * The compiler must not take their loops for what they are (meson.build): it would have them call themselves.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "malloc/settings.h"

void *memchr(const void *bytes, int wanted, size_t n)
{
    const unsigned char *at = bytes, *end = at + n;
    for (; at < end; at++)
        if (*at == (unsigned char)wanted)
            return (void *)(uintptr_t)at;
    return NULL;
}

void *memrchr(const void *bytes, int wanted, size_t n)
{
    const unsigned char *at = bytes;
    while (n-- > 0)
        if (at[n] == (unsigned char)wanted)
            return (void *)(uintptr_t)(at + n);
    return NULL;
}

void *memmem(const void *bytes, size_t n, const void *wanted, size_t length)
{
    const char *at = bytes;
    for (; n >= length; at++, n--)
        if (memcmp(at, wanted, length) == 0)
            return (void *)(uintptr_t)at;
    return NULL;
}

int strncmp(const char *a, const char *b, size_t n)
{
    for (; n > 0; a++, b++, n--)
        if (*a != *b || !*a)
            return (unsigned char)*a - (unsigned char)*b;
    return 0;
}

int strcmp(const char *a, const char *b)
{
    return strncmp(a, b, SIZE_MAX);
}

/* The end is found as well. */
char *strchr(const char *text, int wanted)
{
    for (; *text != (char)wanted; text++)
        if (!*text)
            return NULL;
    return (char *)(uintptr_t)text;
}

char *strrchr(const char *text, int wanted)
{
    return memrchr(text, wanted, strlen(text) + 1);
}

char *strstr(const char *text, const char *wanted)
{
    return memmem(text, strlen(text), wanted, strlen(wanted));
}

size_t strcspn(const char *text, const char *ends)
{
    size_t n = 0;
    while (!strchr(ends, text[n]))
        n++;
    return n;
}

char *secure_getenv(const char *name)
{
    return getauxval(AT_SECURE) ? NULL : (char *)(uintptr_t)settings_variable(name);
}

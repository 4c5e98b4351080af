/* Scope cleanup: what a function owns is given back on every way out of it, so error paths stay
 * short.
 *
 *     MEMOIR_CLEANUP(history_freep) struct history *h = NULL;
 *     int r = history_new(path, &h);
 *     if (r < 0)
 *         return r;
 *     *ret_history = MEMOIR_TAKE(h);
 *     return 0;
 *
 * The cleanup function gets a pointer to the variable; initialise the variable where it is declared,
 * because the function runs even when the scope is left one line later. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MEMOIR_CLEANUP(fn) __attribute__((cleanup(fn)))

/* The value of pointer `p`, which forgets it: ownership moves to whoever gets the value. */
#define MEMOIR_TAKE(p)                               \
    ({                                               \
        __typeof__(p) *memoir_take_ = &(p);          \
        __typeof__(p) memoir_taken_ = *memoir_take_; \
        *memoir_take_ = NULL;                        \
        memoir_taken_;                               \
    })

/* The same for a file descriptor, where "none" is -1. */
#define MEMOIR_TAKE_FD(fd)                 \
    ({                                     \
        int *memoir_take_ = &(fd);         \
        int memoir_taken_ = *memoir_take_; \
        *memoir_take_ = -1;                \
        memoir_taken_;                     \
    })

/* Define `name(T *p)`, which calls `fn(*p)` when *p is not NULL. */
#define MEMOIR_DEFINE_CLEANUP(type, name, fn) \
    static inline void name(type *p)          \
    {                                         \
        if (*p)                               \
            fn(*p);                           \
    }                                         \
    struct memoir_swallow_semicolon

/* For memory from malloc. Takes void * so that it fits a variable of any pointer type. */
static inline void freep(void *p)
{
    free(*(void **)p);
}

/* For a descriptor, -1 meaning none. Leaves errno alone: the caller may still want to report it. */
static inline void closep(int *fd)
{
    if (*fd < 0)
        return;
    int saved = errno;
    close(*fd);
    errno = saved;
}

/* For a stream; errors of the last flush are lost, so check fflush() where they matter. */
static inline void fclosep(FILE **f)
{
    if (*f)
        fclose(*f);
}

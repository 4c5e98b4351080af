/* Who may have one more of what all users share, such as connections?
 *
 * A part is kept for root, and one for users who have few or none: whoever fills all the rest, root can still look, and
 * every other user still gets in. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
    SHARE_PART = 8,         /* each reserve is an eighth of all, */
    SHARE_ROOT_MAX = 64,    /* at most so many */
    SHARE_USERS_MAX = 1024, /* the same for users who have few */
    SHARE_FEW = 64,         /* few is a 64th of all, but at least one, */
    SHARE_FEW_MAX = 16,     /* and at most so many */
};

static inline size_t share_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* `all` of `max` are taken, `own` of them by the user in question. */
static inline bool share_fits(size_t all, size_t own, size_t max, bool is_root)
{
    size_t root = share_least(max / SHARE_PART, SHARE_ROOT_MAX);
    size_t users = share_least(max / SHARE_PART, SHARE_USERS_MAX);
    size_t few = share_least(max / SHARE_FEW ? max / SHARE_FEW : 1, SHARE_FEW_MAX);
    return all < max - (is_root ? 0 : own < few ? root : root + users);
}

/* /run/memoir belongs to root, but every user may make names in it: also those of others, who then have no
 * place for their books. */
#pragma once

#include <stddef.h>

/* Take away from the directory `path`, which must be root's own, what has the number of a user for a name
 * and is neither his nor root's: removed if it is empty or no directory, else renamed out of the way.
 * Links are not followed. How many there were, or -errno. */
int squat_clear(const char *path);

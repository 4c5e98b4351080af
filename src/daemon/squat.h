/* In /run/memoir, and in a --dir that all users can write to, every user may make names, also those of other
 * users, who then have no place for their books. */
#pragma once

#include <stddef.h>

/* Remove from the directory `path` entries whose name is the number of a user and that belong neither to that
 * user nor to root: deleted if empty or no directory, else renamed. The directory must be our own user's, else
 * -EPERM; unless we are root, only our own number counts. Links are not followed. How many there were, or
 * -errno. */
int squat_clear(const char *path);

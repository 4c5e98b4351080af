/* Files that no user can make hang.
 *
 * A process that reads or only closes a file of FUSE waits for the program that serves it, and no signal ends that wait. A user
 * can mount FUSE in a namespace of its own, and overlayfs above it, which hides it. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* May a file be opened, seen from the file system that it lies on? `path_fd` names it (O_PATH). FUSE: no. Overlayfs:
 * only if mounted in our own mount namespace, or in that of `pid` (0: none) where that is no user's. */
bool steady_file(int path_fd, pid_t pid);

/* pins.h: directories of bpffs in which maps and links outlive their observer. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { PINS_PATH_MAX = 128 };

/* The directory for pins called `name`, made if need be, with its lock held by the descriptor *ret_lock. Mounts a bpffs where
 * there is none, or none in which the directory of that name is ours. Removes lock files that killed observers left. -EBUSY: another observer has it. */
int pins_open(const char *name, char path[static PINS_PATH_MAX], int *ret_lock);

/* Make sure that tracepoints of system calls can be attached to: mounts a tracefs where there is none. 0 or -errno. */
int pins_tracefs(void);

/* Remove all that is pinned there, if the directory is ours. */
void pins_empty(const char *path);

/* The same, and the directory. */
void pins_remove(const char *path);

/* Let go the lock of the directory `path` and remove its file. */
void pins_unlock(const char *path, int lock);

/* See kernel_orphans(). */
int pins_orphans(const char *only, bool remove, void (*each)(void *context, const char *name),
                 void *context);

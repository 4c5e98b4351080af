/* memoird among other programs: one instance, a pid file, the background, and systemd. */
#pragma once

#include <sys/types.h>

/* Lock `name` in the directory so that a second memoird cannot have it. The descriptor, which keeps the
 * lock; -EBUSY when another one holds it, whose pid (0: unknown) is then in ret_holder. A file of
 * another user in the way is removed if we may. */
int service_lock(int dirfd, const char *name, pid_t *ret_holder);

/* Remove the lock files in the directory `path` that begin with `prefix` and that no process holds. */
void service_lock_sweep(const char *path, const char *prefix);

/* Write our pid to `path`. */
int service_pid_file(const char *path);

/* ---- background ---- */

/* Fork; the parent waits for service_ready() and then ends with status 0, or ends with the status of a
 * child that gave up. Returns in the child. */
int service_background(void);

/* Everything works: tell the waiting parent (and then let go of the terminal) and systemd. */
void service_ready(const char *status);

/* Tell systemd something: "STOPPING=1", "RELOADING=1\nMONOTONIC_USEC=...". Without NOTIFY_SOCKET, and
 * when it does not listen, nothing happens. */
void service_notify(const char *state);
void service_notify_reloading(void);

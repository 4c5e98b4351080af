/* A time limit that a process sets itself. At its end the kernel kills the process, also one that somebody stopped
 * (SIGSTOP): a signal with another number would wait until the process goes on.
 *
 * One for each process; not inherited by fork(). */
#pragma once

#include <stdint.h>

/* Make it, without a limit yet. Call it before the process becomes another user, who may have used up its share of
 * queued signals. 0 or -errno. */
int deadline_make(void);

/* End this process in so many milliseconds; 0: no limit. Replaces the limit before. */
void deadline_set(uint64_t ms);

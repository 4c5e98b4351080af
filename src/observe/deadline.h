/* deadline.h: system calls that another process can make hang.
 *
 * Reading a file of a user's own file system (FUSE), or memory that somebody else is to fill (userfaultfd), lasts until that one
 * answers, and nothing but SIGKILL ends the wait. Such a call is made by a worker thread. If it takes longer than
 * DEADLINE_MS, the worker is left behind with all that it uses, the caller goes on, and a new worker takes the next call. When a
 * worker that was left behind comes back it ends by itself. Their number is limited, in all and for each user whose files and
 * memory they wait for: beyond it calls for that user fail at once.
 *
 * One caller at a time. A call costs about 10 us more than without. */
#pragma once

#include <stdint.h>

enum { DEADLINE_MS = 200, DEADLINE_OWNER_MAX = 2, DEADLINE_LOST_MAX = 64 };

struct deadline;

/* What is to be done. From malloc(); the front of a larger struct with arguments and results. */
struct deadline_job {
    void (*run)(struct deadline_job *job); /* in the worker; touches nothing but the job */
};

int deadline_new(struct deadline **ret_deadline);
void deadline_free(struct deadline *deadline); /* NULL is fine. Waits for nobody */

/* For `owner`, a user. 0: done, the job is the caller's again. -ETIME: it took too long, the job is gone. -EBUSY: too many were left behind, -ENOMEM,
 * -EAGAIN: no thread; nothing was done and the job is the caller's. */
int deadline_run(struct deadline *deadline, uint32_t owner, struct deadline_job *job);

/* Workers that were left behind and have not come back. */
uint32_t deadline_lost(struct deadline *deadline);

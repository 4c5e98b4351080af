/* The broker: a small process of root's memoird that acts as other users.
 *
 * Root's memoird opens files and reads memory for users who may do less than root. What a user may reach is decided by the
 * kernel, not by checks of ours: the broker forks a child, the child becomes the user (uid, groups, no capabilities) and
 * tries. Only the broker has CAP_SETUID and CAP_SETGID, and it has no other capabilities; memoird gives both up once the
 * broker runs. It also starts the worker that reads debug information, which has to become nobody.
 *
 * A user can make an open or a read hang for ever (a file system of its own) and can stop or kill a process that has its
 * uid. So a child serves one thread of memoird and one user, children are bounded per user and in all (BROKER_...), the kernel ends
 * them when their time is up (base/deadline.h), and no caller waits for them longer than for one answer. The time that they take is
 * charged to the user (broker_account.h). What a child sends is as trustworthy as its user.
 *
 * Any thread, up to BROKER_THREADS_MAX of them between two calls of broker_rest(). No thread waits for the question of another. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "site/symbols.h"

enum {
    BROKER_USER_MAX =
        4, /* children of one user (base/accountable.h) at a time; hung ones count until they are gone */
    BROKER_WORKERS_MAX = 16, /* symbol workers at a time, for which there is always a place, */
    BROKER_ALL_MAX = 256,    /* and all children */
    BROKER_THREADS_MAX = 16, /* that ask */
    BROKER_OPEN_MS = 5000,   /* for one open, on a busy machine, too */
    BROKER_IDLE_MS = 2000,   /* after which a child without questions ends */
};

struct broker;
struct explain;
struct heap_ages_found;
struct heap_ages_wish;
struct heap_scan_found;
struct heap_scan_wish;
struct symbol_worker_setup;

/* Call it before there are threads and open files. As root: forks the broker, then gives up CAP_SETUID and CAP_SETGID
 * for good, whether or not that worked. 0; -EPERM without these capabilities; -errno. As another user: 0 and NULL. */
int broker_start(struct broker **ret_broker);
void broker_free(struct broker *broker); /* NULL is fine */

/* All below: -EPERM without a broker (NULL) or for uid 0; -ETIMEDOUT, also for a while after the account of the user was used up;
 * -ECHILD: the child ended, or too many of this user hang already; -EBUSY: too many threads ask; -EPIPE: the broker is gone; what the
 * user gets from the kernel. */

/* Open a regular file as a user: a descriptor. What a process has mapped (wanted->mapped) is opened only if the user may
 * trace that process. Files that can hang are refused (-EOPNOTSUPP; daemon/steady_file.h). */
int broker_open(struct broker *broker, uint32_t uid, const struct symbol_wanted *wanted);

/* The child that answered this thread stays for its next question about the same user and process; let it end now. Each thread calls
 * this when it has no more questions for the moment. */
void broker_rest(struct broker *broker);

/* Search the heap of a process as a user, who must be allowed to trace it. */
int broker_ages(struct broker *broker, uint32_t uid, const struct heap_ages_wish *wish,
                uint32_t timeout_ms, struct heap_ages_found *ret_found);

/* Stop a process and look for lost blocks of its heap as a user, who must be allowed to trace it. */
int broker_scan(struct broker *broker, uint32_t uid, const struct heap_scan_wish *wish,
                uint32_t timeout_ms, struct heap_scan_found *ret_found);

/* Explain the resident memory of a process as a user, who must be allowed to read its smaps; and the processor's time that it took, for
 * NULL not. */
int broker_explain(struct broker *broker, uint32_t uid, int32_t pid, uint32_t timeout_ms,
                   struct explain *ret_explain, uint64_t *ret_cpu_ns);

/* Start a process that calls symbol_worker_serve() with a copy of `fd`. */
int broker_worker(struct broker *broker, int fd, const struct symbol_worker_setup *setup);

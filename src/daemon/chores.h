/* Threads for what may block: symbols, whole books, the memory of a process.
 *
 * Each chore belongs to a user (base/accountable.h). Chores run in lanes, which are threads that are started when they are needed. A
 * free lane takes the next chore of the user whose last one is longest ago; those of one user run in the order in which they
 * came. A user has one chore at a time (root: CHORES_ROOT_MAX), so a chore that waits for something a user controls delays no chore
 * of another user. Users whose chores took much time lately share half of the lanes: a few of them cannot take all.
 *
 * The caller of chores_add() prepares everything that belongs to the loop's thread before. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct chores;

enum {
    CHORES_LANES_MAX = 8,
    CHORES_ROOT = 0,           /* as `user`: viewers who see all, */
    CHORES_ROOT_MAX = 2,       /* who may have so many chores at a time */
    CHORES_WAITING_MAX = 1024, /* of all users */
    CHORES_USER_MAX = 32,  /* of them of one user, while less than half of the places are taken, */
    CHORES_USER_FEW = 4,   /* and beyond that */
    CHORES_SLOW_MS = 2000, /* time in lanes after which a user counts as slow; */
    CHORES_SLOW_SHARE = 4, /* one part in so many of the time that passes is taken off again */
};

/* `run` is called in a lane, or `drop` instead when the daemon ends first, on the thread that frees. Each frees
 * its context. */
typedef void chore_fn(void *context);

/* `name` is that of the threads, 15 bytes at most, and borrowed for good. All signals are blocked in them. `lanes`: 1 to
 * CHORES_LANES_MAX; the first one starts at once. */
int chores_new(const char *name, unsigned lanes, struct chores **ret_chores);

/* Waits for the chores at hand, and drops those that wait. NULL is fine. */
void chores_free(struct chores *chores);

/* Any thread. -EBUSY when too many wait already, of this user or in all; then the context is still the caller's. */
int chores_add(struct chores *chores, uint32_t user, chore_fn *run, chore_fn *drop, void *context);

size_t chores_waiting(struct chores *chores);

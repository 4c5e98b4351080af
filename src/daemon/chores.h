/* A thread for what may block: symbols, whole books, the memory of a process. One chore after the other: those of one user
 * in the order in which they came, users in turns. Who gives one prepares everything that belongs to the loop's thread before. */
#pragma once

#include <stddef.h>

struct chores;

enum { CHORES_WAITING_MAX = 256, CHORES_USERS = 64 };

/* `run` is called on the thread, or `drop` instead when the daemon ends first, on the thread that frees. Each frees
 * its context. */
typedef void chore_fn(void *context);

/* `name` is that of the thread, 15 bytes at most, and borrowed for good. All signals are blocked in it. */
int chores_new(const char *name, struct chores **ret_chores);

/* Waits for the chore at hand, and drops those that wait. NULL is fine. */
void chores_free(struct chores *chores);

/* Any thread. `user` is below CHORES_USERS. -EBUSY when CHORES_WAITING_MAX wait already; then the context is still the caller's. */
int chores_add(struct chores *chores, unsigned user, chore_fn *run, chore_fn *drop, void *context);

size_t chores_waiting(struct chores *chores);

/*
 * lock.h: the writer's locks.
 *
 * A spin lock word in private memory (zero is free, so a wiped page after fork is unlocked). Not
 * taken at all while the process has one thread. A lock that stays held, because its thread was
 * torn out of a report by longjmp() or cancellation, is given up on after a bounded wait: the
 * report is counted as lost and the host goes on.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/single_threaded.h>

#include "base/atomic.h"
#include "book/writer.h"

/* Wait for a lock that was found taken. False after about a second. */
bool book_lock_wait(struct book_writer *w, uint32_t *lock);

static inline bool book_lock_take(struct book_writer *w, struct book_thread *t, uint32_t *lock)
{
    if (w->single || __libc_single_threaded)
        return true;
    uint32_t free_word = 0;
    if (__builtin_expect(!cas_acquire(lock, &free_word, 1), 0) && !book_lock_wait(w, lock))
        return false;
    t->held[t->n_held++] = lock;
    return true;
}

static inline void book_lock_drop(struct book_thread *t, uint32_t *lock)
{
    if (t->n_held > 0 && t->held[t->n_held - 1] == lock) {
        t->n_held--;
        store_release(lock, 0);
    }
}

/*
 * lock.h: the writer's locks.
 *
 * A spin lock word in private memory (zero is free, so a wiped page after fork is unlocked). Not
 * taken at all while the process has one thread. The word names its holder, and a thread notes a
 * lock before it takes it, so that a thread torn out of a report by longjmp() or cancellation can
 * give back exactly what it holds, wherever it was torn. A lock that stays held nevertheless is
 * given up on after a bounded wait: the report is counted as lost and the host goes on.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/single_threaded.h>

#include "base/atomic.h"
#include "book/writer.h"

/* Wait for a lock that was found taken, and store `word` there. False after about a second; after
 * that each wait in vain is half as long, so that a lock lost for good slows nobody down. */
bool book_lock_wait(struct book_writer *w, uint32_t *lock, uint32_t word);

/* Sleep for a millisecond at most, while the first 4 bytes of a lock word are those of `held`. */
void book_lock_rest(const void *lock, uint64_t held);

/* The few stretches that must not be torn, or take so long that signal handlers would find a report
 * under way for milliseconds: meanwhile signals and cancellation of this thread wait. Two system
 * calls each way, so not for sealed writers. */
struct book_calm {
    sigset_t signals;
    int cancel_state;
};
void book_calm_begin(struct book_calm *calm);
void book_calm_end(const struct book_calm *calm);

static inline uint32_t book_lock_word(const struct book_thread *t)
{
    return t->shard + 1;
}

static inline bool book_lock_take(struct book_writer *w, struct book_thread *t, uint32_t *lock)
{
    if (w->single || __libc_single_threaded)
        return true;
    uint32_t free_word = 0;
    t->held[t->n_held++] = lock;
    fence_signal();
    if (__builtin_expect(cas_acquire(lock, &free_word, book_lock_word(t)), 1) ||
        book_lock_wait(w, lock, book_lock_word(t)))
        return true;
    t->n_held--;
    return false;
}

static inline void book_lock_drop(struct book_thread *t, uint32_t *lock)
{
    if (t->n_held > 0 && t->held[t->n_held - 1] == lock) {
        store_release(lock, 0);
        fence_signal();
        t->n_held--;
    }
}

/* What a report that will never end still holds. Others may have given up on it: now waiting is worth it again. */
static inline void book_locks_give_back(struct book_writer *w, struct book_thread *t)
{
    for (; t->n_held > 0; t->n_held--) {
        uint32_t own = book_lock_word(t), *lock = t->held[t->n_held - 1];
        if (cas_release(lock, &own, 0) && load_relaxed(&w->lost_lock) == lock)
            store_relaxed(&w->lost_lock, NULL);
    }
}

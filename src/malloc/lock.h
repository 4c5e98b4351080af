/*
 * lock.h: the allocator's locks: a word on which waiting threads sleep in the kernel.
 *
 * Held for tens of nanoseconds, so who finds it taken spins a little first. Not touched while the process has one thread.
 * Fork handlers hold all of them across fork (fork.c).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/single_threaded.h>

#include "base/atomic.h"

struct lock {
    uint32_t word; /* 0: free, 1: held, 2: held, and somebody sleeps */
};

void lock_wait(struct lock *l);
void lock_wake(struct lock *l);

static inline void lock_take(struct lock *l)
{
    uint32_t none = 0;
    if (__libc_single_threaded) {
        l->word = 1;
        return;
    }
    if (__builtin_expect(!cas_acquire(&l->word, &none, 1), 0))
        lock_wait(l);
}

static inline void lock_drop(struct lock *l)
{
    if (__libc_single_threaded) {
        l->word = 0;
        return;
    }
    if (__builtin_expect(exchange_release(&l->word, 0) == 2, 0))
        lock_wake(l);
}

/* In a child of fork: whoever held or waited is gone. */
static inline void lock_reset(struct lock *l)
{
    store_relaxed(&l->word, 0);
}

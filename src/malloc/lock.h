/*
 * lock.h: the allocator's locks: a word on which waiting threads sleep in the kernel.
 *
 * Held for tens of nanoseconds, so who finds it taken spins a little first. No atomic instruction while the process has one thread.
 *
 * Fork handlers hold all locks across fork() (thread.c), but _Fork() and clone() call none: a child may find a lock held by a
 * thread that it has not, and behind it something half changed. So the word of a held lock names the process, by a number
 * from a page that the kernel wipes in a child. It is no PID: the first process of a PID namespace and a child of its own that is the first of
 * another both have 1. Who finds the name of another process takes the lock over, and calls `stale` to
 * begin with a fresh state.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/single_threaded.h>

#include "base/atomic.h"
#include "malloc/os.h"

struct lock {
    uint32_t word;    /* 0: free; else the process, and in the lowest bit whether somebody sleeps */
    uint32_t forking; /* held across fork(), by the thread whose lock_forking is set */
    void (*stale)(struct lock *l); /* called with the lock */
};

/* The number of this process, with the lowest bit 0, and its PID; 0: not known yet. In a page that is wiped in children, but for those of
 * vfork(): these find their parent's PID. */
struct lock_process {
    uint32_t number;
    int32_t pid;
};
union lock_page {
    struct lock_process process;
    char bytes[OS_PAGE_MAX];
};
extern union lock_page lock_page __attribute__((visibility("hidden")));

/* This thread is in fork(): handlers of others may allocate after ours took all locks, or before ours let them go, in the parent and in
 * the child. They find the locks theirs. */
extern __thread bool lock_forking __attribute__((visibility("hidden"), tls_model("initial-exec")));

uint32_t lock_process_make(void);
void lock_wait(struct lock *l);
void lock_wake(struct lock *l);
void lock_take_alone(struct lock *l);
/* If that word, which was found there, is another process's. False: it is not, or somebody else was first. */
bool lock_take_stale(struct lock *l, uint32_t word);

static inline uint32_t lock_process(void)
{
    uint32_t number = load_relaxed(&lock_page.process.number);
    return __builtin_expect(number != 0, 1) ? number : lock_process_make();
}

/* True: somebody else had it, so it took a while. */
static inline bool lock_take(struct lock *l)
{
    uint32_t none = 0;
    if (__libc_single_threaded) {
        if (__builtin_expect(l->word != 0, 0))
            lock_take_alone(l); /* by whom? */
        l->word = lock_process();
        return false;
    }
    if (__builtin_expect(cas_acquire(&l->word, &none, lock_process()), 1))
        return false;
    lock_wait(l);
    return true;
}

static inline void lock_drop(struct lock *l)
{
    if (__builtin_expect(l->forking, 0))
        return;
    if (__libc_single_threaded) {
        l->word = 0;
        return;
    }
    if (__builtin_expect(exchange_release(&l->word, 0) & 1, 0))
        lock_wake(l);
}

/* Without waiting; false: somebody has it. For a signal handler, or a debugger, that may have stopped who does. */
static inline bool lock_try(struct lock *l)
{
    uint32_t word = 0;
    if (lock_forking && load_relaxed(&l->forking))
        return false;
    return cas_acquire(&l->word, &word, lock_process()) || lock_take_stale(l, word);
}

/* Around fork(): hold it; let it go in the parent; and in the child, where whoever waited is gone. */
static inline void lock_fork_take(struct lock *l)
{
    lock_take(l);
    store_relaxed(&l->forking, 1);
}

static inline void lock_fork_drop(struct lock *l, bool child)
{
    store_relaxed(&l->forking, 0);
    if (child)
        store_relaxed(&l->word, 0);
    else
        lock_drop(l);
}

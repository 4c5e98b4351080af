/* Which bytes above a stack pointer can be read without a fault.
 *
 * A walk follows pointers that may be garbage (code without frame pointers keeps data in the frame
 * register; a program may have overwritten its stack), so every address is checked against a range
 * known to be readable before it is read.
 *
 * - A thread's own stack. Its top is known without a call that allocates: glibc puts the thread's
 *   descriptor, to which the thread register points, at the top of a thread's stack (also of one that
 *   the program supplied), and the kernel puts the 16 random bytes of AT_RANDOM at the top of the main
 *   thread's. Pages from sp up to there are probed once; if all are readable, sp is on that stack. It
 *   cannot go away while the thread runs, so the range is kept per thread and a walk costs no system
 *   call.
 * - Any other stack (signal stacks, coroutines, fibers) may go away, so it is probed again in every
 *   walk, page by page as the walk reaches them: about 0.1 us a page.
 *
 * The probe is rt_sigprocmask with an impossible `how`: the kernel copies the 8 bytes, then refuses.
 * It changes nothing, and sandboxes that kill on process_vm_readv or mincore let it pass. (A thread's
 * first walk also asks gettid and getpid; there are no other system calls.) One race
 * remains and is accepted: memory outside the thread's own stack that another thread unmaps between
 * the probe and the read, which takes a garbage pointer to it as well.
 *
 * All of it is async-signal-safe, keeps errno, and needs no set-up: state is a few thread-local words
 * that are right in any mixture of old and new values. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"

enum {
    STACK_PAGE = 4096,              /* probes go by the smallest page there is */
    STACK_OWN_PAGES_MAX = 16384,    /* 64 MiB: a thread that is deeper counts as on another stack */
    STACK_FOREIGN_PAGES_MAX = 2048, /* 8 MiB above where a walk begins */
};

struct stack_bounds {
    uintptr_t lo; /* bytes lo to hi - 1 are readable */
    uintptr_t hi;
    uintptr_t limit; /* a walk may ask for more, by stack_reach(), up to here */
};

/* The range around `sp`. It may be empty (lo == hi) when sp is not even mapped. */
void stack_bounds_find(uintptr_t sp, struct stack_bounds *ret_bounds);

/* The same if sp is on this thread's own stack, else false. */
bool stack_own_find(uintptr_t sp, struct stack_bounds *ret_bounds);

/* The top of this thread's own stack, if stack_own_find() found it before; else 0. From a stack pointer that is on that
 * stack up to here everything is readable. */
static inline uintptr_t stack_own_top(void);

/* Is sp on that stack, as far as it was found? A coroutine may run where another thread's stack was that had the same top. */
static inline bool stack_is_own(uintptr_t sp);

/* Try to have [lo, addr + 8) readable; false if it is not. */
bool stack_reach(struct stack_bounds *bounds, uintptr_t addr);

/* Are these bytes readable at this moment? One system call per page. */
bool stack_probe(uintptr_t addr, uintptr_t len);

/* Of this thread. Only ranges of its own stack are ever stored in `own`, all of them end at the same
 * top, and each is contiguous, so a signal handler that stores in between can only leave another
 * right answer. `foreign` is a hint that spares the probing of what is known not to be the own stack;
 * a stale hint costs time, not safety. Initial-exec, because a lazily made TLS block would malloc. */
struct stack_known {
    uintptr_t own_lo; /* 0 until known */
    uintptr_t own_hi;
    uintptr_t foreign_lo;
    uintptr_t foreign_hi;
};
extern __thread struct stack_known stack_known __attribute__((tls_model("initial-exec")));

static inline uintptr_t stack_own_top(void)
{
    return load_relaxed(&stack_known.own_lo) ? load_relaxed(&stack_known.own_hi) : 0;
}

static inline bool stack_is_own(uintptr_t sp)
{
    uintptr_t lo = load_relaxed(&stack_known.own_lo);
    return lo != 0 && sp >= lo && sp < load_relaxed(&stack_known.own_hi);
}

static inline bool stack_has_word(const struct stack_bounds *bounds, uintptr_t addr)
{
    return addr >= bounds->lo && addr < bounds->hi && bounds->hi - addr >= sizeof(uintptr_t);
}

/* A word of the stack, after stack_has_word() said yes. Sanitizers keep red zones on the stack, which
 * are no concern of a walk. */
__attribute__((no_sanitize("address", "thread", "undefined"))) static inline uintptr_t stack_load(
    uintptr_t addr)
{
    return *(const volatile uintptr_t *)addr;
}

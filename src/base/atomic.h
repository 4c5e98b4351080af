/* Atomic access to plain integers and pointers, with the memory order in the name.
 *
 * Fields that live in shared memory or in a struct with a fixed layout are plain uint32_t, uint64_t or
 * pointers, not _Atomic: the same bytes are also copied and compared. Every access to a field that
 * another thread or process touches goes through these, so both the reader of the code and the
 * sanitizer see it. Arguments are evaluated once. Usable anywhere, signal handlers included: widths
 * up to 8 bytes are lock-free on all that we support. */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

/* gcc defines this by itself. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1
#endif
#endif

static_assert(__atomic_always_lock_free(sizeof(uint64_t), 0), "64-bit atomics must be lock-free");

#define load_relaxed(p)     __atomic_load_n((p), __ATOMIC_RELAXED)
#define load_acquire(p)     __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define load_seq_cst(p)     __atomic_load_n((p), __ATOMIC_SEQ_CST)

#define store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define store_seq_cst(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)

/* Add for a field with one writer: a load and a store, no locked instruction. Two writers lose
 * updates; readers never see a torn value. */
#define add_relaxed(p, v)                                                               \
    ({                                                                                  \
        __typeof__(&*(p)) atomic_p_ = (p);                                              \
        __atomic_store_n(atomic_p_, __atomic_load_n(atomic_p_, __ATOMIC_RELAXED) + (v), \
                         __ATOMIC_RELAXED);                                             \
    })
#define sub_relaxed(p, v)                                                               \
    ({                                                                                  \
        __typeof__(&*(p)) atomic_p_ = (p);                                              \
        __atomic_store_n(atomic_p_, __atomic_load_n(atomic_p_, __ATOMIC_RELAXED) - (v), \
                         __ATOMIC_RELAXED);                                             \
    })

/* Read-modify-write for fields with many writers; each gives the value before. */
#define fetch_add_relaxed(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define fetch_add_acquire(p, v) __atomic_fetch_add((p), (v), __ATOMIC_ACQUIRE)
#define fetch_add_release(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELEASE)
#define fetch_add_acq_rel(p, v) __atomic_fetch_add((p), (v), __ATOMIC_ACQ_REL)
#define fetch_add_seq_cst(p, v) __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
#define fetch_sub_relaxed(p, v) __atomic_fetch_sub((p), (v), __ATOMIC_RELAXED)
#define fetch_sub_release(p, v) __atomic_fetch_sub((p), (v), __ATOMIC_RELEASE)
#define fetch_sub_acq_rel(p, v) __atomic_fetch_sub((p), (v), __ATOMIC_ACQ_REL)
#define fetch_or_relaxed(p, v)  __atomic_fetch_or((p), (v), __ATOMIC_RELAXED)
#define fetch_or_release(p, v)  __atomic_fetch_or((p), (v), __ATOMIC_RELEASE)
#define fetch_and_relaxed(p, v) __atomic_fetch_and((p), (v), __ATOMIC_RELAXED)

#define exchange_relaxed(p, v)  __atomic_exchange_n((p), (v), __ATOMIC_RELAXED)
#define exchange_acquire(p, v)  __atomic_exchange_n((p), (v), __ATOMIC_ACQUIRE)
#define exchange_release(p, v)  __atomic_exchange_n((p), (v), __ATOMIC_RELEASE)
#define exchange_acq_rel(p, v)  __atomic_exchange_n((p), (v), __ATOMIC_ACQ_REL)

/* Compare and swap: true when *p was *expected and is now `desired`; else *expected gets what was
 * there, with relaxed order (acquire for the two that acquire). The weak one may fail for no reason:
 * for loops. */
#define cas_relaxed(p, expected, desired)                                            \
    __atomic_compare_exchange_n((p), (expected), (desired), false, __ATOMIC_RELAXED, \
                                __ATOMIC_RELAXED)
#define cas_acquire(p, expected, desired)                                            \
    __atomic_compare_exchange_n((p), (expected), (desired), false, __ATOMIC_ACQUIRE, \
                                __ATOMIC_ACQUIRE)
#define cas_release(p, expected, desired)                                            \
    __atomic_compare_exchange_n((p), (expected), (desired), false, __ATOMIC_RELEASE, \
                                __ATOMIC_RELAXED)
#define cas_acq_rel(p, expected, desired)                                            \
    __atomic_compare_exchange_n((p), (expected), (desired), false, __ATOMIC_ACQ_REL, \
                                __ATOMIC_ACQUIRE)
#define cas_weak_relaxed(p, expected, desired)                                      \
    __atomic_compare_exchange_n((p), (expected), (desired), true, __ATOMIC_RELAXED, \
                                __ATOMIC_RELAXED)
#define cas_weak_acquire(p, expected, desired)                                      \
    __atomic_compare_exchange_n((p), (expected), (desired), true, __ATOMIC_ACQUIRE, \
                                __ATOMIC_RELAXED)
#define cas_weak_release(p, expected, desired)                                      \
    __atomic_compare_exchange_n((p), (expected), (desired), true, __ATOMIC_RELEASE, \
                                __ATOMIC_RELAXED)

/* Raise *p to at least v; any number of writers. */
#define max_relaxed(p, v)                                                                          \
    ({                                                                                             \
        __typeof__(&*(p)) atomic_p_ = (p);                                                         \
        __typeof__(*(p)) atomic_v_ = (v);                                                          \
        __typeof__(*(p)) atomic_seen_ = __atomic_load_n(atomic_p_, __ATOMIC_RELAXED);              \
        while (atomic_seen_ < atomic_v_ && !cas_weak_relaxed(atomic_p_, &atomic_seen_, atomic_v_)) \
            ;                                                                                      \
    })

/* Fences. TSan does not model them: prefer an order on the access itself. */
#define fence_acquire() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define fence_release() __atomic_thread_fence(__ATOMIC_RELEASE)
#define fence_seq_cst() __atomic_thread_fence(__ATOMIC_SEQ_CST)

/* Keeps the compiler from moving memory accesses across, at no run-time cost: enough between a thread
 * and its own signal handler. */
#define fence_signal() __atomic_signal_fence(__ATOMIC_SEQ_CST)

/* Inside a spin loop: tells the core that it waits. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#else
    __asm__ volatile("" ::: "memory");
#endif
}

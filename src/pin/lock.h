/*
 * lock.h: the one lock of the library. It guards tables for microseconds and is never held across
 * a call of the driver, which may itself wait for a thread that allocates. Given up on after about
 * a second, since its holder may have been torn away by cancellation: then the caller goes without
 * us.
 */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"

enum { PIN_LOCK_SPINS = 200, PIN_LOCK_YIELDS = 20000 };

static inline bool pin_lock_take(uint32_t *lock)
{
    for (unsigned yields = 0; yields < PIN_LOCK_YIELDS; yields++) {
        for (unsigned i = 0; i < PIN_LOCK_SPINS; i++) {
            uint32_t none = 0;
            if (load_relaxed(lock) == 0 && cas_acquire(lock, &none, 1))
                return true;
            cpu_relax();
        }
        sched_yield();
    }
    return false;
}

static inline void pin_lock_give(uint32_t *lock)
{
    store_release(lock, 0);
}

/* thread_key.h: to be told when a thread ends, inside a stranger's process.
 *
 * glibc keeps the values of the first keys in the thread itself; those of others it would ask malloc for. Whoever gets
 * no such key has to ask the kernel which threads are gone. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"

enum { THREAD_KEYS_WITHOUT_MALLOC = 32 };

struct thread_key {
    pthread_key_t key;
    uint32_t state; /* 0: none yet, 1: being made, 2: usable, 3: unusable */
};

/* Whether there is a key whose value needs no malloc; made by who asks first. `end` gets the value of a thread that
 * ends. */
static inline bool thread_key_get(struct thread_key *k, void (*end)(void *value))
{
    uint32_t none = 0;
    if (load_acquire(&k->state) == 0 && cas_acquire(&k->state, &none, 1)) {
        bool made = pthread_key_create(&k->key, end) == 0;
        bool usable = made && k->key < THREAD_KEYS_WITHOUT_MALLOC;
        if (made && !usable)
            pthread_key_delete(k->key);
        store_release(&k->state, usable ? 2 : 3);
    }
    return load_acquire(&k->state) == 2;
}

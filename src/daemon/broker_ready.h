/* How long this process ran or could have run, for children of the broker.
 *
 * On a busy machine most of the time that a question takes is a wait for a processor, which other users' programs have. It is not the fault
 * of the user that the child acts as, unless that user gave the child a lower priority or fewer processors. */
#pragma once

#include <stdint.h>

/* Once, before the process becomes a user's. */
void broker_ready_begin(void);

/* Nanoseconds since the process began in which it ran, and in which it waited for a processor; without the waits once its priority,
 * scheduling policy or processors are not those of the beginning. 0 where the kernel does not tell. */
uint64_t broker_ready_ns(void);

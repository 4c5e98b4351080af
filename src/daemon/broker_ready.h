/* How long a child of the broker ran or could have run.
 *
 * On a busy machine most of the time that a question takes is a wait for a processor, which other users' programs have. It is not the fault
 * of the user that the child acts as, unless that user gave the child a lower priority or fewer processors. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/* Nanoseconds since the child began in which it ran, and in which it waited for a processor; without the waits if its priority,
 * scheduling policy or processors are not those of the broker, which started it. 0 where the kernel does not tell. */
uint64_t broker_ready_ns(pid_t child, pid_t broker);

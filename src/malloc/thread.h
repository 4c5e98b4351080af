/*
 * thread.h: threads, modes and forks.
 */
#pragma once

#include <stdint.h>

#include "malloc/heap.h"
#include "malloc/lock.h"

/* Modes of the whole process in which calls go the long way. */
enum { MODE_ACCOUNT = 1, MODE_HARDEN = 2 };
extern uint32_t thread_modes __attribute__((visibility("hidden")));

/* The chain that this thread has set as its default, or NULL. After a change: heap_fast_set(). */
extern __thread void *thread_chain __attribute__((visibility("hidden"), tls_model("initial-exec")));

/* Begin the modes that are set, as soon as there is an environment to read: the loader asks for memory before that. Until
 * then all calls go the long way. */
void start_modes(void);

/* Of the list of heaps, and of how many sources there are. Before those of sources. */
extern struct lock heaps_lock __attribute__((visibility("hidden")));

/* A heap without any slab. */
void heap_empty(struct heap *h);

/* The thread with the only heap finds that there are others now: from here on a fork needs handlers. */
void thread_second(struct heap *first);

/* All locks of heaps and sources at once, without waiting; false: somebody has one. */
bool thread_locks_try(void);
void thread_locks_drop(void);

void thread_fork_prepare(void);
void thread_fork_parent(void);
void thread_fork_child(void);

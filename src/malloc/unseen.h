/*
 * unseen.h: heaps of threads that ended and did not say so.
 *
 * A thread that ends by the system call itself, as those of runtimes that make their own threads do, runs no destructor: its heap stays, and nobody
 * uses it. So before another heap is made, the kernel is asked of a few whether their threads still live, in turn: then there are never many more
 * heaps than there are threads. Not before there are some: a program that has few threads makes no call that its sandbox may not expect.
 */
#pragma once

struct heap;

enum { UNSEEN_TRIES = 4, UNSEEN_HEAPS_MIN = 16 };

/* With the lock of the list of heaps. One whose thread is gone, with all that it has, which is the caller's now; or NULL. */
struct heap *unseen_heap(void);

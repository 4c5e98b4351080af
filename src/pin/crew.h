/*
 * crew.h: a few helper threads, for work that one thread cannot do fast enough: filling the staging
 * ring (stage.h), touching fresh memory ahead of the program (touch.h) and reading files without the
 * program's descriptors (meter.h).
 *
 * No thread exists before the program itself has a CUDA context and there is such work; one that
 * has had none for CREW_IDLE_MS ends. Helpers take no lock, allocate nothing, and block all signals
 * but those that a fault raises. A child of fork has none of them.
 */
#pragma once

#include <stdbool.h>

enum {
    CREW_MAX = 8,          /* threads at a time */
    CREW_SPIN_NS = 100000, /* a thread that has no work looks for some so long before it sleeps */
    CREW_IDLE_MS = 1000,
};

/* Let another thread call `work(argument)`. False: all are busy, or no thread could be made; then
 * nothing was started. The caller must not let `argument` end before the work does. */
bool crew_start(void (*work)(void *argument), void *argument);

/* In a child of fork: there are no threads. */
void crew_forget(void);

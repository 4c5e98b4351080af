/* memoird's observer: the process that traces CUDA programs (src/observe). memoird starts it where the driver's library and the
 * rights exist, holds a connection to it, and starts it again when it ends; a running one, left by a memoird that was
 * killed, is used. Its books are found like all others; histories are asked for over its socket (trace/ask.h).
 *
 * Either may be killed: the observer ends a minute after memoird went, and the kernel goes on counting without the observer. All
 * calls are the loop's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct daemon;
struct tracing;

enum {
    TRACING_LINGER_S = 60,
    TRACING_LOOK_S = 30,       /* between two looks for a driver library */
    TRACING_BACKOFF_MS = 1000, /* before it is started again; doubles up to */
    TRACING_BACKOFF_MAX_MS = 60000,
    TRACING_REMOVE_MS =
        5000, /* for the removal of what a killed observer left, when memoird ends */
};

enum tracing_state {
    TRACING_OFF,     /* switched off, or not root */
    TRACING_WAITING, /* there is no driver library yet */
    TRACING_STARTING,
    TRACING_RUNNING,
    TRACING_FAILED, /* tried again later: see why */
};

/* The path of memoir-observe: beside memoird in a build folder, in libexec of an installed tree. False: it is not there. */
bool tracing_program_find(char *path, size_t size);

/* 0, also where nothing can be traced. */
int tracing_new(struct daemon *daemon, struct tracing **ret_tracing);

/* Ends the observer, which removes its probes; if it was killed and has not been started again, they are removed all the same.
 * NULL is fine. */
void tracing_free(struct tracing *tracing);

enum tracing_state tracing_state(const struct tracing *tracing); /* NULL: off */
const char *tracing_state_name(enum tracing_state state);
/* For people, or "". */
const char *tracing_why(const struct tracing *tracing);

/* Where it answers, for chores that ask it from their own thread. "" while it does not run. */
const char *tracing_socket(const struct tracing *tracing);

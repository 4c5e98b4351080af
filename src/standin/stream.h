/* stream.h: streams and events. Work is done when it is submitted, unless the stream records a graph. */
#pragma once

#include <time.h>

#include "standin/state.h"

struct stream {
    struct object object;
    unsigned flags;
    int priority;
    struct graph *capture; /* the graph that records the work, or NULL */
    struct graph *into;    /* the same, if the program made it before */
    bool joined;           /* by an event: another stream began */
    bool invalidated;      /* a call that is not allowed while recording ended it */
};

struct event {
    struct object object;
    struct timespec recorded;
    struct graph *capture; /* that recorded it, or NULL */
};

/* The stream that a handle means. NULL and the small numbers 1 and 2 mean default streams: these give NULL in `ret`. Needs the
 * lock. */
CUresult stream_of(CUstream handle, struct stream **ret);

/* A new stream of a context. Needs the lock. */
CUresult stream_make(CUstream *ret, struct context *c, unsigned flags, int priority);

/* The graph that records work submitted to `handle`, or NULL. Needs the lock. */
struct graph *stream_capture(CUstream handle);

/* The stream goes: a recording that it began is lost. Needs the lock. */
void stream_capture_drop(struct stream *s);

/* Forget streams and events of a context. Needs the lock. */
void stream_drop_context(const struct context *c);

/* stream.h: streams and events. Work is done when it is submitted, unless the stream records a graph. */
#pragma once

#include "standin/state.h"

struct stream {
    struct object object;
    unsigned flags;
    int priority;
    struct graph *capture; /* the graph that records the work, or NULL */
    bool invalidated;      /* a call that is not allowed while recording ended it */
};

/* The stream that a handle means. NULL and the small numbers 1 and 2 mean default streams: these give NULL in `ret`. Needs the
 * lock. */
CUresult stream_of(CUstream handle, struct stream **ret);

/* The graph that records work submitted to `handle`, or NULL. Needs the lock. */
struct graph *stream_capture(CUstream handle);

/* Forget streams and events of a context. Needs the lock. */
void stream_drop_context(const struct context *c);

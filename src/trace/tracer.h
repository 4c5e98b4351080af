/* tracer.h: a tracer from inside; <memoir/tracer.h> says what it does.
 *
 * One thread reads the observer's stream and feeds the traces; calls of the user take `lock` for the list of traces and the state,
 * never while a history is read or fed. */
#pragma once

#include <memoir/tracer.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "trace/history.h"

enum {
    TRACER_PROCESSES_MAX = 4096
}; /* traces of one tracer; more processes are not kept, and `unkept` counts their events */

struct memoir_trace {
    struct trace_history *history;
    int pid;
    uint64_t start_ticks;
    bool loaded; /* belongs to the user, not to a tracer */
    bool
        retired; /* of a run before memoir_tracer_restart(), or of a process whose PID was used again: gets no more events */
};

struct memoir_tracer {
    struct memoir_tracer_options options; /* `observe` is ours */
    pthread_mutex_t lock;                 /* for all below */
    pthread_cond_t changed;
    struct memoir_trace **traces; /* in the order in which they came */
    size_t n_traces, cap_traces;
    int state, error;
    char reason[256];
    uint64_t events;
    uint64_t unkept;
    bool ready; /* the observer has told that it observes */
    bool busy;  /* a start or stop is under way */
    bool
        resumed; /* traces go on after an interruption: they are swept when the observer has told all blocks */

    /* The observer; touched by who starts and stops, and by the thread while it runs. */
    pid_t child;
    int stream_fd, stop_fd;
    pthread_t thread;
    bool has_thread;
};

/* ---- the observer (tracer_child.c) ---- */

/* Start memoir-observe and the thread that reads its stream. -errno with `reason` set. */
int tracer_child_start(struct memoir_tracer *tracer);
/* End both. */
void tracer_child_stop(struct memoir_tracer *tracer);

/* ---- traces (tracer.c) ---- */

/* The trace that gets the events of a process, made if there is none. NULL: no memory, or too many. Caller has no lock. */
struct memoir_trace *tracer_trace_for(struct memoir_tracer *tracer,
                                      const struct trace_identity *identity);
/* The same for one that is there; NULL otherwise. */
struct memoir_trace *tracer_trace_find(struct memoir_tracer *tracer, int pid);

void tracer_state_set(struct memoir_tracer *tracer, int state, int error, const char *reason);

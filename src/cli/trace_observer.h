/* trace_observer.h: observers that `memoir trace` starts, finds and ends.
 *
 * An observer of one process answers at TRACE_ASK_DIR/trace-PID.sock, so that other commands find it by the PID. */
#ifndef MEMOIR_CLI_TRACE_OBSERVER_H
#define MEMOIR_CLI_TRACE_OBSERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    TRACE_OBSERVER_WHY_MAX = 512,
    TRACE_OBSERVER_READY_MS = 20000,
    TRACE_OBSERVER_STOP_MS = 10000,
    TRACE_OBSERVER_KEEP_S =
        3600, /* the history of an attached process stays for this long after its end */
};

struct trace_observer {
    pid_t child; /* 0: none */
    int hold;    /* connection whose end ends it; -1: none */
    char socket[108];
};

/* The socket of an observer of that process. */
void trace_observer_socket(pid_t pid, char socket[static 108]);

/* Start memoir-observe for a process and wait until its probes are attached. `detached`: it outlives us, and ends some time after the
 * process; else it ends with us. `search` is the LD_LIBRARY_PATH of the process, `dir` that of books; both may be NULL. -errno with `why` for
 * people. */
int trace_observer_start(struct trace_observer *observer, pid_t pid, bool detached,
                         const char *search, const char *dir,
                         char why[static TRACE_OBSERVER_WHY_MAX]);

/* Start memoir-observe for the heap of a process and wait until its probes are in. It outlives us and ends with the process. Zeros and NULL
 * take the defaults. -errno with `why`. */
struct trace_heap_options {
    const char *dir;       /* of books */
    uint64_t sample_bytes; /* between two stacks */
    uint64_t blocks_max;   /* live blocks that are kept */
    const char *budget;    /* percent */
    bool children;         /* processes that it forks, too */
};
int trace_observer_heap_start(pid_t pid, const struct trace_heap_options *options,
                              char why[static TRACE_OBSERVER_WHY_MAX]);

/* End the one that was started; all its probes are gone then. */
void trace_observer_end(struct trace_observer *observer);

/* Ask the observer at `socket` to end, and wait for it. 0, -ENOENT or -ECONNREFUSED: there is none, other -errno. */
int trace_observer_stop(const char *socket);

/* Call `each` for the sockets of observers: memoird's and those of processes. Returns how many there were. */
size_t trace_observer_each(void (*each)(void *context, const char *socket, pid_t pid),
                           void *context);

/* Remove probes whose observer is gone; each is named on stdout by memoir-observe. An exit code of it, or -errno. */
int trace_observer_orphans(void);

/* Can the observer's parser give up its rights? Without that nothing is traced. Starts it: some milliseconds. */
bool trace_observer_parser_works(void);

/* Names of pinned probes whose observer is gone, separated by spaces: how many. Needs root. */
struct buffer;
size_t trace_observer_orphans_find(struct buffer *names);

/* The path of memoir-observe; false: it is not installed. */
bool trace_observer_program(char *path, size_t size);

#endif

/* The event loop: epoll over descriptors, timers, signals and wake-ups, one thread.
 *
 * Everything that the loop calls runs on its thread and owns the daemon's tables. Callbacks must not
 * block; long work is cut into pieces (loop_defer) or given to a worker that answers by loop_wake().
 * A source may be freed at any time on that thread, also inside its own callback; it is not called
 * again, and its memory goes at the end of the turn. */
#pragma once

#include <stdint.h>

struct loop;
struct loop_source;

typedef void loop_fd_fn(void *context, uint32_t events);
typedef void loop_fn(void *context);

int loop_new(struct loop **ret_loop);
void loop_free(struct loop *loop); /* frees the sources that are left; NULL is fine */

/* Runs until loop_stop(). 0, or -errno when waiting itself fails. */
int loop_run(struct loop *loop);
void loop_stop(struct loop *loop);

/* How long turns took in the last minute or so, which is how long an event had to wait at most. Within an eighth of
 * the truth. */
struct loop_lag {
    uint64_t turns; /* in that time */
    uint64_t p50_ns, p99_ns, max_ns;
};
struct loop_lag loop_lag(const struct loop *loop);

/* Watch `fd` for EPOLL* events. The loop borrows it: free the source before closing it. */
int loop_add_fd(struct loop *loop, int fd, uint32_t events, loop_fd_fn *call, void *context,
                struct loop_source **ret_source);

/* Wait for other events from now on; 0: for none but hang-ups and errors. */
int loop_fd_events(struct loop_source *source, uint32_t events);

/* A timer that does nothing until loop_timer_set(). */
int loop_add_timer(struct loop *loop, loop_fn *call, void *context,
                   struct loop_source **ret_source);

/* First after `first_ns`, then every `interval_ns` (0: once). A first of 0 stops it. */
int loop_timer_set(struct loop_source *source, uint64_t first_ns, uint64_t interval_ns);

/* Call on a signal, which gets blocked for this thread and for those made after. */
int loop_add_signal(struct loop *loop, int signal, loop_fn *call, void *context,
                    struct loop_source **ret_source);

/* Something that other threads can trigger by loop_wake(): any thread, never blocks. Wake-ups that come
 * before the loop gets to it are one call. */
int loop_add_wake(struct loop *loop, loop_fn *call, void *context, struct loop_source **ret_source);
void loop_wake(struct loop_source *source);

/* Work in pieces: once armed by loop_defer(), called at the end of every turn until its callback does
 * not arm it again; meanwhile the loop does not sleep, but looks at all other sources in between. */
int loop_add_deferred(struct loop *loop, loop_fn *call, void *context,
                      struct loop_source **ret_source);
void loop_defer(struct loop_source *source);

void loop_source_free(struct loop_source *source); /* NULL is fine */

/* What happened lately: processes that came, went or were killed, leaks that were found, tracking that was switched. The
 * last EVENTS_KEPT in memory, for those who ask, and told at once to one who listens.
 *
 * Numbers of events only grow, also from one daemon to the next, so that who has seen one can ask for what came after
 * it. Where very many processes come and go, those that ended in order are left out beyond some number a second, and
 * counted. The loop's thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct asking_viewer;
struct events;
struct exit_record;
struct ledger_process;
struct retired_process;

enum {
    EVENTS_KEPT = 1000,
    EVENTS_PER_SECOND = 20, /* that are not important, */
    EVENTS_AT_ONCE = 100,   /* and after a quiet time */
    EVENT_TEXT_MAX = 256,
};

enum event_kind {
    EVENT_CAME,   /* a process that keeps a book */
    EVENT_WENT,   /* ended, also by SIGINT, SIGHUP or SIGPIPE, or was replaced by exec */
    EVENT_KILLED, /* by another signal */
    EVENT_OOM,    /* by the kernel, for want of memory */
    EVENT_LEAK,   /* a call site that leaks */
    EVENT_DEVICE, /* one was told of for the first time */
    EVENT_TRACKING,
    EVENT_KINDS,
};

struct event {
    uint64_t id, real_ns; /* events_add() fills these in */
    enum event_kind kind;
    int32_t pid; /* 0: none */
    uint32_t uid;
    bool is_private; /* not even its figures are for other users */
    bool has_bytes;
    uint64_t bytes;
    char program[64];
    char text[EVENT_TEXT_MAX];
};

int events_new(struct events **ret_events);
void events_free(struct events *events); /* NULL is fine */

/* Called for each event from now on; NULL: no listener. */
void events_listen(struct events *events, void (*heard)(const struct event *event, void *context),
                   void *context);

/* Its number; 0 when it was left out. NULL for `events` does nothing, here and below. */
uint64_t events_add(struct events *events, const struct event *event);

void events_process_came(struct events *events, const struct ledger_process *process);
void events_process_went(struct events *events, const struct retired_process *process,
                         const char *line);
/* One without a book, of which the kernel told: an event if it was killed, but not by SIGINT, SIGHUP or SIGPIPE, which end
 * programs in the ordinary course of things. */
void events_process_ended(struct events *events, const struct exit_record *exit);

/* May this viewer know that it happened; and all of it: see query_may_see()? */
bool event_visible(const struct event *event, const struct asking_viewer *viewer);
bool event_detailed(const struct event *event, const struct asking_viewer *viewer);

/* Those after number `after` that the viewer may see, the oldest first; if there are more than `limit`, the last ones. How
 * many; `ret_events` has room for `limit`. */
size_t events_read(const struct events *events, const struct asking_viewer *viewer, uint64_t after,
                   const struct event **ret_events, size_t limit);

uint64_t events_last(const struct events *events);     /* number of the last one */
uint64_t events_left_out(const struct events *events); /* ever */

const char *event_kind_name(enum event_kind kind);

/* The event as other users may know it: no program, nor how a process ended. */
struct event event_reduced(const struct event *event);

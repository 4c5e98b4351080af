/* Heaps of running processes that probes account: `memoir attach` and the page's button.
 *
 * Each process has an observer of its own (memoir-observe --heap), which answers at trace_ask_heap_socket(), whichever program started it, and
 * writes the book. Observers of other directories than ours are not ours. memoird holds a connection to each of them. An observer that memoird started ends ATTACHING_LINGER_S after memoird
 * went, unless a new one holds it by then; one that `memoir attach` started runs by itself. What an observer that was killed
 * leaves, its book, is removed. All calls are the loop's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct attaching;
struct daemon;

enum {
    ATTACHING_MAX = 64,     /* processes at a time, */
    ATTACHING_USER_MAX = 8, /* and of one user other than root */
    ATTACHING_LINGER_S = 60,
    ATTACHING_LOOK_S = 2,   /* between two looks for observers that the command has started */
    ATTACHING_START_S = 25, /* to begin; then it is given up */
    ATTACHING_WHY_MAX = 256,
};

enum attaching_state {
    ATTACHING_NONE,
    ATTACHING_STARTING,
    ATTACHING_ON,
    ATTACHING_FAILED, /* `why` says it; told once */
    ATTACHING_ENDED,  /* as it was asked to; told once */
};

int attaching_new(struct daemon *daemon, struct attaching **ret_attaching);
void attaching_free(struct attaching *attaching); /* observers go on for a while; NULL is fine */

/* Why nothing can be attached here, for people; NULL: it can. */
const char *attaching_why_not(const struct attaching *attaching); /* NULL: "..." */

/* Begin to account a process, and with `children` those that it forks, for user `uid`, who must be allowed to trace it; 0: root. 0 when that is under way: ask
 * attaching_state(). -ENOTSUP: not here; -EUSERS: too many, in all or of that user; other -errno. */
int attaching_begin(struct attaching *attaching, pid_t pid, uint32_t uid, bool children);
enum attaching_state attaching_state(struct attaching *attaching, pid_t pid,
                                     char why[static ATTACHING_WHY_MAX]);

/* When the figures of an attached process changed last (CLOCK_MONOTONIC), give or take ATTACHING_LOOK_S: where probes are in for part of
 * the time, they are of the end of the last window. 0: not known. */
uint64_t attaching_figures_ns(struct attaching *attaching, pid_t pid);

/* End it: 0 when that is under way, ask attaching_state(). -ESRCH: there is none. */
int attaching_end(struct attaching *attaching, pid_t pid);

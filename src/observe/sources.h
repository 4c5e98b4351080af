/* sources.h: what an observer waits for: the ring of its probes, a tick, signals, requests, and what else it adds. */
#pragma once

#include <stdint.h>

struct control;

enum source {
    SOURCE_RING,
    SOURCE_TICK,
    SOURCE_SIGNAL,
    SOURCE_CONTROL,
    SOURCE_MORE, /* the first one of the observer's own */
};

enum { SOURCES_MAX = 8 }; /* that one wait tells of */

struct sources {
    int epoll, tick, signals;
};

/* For a program that is about to begin: as many descriptors as it may have, since files of processes stay open; no SIGPIPE; and
 * SIGTERM, SIGINT and signal `more` come by the descriptor that it returns. -errno. */
int sources_begin(int more);

/* Borrows `signals`, `ring`, and `control`, which may be NULL. */
int sources_open(struct sources *sources, int signals, int ring, const struct control *control,
                 unsigned tick_ms);
void sources_close(struct sources *sources);

/* Further ones: `events` of epoll; 0: only that it ended. */
int sources_add(struct sources *sources, int fd, uint32_t events, uint32_t what);
void sources_tick_set(struct sources *sources, unsigned ms);
/* Ticks that came since the last call; 0: none. */
uint64_t sources_ticked(struct sources *sources);

/* Wait, at most `ms` (-1: for ever): how many are ready, or -errno. */
int sources_wait(struct sources *sources, int ms, uint32_t ret_what[static SOURCES_MAX]);

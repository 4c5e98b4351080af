/* The order of costly work on the loop.
 *
 * Such work gets one part in `share` of the loop's time: after each piece it rests, unless the piece was shorter than `short_ns`.
 * Waiting turns are served by user: the user whose last piece is longest ago comes first, and the turns of one user in
 * the order of their arrival. So a thousand questions of one user do not delay the single one of another.
 *
 * The queue is polled: a waiter gets a delay and calls turns_wait() again after it. A waiter that was next and did not call in
 * time (because its connection does not take answers, for example) loses its place. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

enum {
    TURNS_WHO = 4096, /* users that are told apart; others share a place in the order */
    TURNS_LATE_NS = 100 * 1000000, /* after the moment that the waiter was given */
    TURNS_LOOK_NS = 1000000,       /* between two calls of a waiter that is not next, */
    TURNS_LOOK_MORE_NS =
        1000000 / 64, /* and for each that waits: a crowd must not spend all time asking */
};

/* A place in the queue; zeroed while it does not wait. Belongs to the caller. */
struct turn {
    bool waiting;
    uint32_t who;
    uint64_t due_ns; /* when it has to call again */
    TAILQ_ENTRY(turn) link;
};
TAILQ_HEAD(turn_list, turn);

struct turns {
    struct turn_list waiting; /* in the order in which they came */
    size_t n;
    struct turn *next; /* is served first; NULL: none waits */
    uint64_t share, short_ns;
    uint64_t rest_until_ns;
    uint64_t pieces;          /* served so far, */
    uint64_t last[TURNS_WHO]; /* and which was the last of each */
};

/* `turns` is zeroed. Pieces of less than `short_ns` need no rest. */
void turns_init(struct turns *turns, uint64_t share, uint64_t short_ns);

/* 0: begin now, and the turn waits no more; else the delay until the next call. `who`: any number that all turns of
 * one user share. */
uint64_t turns_wait(struct turns *turns, struct turn *turn, uint64_t who, uint64_t now_ns);

/* A piece of work that took so long is done. */
void turns_done(struct turns *turns, uint64_t cost_ns, uint64_t now_ns);

/* Give up the place; no effect on a turn that does not wait. */
void turns_leave(struct turns *turns, struct turn *turn);

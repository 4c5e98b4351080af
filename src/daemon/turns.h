/* Whose turn is it to ask for what costs much?
 *
 * Such work gets one part in `share` of the loop's time: after each piece it rests, unless the piece was as short as
 * questions are that nobody counts. Those who wait meanwhile
 * are served by whom they belong to, who has waited longest since his last piece first, and among his own in the
 * order in which they came: so one user's thousand questions do not keep another's single one waiting.
 *
 * Nobody is called: who has to wait is told for how long, and asks again then. Who was next and did not come
 * (his connection does not take its answers, say) loses his place. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

enum {
    TURNS_WHO = 4096, /* users that are told apart; others share a place in the order */
    TURNS_LATE_NS = 100 * 1000000, /* after the moment that he was told */
    TURNS_LOOK_NS = 1000000,       /* between two looks of one who is not next, */
    TURNS_LOOK_MORE_NS =
        1000000 / 64, /* and for each that waits: a crowd must not spend all time asking */
};

/* One who may wait; zero when he does not. Belongs to the caller. */
struct turn {
    bool waiting;
    uint32_t who;
    uint64_t due_ns; /* when he is to ask again */
    TAILQ_ENTRY(turn) link;
};
TAILQ_HEAD(turn_list, turn);

struct turns {
    struct turn_list waiting; /* in the order in which they came */
    size_t n;
    struct turn *next; /* who is served first; NULL: nobody waits */
    uint64_t share, short_ns;
    uint64_t rest_until_ns;
    uint64_t pieces;          /* served so far, */
    uint64_t last[TURNS_WHO]; /* and which was the last of each */
};

/* `turns` is zeroed. Pieces of less than `short_ns` need no rest. */
void turns_init(struct turns *turns, uint64_t share, uint64_t short_ns);

/* May he begin? 0: yes, and he waits no more; else how long until he asks again. `who`: any number that all of
 * one user's share. */
uint64_t turns_wait(struct turns *turns, struct turn *turn, uint64_t who, uint64_t now_ns);

/* A piece of work that took so long is done. */
void turns_done(struct turns *turns, uint64_t cost_ns, uint64_t now_ns);

/* He does not want it any more; fine for one who does not wait. */
void turns_leave(struct turns *turns, struct turn *turn);

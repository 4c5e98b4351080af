/* The world of a question to memoird: the one place where what a table needs (enum query_needs) is brought together. The
 * loop's thread's. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/events_table.h"
#include "daemon/native_exited.h"
#include "profile/suspects.h"
#include "query/query.h"

struct asking_viewer;
struct daemon;
struct leaks;
struct users;

struct asking_world {
    struct query_world world; /* for query_run(); the caller sets user_name and its context */
    struct daemon *daemon;
    struct query_exited_list exited;
    struct suspects suspects;
    struct events_world events;
    struct native_exited_lines retired;
};

/* Rows of all that grows: those of `leaks` in the same order, with the names of users, and behind them those of processes
 * without a book. `ret_suspects` is empty before, and to be released in any case. -ENOMEM. */
int asking_suspects(struct daemon *daemon, const struct asking_viewer *viewer,
                    const struct leaks *leaks, struct suspects *ret_suspects);

/* Is everything there that would take long to bring, so that the loop does not wait? What is not is asked for. */
bool asking_world_ready(struct daemon *daemon, unsigned needs);

/* Fill in what `query` needs, for `viewer`; figures of the ledger are the caller's. 0; -ENODEV where there is no table of
 * processes; -EAGAIN to a viewer that is hasty; -EOPNOTSUPP for history and mappings, which only
 * a worker may read (api_history.h, explaining.h); -ENOMEM. To be released in any case. */
int asking_world_open(struct daemon *daemon, const struct query *query,
                      const struct asking_viewer *viewer, const struct users *users,
                      struct asking_world *ret_world);
void asking_world_release(struct asking_world *world);

/*
 * world.h: the world of a question without a daemon: the one place where what tables need (enum query_needs) is read from
 * books, /proc, cgroups, the driver and the daemon's files.
 */
#ifndef MEMOIR_CLI_WORLD_H
#define MEMOIR_CLI_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/driver.h"
#include "cli/ps.h"
#include "explain/table.h"
#include "history/past.h"
#include "history/table.h"
#include "profile/site_lines.h"
#include "profile/suspects.h"
#include "profile/tables.h"
#include "query/query.h"
#include "query/retired_source.h"

struct query_spec;
struct site_names;

struct world_options {
    const char *dir;   /* of books; NULL: the usual place */
    const char *state; /* of memoird; NULL: see ps_state_find() */
    bool repeated;     /* the question comes again and again: costly fields get less time at once */
    bool selective;    /* it has a --where: that nothing is there is then an answer of its own */
    const char *socket;        /* of memoird, for what it alone knows; NULL: the usual ones */
    struct past_window window; /* of tables of the past; all 0: the last hour in minutes */
};

/* Zeroed at first; kept between questions, so that it can tell what changed. */
struct world {
    struct ledger *ledger; /* of `follow` where there is one */
    struct follow *follow; /* of questions that are repeated: it keeps books that are known open */
    uint64_t found_ns;     /* CLOCK_MONOTONIC: when its books were looked for */
    struct host *host;
    struct driver driver;
    struct cgroups *cgroups;
    struct query_exited_list exited;
    struct history_world history;
    struct retired_files retired;
    struct explain_subject subjects[QUERY_NAMED_MAX];
    struct explain_world explain;
    char history_path[PS_STATE_PATH_MAX + 64];
    struct site_names *symbols; /* NULL: names stay offsets */
    struct site_lines lines;    /* of the book that was looked at last */
    bool no_symbols;            /* leave it so */
    struct profile_world profile;
    struct suspects suspects;
    uint32_t uid; /* the user that was looked up last */
    char user[64];
    bool known; /* `uid` and `user` are set */
    bool told;  /* why there is nothing */
};

/* Read what `query` needs, as it is now, and tell on stderr what could not be read. Returns enum command_exit or
 * -errno. What is in `ret_world` stays until the next call. */
int world_look(struct world *world, const struct world_options *options, const struct query *query,
               struct query_world *ret_world);

/* Look, run and finish: the answer of now. `result` is emptied first. */
int world_ask(struct world *world, const struct world_options *options, const struct query *query,
              struct query_result *result);

/* Ask a ledger that is at hand, as of its last refresh; for query_free() and query_result_free(). `symbols` may be NULL.
 * 0 or -errno. */
int world_ask_ledger(struct ledger *ledger, struct site_names *symbols,
                     const struct query_spec *spec, struct query **ret_query,
                     struct query_result **ret_result);

void world_release(struct world *world);

#endif

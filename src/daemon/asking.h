/* Questions to the query core with the rights of the viewer: one place for the sockets and for HTTP, so that both
 * give the same answers and share what costly ones may take.
 *
 * Clients repeat their questions, so the last ones are kept ready. The names of users come from
 * daemon/users.h, which never blocks. All of it is the loop's thread's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct asking;
struct daemon;
struct exit_file_header;
struct json;
struct query;
struct query_error;
struct query_result;
struct query_spec;
struct query_table;
struct turn;
struct users;

enum {
    ASKING_MS = 50,             /* for the reading of blocks and sites */
    ASKING_REFRESH_NS = 50000,  /* figures that cost less are read anew for each question */
    ASKING_FACTS_MS = 10,       /* for what /proc tells of processes, once a refresh */
    ASKING_ROWS_MAX = 20000,    /* of one answer */
    ASKING_GROUPS_MAX = 100000, /* that a question may make before sorting */
    ASKING_SHARE = 4,           /* costly tables take a quarter of the time */
    ASKING_SHORT_NS = 100000,   /* unless they take less than this at a time */
    ASKING_HOST_WAIT_MS = 2,    /* until the process table is looked for again */
    ASKING_KEPT = 16,           /* questions that are kept ready, */
    ASKING_KEPT_ROWS = 1024,    /* and the memory of answers up to so many rows */
};

/* Who asks. */
struct asking_viewer {
    bool sees_all;
    uint32_t uid; /* else: the user whose details it may see */
    /* -EAGAIN rather than waiting for the table of processes, which is being refreshed */
    bool hasty;
};

/* May the viewer see details of processes of this user: call sites, blocks, traces, commands? */
bool asking_may_see(const struct asking_viewer *viewer, uint32_t uid);

/* The user whose share of memoird's threads the viewer uses (daemon/chores.h). Any thread. */
uint32_t asking_user(const struct asking_viewer *viewer);

/* A question that is ready to be asked. The asking's, until the next asking_prepare(). */
struct asked {
    struct query *query;
    struct query_result *result; /* as of asking_run(), finished */
};

int asking_new(struct daemon *daemon, struct asking **ret_asking);
void asking_free(struct asking *asking); /* NULL is fine */

/* How many rows an answer has, where a question wants so many; 0: as many as there may be. */
uint64_t asking_limit(uint64_t wanted);

/* The name of a user in /etc/passwd, or NULL; good until the next question. */
const char *asking_user_name(struct asking *asking, uint32_t uid);

/* `spec` is borrowed during the call; rows are limited to ASKING_ROWS_MAX. 0; -EINVAL with `ret_error` filled in; or
 * -ENOMEM. */
int asking_prepare(struct asking *asking, const struct query_spec *spec, struct asked **ret_asked,
                   struct query_error *ret_error);

/* How long a question to this table has to wait for its turn; 0: not at all. `who`: any number that all questions
 * of one user share. `turn` is zero at first, and belongs to the caller. `table` may be NULL: one that does not exist. */
uint64_t asking_wait(struct asking *asking, const struct query_table *table, struct turn *turn,
                     uint64_t who);

/* Stop waiting; no effect on a turn that does not wait. */
void asking_leave(struct asking *asking, struct turn *turn);

/* Ask. 0, -ENODEV when there is no table of processes, -EAGAIN for a hasty viewer, or -ENOMEM. */
int asking_run(struct asking *asking, struct asked *asked, const struct asking_viewer *viewer);

/* Count other work of that cost, begun at this time (CLOCK_MONOTONIC), for a caller that waited for its turn. */
void asking_costs(struct asking *asking, uint64_t begin_ns);

/* What an answer cost that took so long, of which so much was our own time. Tables in memory do not block: time in which the
 * loop was interrupted is not counted. */
uint64_t asking_cost(unsigned needs, uint64_t passed_ns, uint64_t own_ns);

/* The answer was used: give back what is worth it. */
void asking_done(struct asked *asked);

/* With answers about processes that ended goes whether their ends are seen at all: the object "exits". Writes nothing
 * for other tables. */
void asking_exits_json(const struct asking *asking, const struct asked *asked, struct json *json);

/* That object. `header` is the head of the file of ends; NULL: there is none. */
void asking_exit_state_json(const struct exit_file_header *header, struct json *json);

/* The daemon's sockets, put together: who listens where, and what became of it all. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/conn.h"

struct allowance;
struct config;
struct daemon;
struct loop_source;

/* What happened at the sockets since memoird started; `connections` is as of now. Everything that a limit
 * or a rule turned away is here. */
struct server_figures {
    uint64_t connections;
    uint64_t accepted;
    uint64_t refused_connections_max;
    uint64_t refused_connections_per_user_max;
    uint64_t refused_descriptors; /* none left for accept() */
    uint64_t closed_message;      /* a message larger than message-max, or garbage */
    uint64_t closed_stalled;
    uint64_t closed_queue; /* did not take its answers */
    uint64_t throttled;    /* times that a client had to wait for tokens */
    uint64_t bytes_in, bytes_out;
    uint64_t reports;        /* applied */
    uint64_t queries;        /* answered */
    uint64_t bad_reports;    /* invalid ones: unknown type or space, size of 0 */
    uint64_t denied_reports; /* about processes that the client may not speak for */
    uint64_t denied_questions;
    uint64_t refused_buffers; /* past buffers-per-client-max */
    uint64_t refused_books;   /* processes that could get no book */
    uint64_t adopted_books;   /* taken over from a daemon before */
    uint64_t expired_books;   /* of other machines, whose clients did not come back */
};

struct server {
    struct daemon *daemon;
    struct conn_limits limits;
    struct server_figures figures;
    struct conn_server *conns;
    struct conn_listener *tt, *native, *tcp; /* NULL: not listening */
    char native_path[PATH_MAX];              /* of the native socket, "": none */
    uint64_t refreshed_ns;                   /* when the ledger's figures were read last, */
    uint64_t refresh_cost_ns;                /* how long that took, by our own time */
    uint64_t refresh_cost_before_ns;         /* and the time before */
    struct loop_source *say_timer;
    uint64_t said_refusals;      /* sum of what was turned away, as last told */
    uint64_t said_ns, dumped_ns; /* when a client last made us write into the log */
    struct allowance *log_share; /* lines that each user may make us write */
    uint64_t dump_rest_until_ns; /* no dump is answered before */
    bool changed;                /* something went that they still have */
};

/* Listen as the configuration says. A socket that was asked for and cannot be had is an error; one of the
 * default ones that another program has is a warning. Needs ledger, watch, reaper and behalf. */
int server_new(struct daemon *daemon, struct server **ret_server);
void server_free(struct server *server); /* NULL is fine */

/* Listen at the path that was `set`, or else at the usual one, with the mode and group of the configuration.
 * "none" is 0 and no listener. Says what is wrong; see server_new() for which of it is an error. */
int server_listen(struct server *server, const struct conn_protocol *protocol, const char *set,
                  const char *usual, struct conn_listener **ret_listener);

/* Mode and group that the configuration wants for the names of sockets. Says what is wrong. */
int server_socket_access(const struct config *config, struct conn_unix_options *options);

/* Take over limits from a configuration that was read again. */
void server_reconfigure(struct server *server);

enum { SERVER_FRESH_NS = 1000000 };

/* May something that clients do be told of in the log? Once a second, since they may do it as often as they
 * like; `last_ns` is one of the server's. */
bool server_may_say(uint64_t *last_ns);

/* May a line be written that this user made us write? A user has a few, root has no limit; what is left out
 * is counted and told of. */
bool server_may_log(struct server *server, uint32_t uid);

/* Reports of all clients since the start that are in no book. */
uint64_t server_rejected_reports(const struct server *server);

/* Make the ledger's figures, device sums included, at most SERVER_FRESH_NS old; or, on machines with so many
 * processes that this would take more than a quarter of the time, as old as it takes. */
void server_refresh(struct server *server);

/* Something went that must not be seen any more: the next server_refresh() reads anew. */
void server_figures_changed(struct server *server);

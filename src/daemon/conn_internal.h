/* What the files of conn.h share. */
#pragma once

#include <sys/queue.h>

#include "daemon/conn.h"

struct loop_source;

TAILQ_HEAD(conn_list, conn);
TAILQ_HEAD(conn_user_list, conn_user);
LIST_HEAD(listener_list, conn_listener);

struct conn_out {
    uint8_t *data;
    size_t len, sent, room;
};

struct conn {
    struct conn_server *server;
    struct conn_user *user;
    const struct conn_protocol *protocol;
    void *context, *state;
    int fd;
    struct loop_source *source;
    struct peer peer;
    uint8_t *rest; /* bytes that wait for more, or, held, for us */
    size_t rest_len;
    struct conn_out out;
    double tokens;
    uint64_t tokens_ns;
    uint64_t rest_ns;   /* when the message that waits began; 0: none does */
    uint64_t out_ns;    /* since when the client has taken `out_taken`; 0: nothing waits */
    uint64_t out_taken; /* bytes */
    uint64_t wake_ns;   /* 0: no wake-up wanted */
    uint64_t resume_ns; /* read on then; 0: reading */
    uint64_t hold_ns;   /* go on then with what is left; 0: as soon as it is our turn */
    uint32_t events;    /* that epoll waits for */
    bool in_call;       /* a callback runs */
    bool closing;
    bool stopped;  /* the callback leaves whole messages for another turn */
    bool held;     /* such messages are in `rest`: nothing is read before they are done with */
    bool readable; /* epoll says so */
    bool ended;    /* the client has closed its sending side: nothing is read any more */
    bool ready;    /* in user->ready */
    bool pending;  /* in server->pending */
    bool timed;    /* in server->timed */
    enum conn_end end;
    TAILQ_ENTRY(conn) link, pending_link, timed_link, ready_link;
};

struct conn_listener {
    struct conn_server *server;
    const struct conn_protocol *protocol;
    void *context;
    int fd;
    struct loop_source *source;
    int dirfd;     /* of the socket's name, or -1 */
    char name[64]; /* in dirfd */
    uint64_t dev, ino;
    LIST_ENTRY(conn_listener) link;
};

struct conn_user {
    uint32_t uid; /* who answers for its connections */
    bool said;
    size_t connections;
    size_t out_bytes, rest_bytes; /* that memoird keeps for all of them */
    uint64_t used_ns;             /* of the loop's time, on the clock of server->used_ns */
    struct conn_list ready;       /* want to be called, in order */
    TAILQ_ENTRY(conn_user) link;  /* in server->ready_users while there are such */
};

struct conn_server {
    struct loop *loop;
    const struct conn_limits *limits;
    struct server_figures *figures;
    struct conn_list conns, pending, timed;
    struct listener_list listeners;
    size_t n_conns;
    struct conn_user **users;
    size_t n_users;
    size_t out_bytes; /* of all users */
    struct conn_user_list ready_users;
    uint64_t used_ns;      /* of who was served last: the least that one who comes now has used */
    uint64_t slice_end_ns; /* of who is served now */
    struct loop_source *turn;  /* deferred: ready_users */
    struct loop_source *work;  /* deferred: pending */
    struct loop_source *timer; /* the earliest of `timed` */
    uint64_t timer_ns;         /* when it goes off; 0: not set */
    int spare_fd;              /* given up for a moment to refuse a connection */
    bool said_max, said_fds, said_message, said_stalled, said_queue, said_throttled;
    uint8_t *spare_out; /* lent to who answers, so that nothing is allocated */
    size_t spare_room;
    uint8_t batch[2 * CONN_BATCH_BYTES];
};

/* A client at `fd`, which is taken: also on failure. */
void conn_accept(struct conn_listener *listener, int fd);

/* ---- conn_user.c ---- */

/* Room for one more connection of this user, counted in user->connections; NULL, and told of: there is none. */
struct conn_user *conn_user_enter(struct conn_server *server, uint32_t uid);
void conn_users_free(struct conn_server *server);

/* Have a connection called when it is its user's turn; take it back. */
void conn_ready(struct conn *conn);
void conn_unready(struct conn *conn);

/* The connection that is next; it stays ready. NULL: none. */
struct conn *conn_next_ready(struct conn_server *server);

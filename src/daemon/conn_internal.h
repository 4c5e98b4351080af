/* What the files of conn.h share. */
#pragma once

#include <sys/queue.h>

#include "daemon/conn.h"

struct loop_source;

TAILQ_HEAD(conn_list, conn);
LIST_HEAD(listener_list, conn_listener);

struct conn_out {
    uint8_t *data;
    size_t len, sent, room;
};

struct conn {
    struct conn_server *server;
    const struct conn_protocol *protocol;
    void *context, *state;
    int fd;
    struct loop_source *source;
    struct peer peer;
    uint8_t *rest; /* bytes that wait for more */
    size_t rest_len;
    struct conn_out out;
    double tokens;
    uint64_t tokens_ns;
    uint64_t rest_ns;   /* when the message that waits began; 0: none does */
    uint64_t out_ns;    /* since when the client takes nothing; 0: nothing waits */
    uint64_t wake_ns;   /* 0: no wake-up wanted */
    uint64_t resume_ns; /* read on then; 0: reading */
    uint32_t events;    /* that epoll waits for */
    bool in_call;       /* a callback runs */
    bool closing;
    bool pending; /* in server->pending */
    bool timed;   /* in server->timed */
    enum conn_end end;
    TAILQ_ENTRY(conn) link, pending_link, timed_link;
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
    uint32_t uid;
    size_t connections;
    bool said;
};

struct conn_server {
    struct loop *loop;
    const struct conn_limits *limits;
    struct server_figures *figures;
    struct conn_list conns, pending, timed;
    struct listener_list listeners;
    size_t n_conns;
    struct conn_user *users;
    size_t n_users;
    struct loop_source *work;  /* deferred: pending */
    struct loop_source *timer; /* the earliest of `timed` */
    uint64_t timer_ns;         /* when it goes off; 0: not set */
    int spare_fd;              /* given up for a moment to turn somebody away */
    bool said_max, said_fds, said_message, said_stalled, said_queue, said_throttled;
    uint8_t *spare_out; /* lent to who answers, so that nothing is allocated */
    size_t spare_room;
    uint8_t batch[2 * CONN_BATCH_BYTES];
};

/* A client at `fd`, which is taken: also on failure. */
void conn_accept(struct conn_listener *listener, int fd);

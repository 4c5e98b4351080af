/* Stream connections: listening sockets, buffered input and output, limits. Knows no protocol.
 *
 * A protocol is a table of callbacks. Bytes come in batches of up to CONN_BATCH_BYTES, read into one
 * buffer that all connections share; what a callback leaves unread is kept (and counted against
 * `rest_max`) and comes again with more behind it. Output is queued and sent when the callback returns
 * or, from elsewhere, at the end of the turn. Everything runs on the loop's thread and nothing blocks.
 *
 * Time is shared by user. A connection is served for CONN_SLICE_NS, then others are; between two messages a
 * protocol asks conn_must_stop() and leaves the rest when it says so. What is left then waits for us, not for
 * the client: nothing more is read, and it is handed over again when its turn comes.
 *
 * A client that does not take its answers is not read from, once CONN_OUT_HIGH bytes of them wait on the connection or
 * CONN_OUT_USER_HIGH on all of one user's; before that it gets no more large ones, see conn_answer_waits().
 *
 * A client that closes its sending side still gets its answers: the connection ends when they are sent.
 *
 * Limits, each with a counter in struct server_figures and one line in the log when it is first hit:
 * connections in all and per user, unfinished bytes of one message, queued output, reports per second
 * (the connection is then not read from until there are tokens again: nothing is lost, the client
 * waits), and time: half a message may stand for `stall_ns`, and of output that waits the client has to take
 * CONN_OUT_PACE bytes in that time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/peer.h"

struct conn;
struct conn_listener;
struct conn_server;
struct loop;
struct server_figures;

enum {
    CONN_BATCH_BYTES = 256 << 10, /* read at once */
    CONN_BATCHES = 4,             /* of one connection before the others get their turn */
    CONN_SLICE_NS = 2000000,      /* for one connection before the others get their turn */
    CONN_TURN_NS = 4000000,       /* for all of them before the rest of the loop gets its */
    CONN_OUT_HIGH = 256 << 10,    /* output of a connection that must go before it is read on, */
    CONN_OUT_USER_LARGE =
        16 << 20, /* of a user other than root before it gets more large answers, */
    CONN_OUT_USER_HIGH = 64 << 20, /* before its connections are read on, */
    CONN_OUT_ALL_HIGH = 256 << 20, /* and of all users */
    CONN_OUT_PACE = 256 << 10,
    CONN_REST_USER_HIGH = 32 << 20, /* input kept for a user before it is read in small pieces */
};

struct conn_limits {
    size_t connections_max;
    size_t connections_per_user_max; /* root has no limit */
    size_t queue_max;                /* bytes of output that wait for one client */
    uint64_t reports_per_second;     /* token bucket of one client, holds one second's; 0: off */
    uint64_t stall_ns;               /* half a message, or output that is not taken */
};

/* Why a connection ended, for on_close() and the log. */
enum conn_end {
    CONN_END_PEER,     /* the client closed it, or died */
    CONN_END_PROTOCOL, /* our side asked for it: conn_close(), or a callback's -errno */
    CONN_END_MESSAGE,  /* a message larger than rest_max */
    CONN_END_STALLED,  /* half a message, or unread output, for too long */
    CONN_END_QUEUE,    /* more output than queue_max */
    CONN_END_ERROR,    /* the socket failed */
    CONN_END_SHUTDOWN, /* memoird ends */
};

struct conn_protocol {
    const char *name; /* for the log: "tt", "native" */

    /* A client came; its peer is known. Set up state by conn_set_state(). Below 0: close at once,
     * without on_close(). May be NULL. */
    int (*on_open)(struct conn *conn);

    /* All bytes that were not taken yet. Returns how many of them are done with (0: wait for more), or
     * -errno to close. Called again when more has come, or, after conn_must_stop() or conn_hold(), when it
     * is time for what is left; that may be more than rest_max. */
    ssize_t (*on_bytes)(struct conn *conn, const uint8_t *bytes, size_t n);

    /* What conn_wake_after() asked for. Same return as on_bytes(), with the bytes that wait. May be
     * NULL. */
    ssize_t (*on_wake)(struct conn *conn, const uint8_t *bytes, size_t n);

    /* The client has closed its sending side: `bytes` is all that will come. Replaces on_bytes() from then
     * on, and returns the same. NULL: bytes of an unfinished message are dropped. */
    ssize_t (*on_end)(struct conn *conn, const uint8_t *bytes, size_t n);

    /* Give back the state. The connection cannot send any more. */
    void (*on_close)(struct conn *conn, enum conn_end end);

    size_t rest_max; /* bytes that may wait for the rest of a message; below CONN_BATCH_BYTES */
};

/* ---- the server ---- */

/* Borrows loop, limits and figures, which must live as long. Changed limits hold from then on. */
int conn_server_new(struct loop *loop, const struct conn_limits *limits,
                    struct server_figures *figures, struct conn_server **ret_server);

/* Closes listeners and connections; NULL is fine. */
void conn_server_free(struct conn_server *server);

struct conn_unix_options {
    const char *path;
    mode_t mode; /* of the socket's name: 0660 */
    gid_t group; /* (gid_t)-1: leave it */
};

/* Listen at a path. A stale socket there (without a server) is replaced, one that answers gives
 * -EADDRINUSE, anything that is not a socket -EEXIST. In a sticky directory that others can write to
 * (/tmp) a name of another user's gives -EPERM: only its owner can remove it. The name is made under
 * a random one with its final mode and group, then renamed into place, so that no client can connect
 * before. Removed again when the listener goes, if it is still ours. */
int conn_listen_unix(struct conn_server *server, const struct conn_protocol *protocol,
                     void *context, const struct conn_unix_options *options,
                     struct conn_listener **ret_listener);

/* "HOST:PORT" ("[::1]:7070", "0.0.0.0:7070", ":0"), numeric only: the loop must not wait for names.
 * ret_port (may be NULL) is the one in use. */
int conn_listen_tcp(struct conn_server *server, const struct conn_protocol *protocol, void *context,
                    const char *address, uint16_t *ret_port, struct conn_listener **ret_listener);

void conn_listener_free(struct conn_listener *listener); /* NULL is fine; its connections stay */

/* ---- one connection ---- */

/* What conn_listen_*() was given, the caller's own state, and who is at the other end. */
void *conn_context(const struct conn *conn);
void conn_set_state(struct conn *conn, void *state);
void *conn_state(const struct conn *conn);
struct peer *conn_peer(struct conn *conn);

/* Queue bytes for the client (copied). -ENOBUFS when queue_max is reached: the connection then closes
 * by itself; -EPIPE when it is closing already. */
int conn_send(struct conn *conn, const void *bytes, size_t n);

/* Bytes that the client has not taken yet: who sends unasked (subscriptions) leaves out what does not
 * fit rather than run into the limit. */
size_t conn_queued(const struct conn *conn);

/* Count `n` reports against the client's bucket. When it is empty, reading stops until it is not;
 * the batch at hand is still done in full. */
void conn_spend(struct conn *conn, uint64_t n);

/* To be asked between two messages, after at least one: has the connection had its time, is there too much
 * output, does it close? Then on_bytes() returns, and is called again with what it leaves. Looks at the clock. */
bool conn_must_stop(struct conn *conn);

/* To be asked before a request whose answer may be large: true, and as after conn_hold(), while the client's
 * user leaves too many of them unread. */
bool conn_answer_waits(struct conn *conn);

/* The next message has to wait for that long, by our own will: as conn_must_stop(), but not before. */
void conn_hold(struct conn *conn, uint64_t ns);

/* Call on_wake() after that time, if no bytes came before; 0 takes it back. About a millisecond fine. */
void conn_wake_after(struct conn *conn, uint64_t ns);

/* Close when the current callback returns, or at the end of the turn, after what is queued was sent as
 * far as the socket takes it at once. on_close() is called. */
void conn_close(struct conn *conn);

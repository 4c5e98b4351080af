/* What the parts of the server share. Unless it says otherwise, everything belongs to the server's thread. */
#pragma once

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "base/buffer.h"
#include "base/json.h"
#include "http/headers.h"
#include "http/server.h"
#include "http/target.h"

struct exchange;
struct question;

/* ---- mailboxes: how calls go to another thread and come back ---- */

enum letter_kind { LETTER_CALL, LETTER_FRAME };

enum { LANES = 16 };

/* Bytes of answers that a user's clients have not taken. With more users than places at a time, some share one. */
enum { UNTAKEN_USERS = 256 };

struct untaken {
    uint32_t user; /* base/accountable.h, 0 for all who see all */
    size_t bytes;  /* 0: a free place */
};

struct letter {
    enum letter_kind kind;
    unsigned lane; /* below LANES: in which order letters of different ones come is not said */
    STAILQ_ENTRY(letter) link;
};
STAILQ_HEAD(letters, letter);

/* First in, first out within a lane; lanes take turns, so that one client's thousand questions do not keep another's
 * single one waiting. */
struct mailbox {
    pthread_mutex_t lock; /* held for no longer than to move a pointer; for all that follows */
    struct letters lanes[LANES];
    size_t waiting[LANES];
    size_t n;
    unsigned next; /* lane */
};

void mailbox_init(struct mailbox *box);
void mailbox_release(struct mailbox *box);
/* True when it was empty before: somebody has to be woken. */
bool mailbox_put(struct mailbox *box, struct letter *letter);
/* The oldest of the lane whose turn it is, or NULL. */
struct letter *mailbox_take(struct mailbox *box);
/* All of them, appended to `list`. */
void mailbox_take_all(struct mailbox *box, struct letters *list);
size_t mailbox_count(struct mailbox *box);
size_t mailbox_count_lane(struct mailbox *box, unsigned lane);

/* ---- calls ---- */

enum call_kind { CALL_UNANSWERED, CALL_JSON, CALL_BODY, CALL_PROBLEM, CALL_STREAM };

/* Belongs to one thread at a time: the server's, then the handler's, then the server's again. */
struct http_call {
    struct letter letter; /* first, see call_of() */
    unsigned viewer_lane; /* of whoever asked first */
    struct http *http;
    const struct http_route *route;
    struct http_viewer viewer;
    struct arguments arguments;
    char *path; /* as asked */
    char *body; /* as sent */
    size_t body_len;
    char last_event_id[24];
    struct host exchange_host; /* as the client calls us */
    bool tls, head;
    bool page;         /* a person looks at the answer: it accepts text/html */
    bool foreign_site; /* a page of another site made the browser send it */
    char session[64];  /* the cookie that came with it, or "" */
    char node_token[HTTP_NODE_TOKEN_MAX + 1]; /* see http_node_token() */
    struct question *question;                /* the server's thread only */
    uint64_t not_before_ns;                   /* after http_again() */
    unsigned tries;
    bool later, again;
    _Atomic bool abandoned; /* nobody waits for it any more: whoever has it may drop it */
    /* of the way back: the handler's return and http_done() both must have come */
    _Atomic unsigned holders;

    /* Of a visit: who gets the answer. NULL: a client does. */
    void (*visited)(void *context, int status, const char *type, const char *filename,
                    const char *bytes, size_t len);
    void *visit_context;

    enum call_kind answer;
    uint64_t stream_from; /* of a stream: the number of the first frame that is for it */
    int status;
    struct buffer out;
    struct json json;
    const char *type;     /* content type */
    char *filename;       /* or NULL */
    char *audit;          /* or NULL */
    char *cookie;         /* of Set-Cookie, or NULL */
    const char *location; /* or NULL; static */
    bool held;            /* a wrong credential: the answer waits a moment */
    char *text;           /* detail of a problem */
    char code[HTTP_CODE_MAX + 1];
    bool has_members; /* of a problem: `json` writes them */
};

static inline struct http_call *call_of(struct letter *letter)
{
    return (struct http_call *)letter;
}

void call_free(struct http_call *call); /* NULL is fine */
/* Hand the answer of a visit over; false: it is none. */
bool visit_answered(struct http_call *call);
/* The call is freed without an answer. Fine for any. */
void visit_dropped(struct http_call *call);
/* Run its handler on the server's own thread. */
void call_run_here(struct http *http, struct http_call *call);
/* Close the JSON and take care of handlers that failed; on the thread of the handler. */
void call_finish(struct http_call *call);
/* What the problem with this code is called, in a few words. */
const char *problem_title(const char *code, int status);
/* The whole object, without members. */
void problem_write(struct buffer *out, int status, const char *code, const char *detail,
                   const char *instance, const char *members, size_t members_len);

/* ---- answers ---- */

struct answer {
    unsigned refs;
    int status;
    const char *data; /* of `plain` */
    size_t len;
    bool compressible;
    bool ready;                        /* `plain` has its headers */
    struct MHD_Response *plain, *gzip; /* gzip when first asked for */
    char etag[20];                     /* "" none; without quotes */
    char allow[64];                    /* of a 405 */
    unsigned retry_s;                  /* of a 429 or 503; 0: none */
    const char *type;                  /* borrowed, static */
    char *filename;
    const char *location;
    char *cookie;
    struct untaken *counted; /* where its bytes are counted, or NULL, */
    struct http *http;       /* and of which server */
    bool closes;             /* the connection ends with it */
    bool immutable;          /* may be kept for good by the client */
};

/* Takes `out`'s memory. NULL when there is none. */
struct answer *answer_new(int status, const char *type, struct buffer *out);
struct answer *answer_problem(int status, const char *code, const char *instance, const char *fmt,
                              ...) __attribute__((format(printf, 4, 5)));
struct untaken *answer_untaken(struct http *http, const struct http_viewer *viewer);
struct answer *answer_from_call(struct http_call *call);
void answer_unref(struct answer *answer); /* NULL is fine */
/* Queue it for a request with these headers. */
enum MHD_Result answer_queue(struct http *http, struct answer *answer,
                             struct MHD_Connection *connection);
/* Give `response` its headers, in its compressed form or in its plain one. */
bool answer_headers(struct MHD_Response *response, const struct answer *answer, bool gzip);
size_t answer_size(const struct answer *answer);

/* ---- connections and requests ---- */

struct door {
    int fd;
    enum http_door kind;
    struct http *http;
};

/* `source` of an epoll event. */
struct conn {
    int fd;
    const struct door *door;
    struct MHD_Connection *mhd;
    char from[HTTP_FROM_MAX + 1];
    uint64_t address; /* hash, for limits by address */
    bool local;       /* loopback or Unix: no limit by address */
    bool has_peer;
    struct ucred peer;
    struct payer *payer;         /* for whom it counts: see admission.h */
    char own[HTTP_FROM_MAX + 1]; /* our address that it came to, where that is not loopback */
    uint64_t since_ns;           /* when what it is in began */
    enum {
        CONN_ASKING,    /* the first request, or a body, is on its way */
        CONN_IDLE,      /* between requests, or in the head of the next one */
        CONN_WAITING,   /* for its answer: suspended */
        CONN_TAKING,    /* the answer */
        CONN_STREAMING, /* without end; see stream.c */
    } phase;
    bool shut; /* by us: MHD will notice */
    struct exchange *exchange;
    LIST_ENTRY(conn) link;
};
LIST_HEAD(conns, conn);
LIST_HEAD(payers, payer);
enum { HTTP_PAYER_BUCKETS = 256 };

/* Ends it from our side: MHD reads the end of the connection and cleans up. */
void http_conn_shut(struct http *http, struct conn *conn);

/* One request of a connection. */
struct exchange {
    struct http *http;
    struct conn *conn;
    struct MHD_Connection *mhd;
    struct target target; /* as parsed from what the client sent */
    int target_error;
    const char *target_text; /* what is wrong with it */
    struct host host;
    char last_event_id[24];
    char session[64];
    char node_token[HTTP_NODE_TOKEN_MAX + 1];
    bool begun, suspended, head, gzip, held;
    bool foreign_site; /* a page of another site made the browser send it */
    bool failed;       /* no memory for an answer */
    const struct http_route *route;
    struct http_viewer viewer;
    struct arguments arguments;
    struct buffer body;
    struct question *question; /* that it waits for */
    struct answer *answer;
    struct stream *stream;
    uint64_t hold_until_ns;     /* a wrong credential: the answer waits */
    TAILQ_ENTRY(exchange) link; /* of the question's or of the held */
};
TAILQ_HEAD(exchanges, exchange);

/* Something that was asked: who waits for the answer, and the answer while it is fresh. */
struct question {
    struct http_call *call; /* out, or NULL */
    struct exchanges waiting;
    struct answer *answer; /* NULL while it is made */
    uint64_t fresh_until_ns;
    uint64_t asked_ns;
    char *key; /* NULL: not to be shared */
    size_t key_len;
    uint64_t hash;
    bool in_cache;
    bool again; /* somebody asked the same meanwhile */
    const struct http_route *route;
    TAILQ_ENTRY(question) link; /* of all, oldest first */
    struct question *next;      /* in its bucket */
};
TAILQ_HEAD(questions, question);

/* May whoever asked still ask? Tokens are revoked and sessions end while a stream goes on. */
bool exchange_still_known(struct exchange *exchange);
/* Resumes a connection whose exchange has its answer now. */
void exchange_ready(struct exchange *exchange, struct answer *answer);
void exchange_suspend(struct exchange *exchange);

struct http {
    struct http_options options; /* constant once started, as are routes and limits */
    struct http_limits limits;
    const struct http_route **routes; /* ours and the server's own */
    size_t n_routes;
    struct router *router;
    char *hosts;
    pthread_t thread;
    bool started;
    _Atomic bool stopping;
    _Atomic uint64_t published;    /* frames, so far */
    _Atomic size_t streams_coming; /* calls that became streams and are on their way back */
    int epoll_fd, wake_fd, owner_fd;
    struct door doors[4];
    size_t n_doors;
    char *tls_certificate, *tls_key;
    struct MHD_Daemon *plain, *tls;

    struct mailbox to[HTTP_WHERES]; /* calls for the loop and the worker, */
    bool to_wake[HTTP_WHERES];      /* who has to be told of the first */
    struct mailbox back;            /* and what comes from them */
    /* calls that asked to be served again; of the thread that serves, */
    struct letters again[HTTP_WHERES];
    _Atomic size_t again_n[HTTP_WHERES][LANES]; /* and how many of each lane: any thread may look */
    bool again_first[HTTP_WHERES]; /* they and new ones take turns; of the thread that serves */
    struct untaken
        untaken[UNTAKEN_USERS]; /* answers that are not freed yet, by whose question it was */
    size_t untaken_bytes;       /* of all of them */
    size_t n_held;

    struct conns conns;
    struct conn **by_fd;
    size_t by_fd_n;
    size_t n_conns;
    bool owners_known; /* the kernel told who owns a TCP connection */
    struct payers payers[HTTP_PAYER_BUCKETS];
    struct exchanges held;
    struct questions questions; /* all that are out or kept */
    struct cache *cache;
    struct streams *streams;
    bool ended; /* the thread does not take new calls any more */

    /* Counters: written by the server's thread, read by any. */
    struct {
        _Atomic uint64_t requests, answers_kept, answers_waited, not_modified, compressed, bytes_in,
            bytes_out, refused_role, refused_host, refused_origin, refused_connections,
            refused_streams, closed_slow, problems, events, events_lost, connections, streams,
            waiting, cache_entries, cache_bytes;
    } figures;
};

#define COUNT(http, what) atomic_fetch_add_explicit(&(http)->figures.what, 1, memory_order_relaxed)
#define COUNT_ADD(http, what, n) \
    atomic_fetch_add_explicit(&(http)->figures.what, (n), memory_order_relaxed)
#define COUNT_SET(http, what, n) \
    atomic_store_explicit(&(http)->figures.what, (n), memory_order_relaxed)

void http_wake_self(struct http *http);

/* The HTTP server: routes, calls and answers, without knowing what they are about.
 *
 * One thread of the server's own speaks HTTP (libmicrohttpd, epoll): it parses, checks who asks, gives answers
 * that are still fresh again, compresses, and holds the event streams. It never touches what the answers are
 * about: a request that needs that becomes a `call`, which waits in a mailbox until the thread that owns the
 * tables comes for it (http_serve()), runs the route's handler there, and goes back.
 *
 * The table of routes is all there is to know about the API: dispatch, checks of arguments, roles, how long an
 * answer holds and the OpenAPI description come from it.
 *
 * An answer of a GET route with `fresh_ms` is kept for so long by (route, arguments, class of viewer), and the
 * same question that comes while the first is still being answered waits for that answer. So it is rendered,
 * compressed and hashed once, however many ask. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct buffer;
struct http;
struct http_call;
struct json;

enum {
    HTTP_PARAMS_MAX = 16,       /* of one route */
    HTTP_TARGET_MAX = 8 << 10,  /* bytes of a request's path and arguments */
    HTTP_HEADERS_MAX = 8 << 10, /* and of its headers */
    HTTP_BODY_MAX = 64 << 10,   /* that a client may send */
    HTTP_ANSWER_MAX = 64 << 20, /* bytes of one answer */
    HTTP_NAME_MAX = 63,         /* of a viewer */
    HTTP_FROM_MAX = 63,         /* the address of the client */
    HTTP_CODE_MAX = 47,         /* of a problem: "bad-query" */
    HTTP_NODE_TOKEN_MAX = 127,
    HTTP_VIEWER_NOBODY = UINT32_MAX, /* uid of a token that belongs to no user */
};

/* ---- who asks ---- */

enum http_role {
    HTTP_NONE,    /* nobody in particular: what does not have to be known (login) */
    HTTP_READ,    /* may look */
    HTTP_CONTROL, /* may also act, on what is his */
};

enum http_by { HTTP_BY_NOBODY, HTTP_BY_PEER, HTTP_BY_TOKEN, HTTP_BY_SESSION };

struct http_viewer {
    uint32_t uid;  /* whose details he sees, or HTTP_VIEWER_NOBODY: nobody's */
    bool sees_all; /* root: everybody's */
    enum http_role role;
    enum http_by by;
    char name[HTTP_NAME_MAX + 1]; /* of the token, or of the user */
    char from[HTTP_FROM_MAX + 1]; /* numeric address, or "unix" */
};

/* ---- routes ---- */

enum http_in { HTTP_IN_QUERY, HTTP_IN_PATH };
enum http_kind {
    HTTP_TEXT,   /* any bytes but NUL */
    HTTP_NUMBER, /* decimal digits, from min to max (0: no limit) */
    HTTP_YES,    /* yes|no|true|false|1|0; the bare name is yes */
    HTTP_WORD,   /* one of `words` */
};

struct http_param {
    const char *name; /* NULL ends the list */
    enum http_in in;
    enum http_kind kind;
    const char *words; /* of HTTP_WORD: "a|b|c" */
    bool required;     /* those of the path always are */
    const char *help;
    uint64_t min, max; /* of HTTP_NUMBER; of HTTP_TEXT `max` is the most bytes */
};

enum http_where {
    HTTP_ON_LOOP,   /* the thread that owns the tables; must not block */
    HTTP_ON_WORKER, /* a thread for what blocks, where the owner has one that calls http_serve() */
    HTTP_HERE,      /* the server's own thread: what neither blocks nor needs tables */
    HTTP_WHERES,
};

struct http_route {
    const char *method; /* "GET", which answers HEAD too, "POST" */
    const char *path;   /* "/api/v1/processes/{pid}/sites" */
    const char *name;   /* operationId: "processSites" */
    const char *summary;
    const char *help;                /* more sentences, or NULL */
    const struct http_param *params; /* NULL: none */
    const char *body_schema;         /* names in the table of schemas, or NULL */
    const char *answer_schema;
    const char
        *answer_type;    /* content type of the answer where it is not application/json, or NULL */
    enum http_role role; /* that it takes */
    enum http_where where; /* that `answer` runs */
    unsigned fresh_ms; /* how long an answer may be given again; 0: never, and each is its own */
    bool visits;       /* http_visit() may ask it */
    bool may_miss;     /* answers 404 also where the path has no parameter */
    void (*answer)(struct http_call *call, void *context);
};

/* A schema of the OpenAPI description: a JSON Schema (2020-12) object as text. */
struct http_schema {
    const char *name;
    const char *json;
};

/* ---- inside a handler ----
 *
 * A handler answers by exactly one of http_json(), http_text(), http_body(), http_problem() and http_stream(),
 * on the thread that it was called on, before it returns or, after http_later(), until http_done(). All strings
 * live as long as the call. */

/* The value of a parameter, decoded and checked; NULL when it was not given. */
const char *http_argument(const struct http_call *call, const char *name);
/* Of a number: false when it was not given, and the value stays. */
bool http_number(const struct http_call *call, const char *name, uint64_t *ret_number);
/* Of a HTTP_YES; `otherwise` when it was not given. */
bool http_yes(const struct http_call *call, const char *name, bool otherwise);

const struct http_viewer *http_viewer(const struct http_call *call);
const struct http_route *http_route(const struct http_call *call);
struct http *http_server(const struct http_call *call);

/* What the client sent: JSON bytes, not looked at yet (base/json_read.h). Never NULL. */
const char *http_request_body(const struct http_call *call, size_t *ret_len);
/* Of a stream: the Last-Event-ID that the client had before, or NULL. */
const char *http_last_event_id(const struct http_call *call);

/* A token of the node that the call is about, where that is another one (header Memoir-Node-Token); NULL: none was sent. Such a
 * call's answer is not shared. */
const char *http_node_token(const struct http_call *call);

/* Append the path and the arguments as a client would send them, but for the argument `without`. 0 or the buffer's error. */
int http_target(const struct http_call *call, const char *without, struct buffer *out);

/* Begin the 200 answer; the writer is finished by the server. */
struct json *http_json(struct http_call *call);
/* The bytes behind that writer, for what is JSON already. */
struct buffer *http_json_buffer(struct http_call *call);
/* Another status than 200 for http_json() and http_body(): 202, say. */
void http_status(struct http_call *call, int status);
/* Bytes of another type; `filename` makes it a download. Takes the buffer's memory. A buffer that failed becomes
 * a problem. */
void http_body(struct http_call *call, const char *content_type, const char *filename,
               struct buffer *take);

/* RFC 9457. `code` is the last part of its type ("bad-query") and decides the title. */
void http_problem(struct http_call *call, int status, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* After it: further members of the problem object, in a writer of the server's. */
struct json *http_problem_members(struct http_call *call);

/* The handler answers after it returns: the call is its to keep until http_done(), which any thread may call.
 * A client that is gone, or that waited for too long, changes nothing about that. */
void http_later(struct http_call *call);
void http_done(struct http_call *call);
/* Run the handler again later, when the loop has come round: the answer needs something that is on its way. */
void http_again(struct http_call *call);
/* Nobody waits for the answer any more: work for it may end. Any thread. */
bool http_abandoned(const struct http_call *call);
/* How often http_again() was asked for already. */
unsigned http_tries(const struct http_call *call);

/* Did http_visit() make it, rather than a client? */
bool http_is_visit(const struct http_call *call);

/* What a control action did, for the audit: "tracking of 4711 on". Without it the route's name. */
void http_audit(struct http_call *call, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- event streams ----
 *
 * A handler that answers with http_stream() makes its client a subscriber. What is published is rendered once
 * and sent to all of them that may see it; a client that does not read loses the oldest and is told so by an
 * event `lost` {"events":N}. */

/* Who gets an event. */
struct http_audience {
    enum {
        HTTP_TO_ALL,
        HTTP_TO_SEES_ALL,
        HTTP_TO_UID,    /* that user, unless it sees all */
        HTTP_TO_OTHERS, /* all but that user and those who see all */
    } to;
    uint32_t uid;
};

/* The call becomes a stream. `first` (may be NULL) is what it starts with, as http_frame() makes it; its memory
 * is taken. Everything that is published by the same thread after this call arrives, nothing from before. */
void http_stream(struct http_call *call, struct buffer *first);

/* Append one event in the wire's form. `id` 0: none. `json` is one line of JSON. */
void http_frame(struct buffer *out, const char *event, uint64_t id, const char *json, size_t len);

/* Any thread; never blocks. -ENOMEM, or -ENOBUFS when too much waits already. */
int http_stream_publish(struct http *http, const struct http_audience *audience, const char *event,
                        uint64_t id, const char *json, size_t len);

/* For which classes of viewers are there streams? Fills up to `max`, returns how many there are: 0 means that
 * nothing has to be rendered. Any thread. */
size_t http_stream_classes(struct http *http, struct http_audience *ret_classes, size_t max);

/* ---- visits ---- */

/* A call that no client made: the program asks one of its own routes (with `visits`, on the loop) for a viewer. */
struct http_visit {
    const char *method, *target; /* "/api/v1/processes/7?x=y" */
    const void *body;            /* copied */
    size_t body_len;
    const struct http_viewer *viewer; /* copied */
    /* Called once, on any thread, with the answer or a problem; everything is borrowed during the call. */
    void (*done)(void *context, int status, const char *type, const char *filename,
                 const char *bytes, size_t len);
    void *context;
};

/* The thread that owns the tables. 0, and done() is called, perhaps at once; -ENOMEM, and it is not. */
int http_visit(struct http *http, const struct http_visit *visit);

/* ---- the server ---- */

struct http_figures {
    uint64_t requests, answers_kept,
        answers_waited; /* given from what was kept, by waiting for another's */
    uint64_t not_modified, compressed;
    uint64_t bytes_in, bytes_out;
    uint64_t refused_role, refused_host, refused_origin, refused_connections, refused_streams;
    uint64_t closed_slow; /* took too long to ask, or to take the answer */
    uint64_t problems;    /* answers from 400 on */
    uint64_t events, events_lost;
    uint64_t connections, streams, waiting, cache_entries, cache_bytes; /* as of now */
};

/* Any thread. */
void http_figures(struct http *http, struct http_figures *ret_figures);

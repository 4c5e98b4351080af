/* Starting and ending a server, and the thread that comes for its calls: for whoever gives it a place to live.
 * Handlers of routes need only http/http.h. */
#pragma once

#include "http/http.h"

struct http_sessions;

/* One control action, when its answer is known. */
struct http_action {
    const struct http_viewer *viewer;
    const char *method, *path; /* as asked, without arguments */
    const char *what;          /* http_audit(), or the route's name */
    int status;
};

struct http_limits {
    size_t connections_max;         /* in all, */
    size_t connections_address_max; /* of one address, loopback and Unix sockets apart */
    size_t streams_max;             /* in all, */
    size_t streams_viewer_max;      /* and of one viewer other than root */
    size_t cache_bytes_max;         /* answers that are kept */
    size_t answers_bytes_max;       /* that one user's clients have not taken yet */
    uint64_t request_ns;            /* from the first byte of a request to its last */
    uint64_t idle_ns;               /* between two requests of one connection */
    uint64_t answer_ns;             /* for an answer to be made, */
    uint64_t take_ns;               /* and for it to be taken */
};

extern const struct http_limits http_limits_default;

struct http_options {
    const struct http_route *routes; /* all of it borrowed while the server lives */
    size_t n_routes;
    const struct http_schema *schemas;
    size_t n_schemas;
    const char *title, *version; /* of the API description */
    const char *hosts;           /* further names that a Host may have: "a.example b.example" */
    void *context;               /* for handlers and for what follows */

    /* A call waits for http_serve(). Called on the server's thread; must not block. */
    void (*wake)(void *context, enum http_where where);
    /* Who has this token? 0 or -EACCES. On the server's thread. NULL: nobody. */
    int (*token)(void *context, const char *token, struct http_viewer *ret_viewer);
    /* Who is this user? Name and role; uid and sees_all are set. NULL: the number, HTTP_CONTROL. */
    void (*user)(void *context, struct http_viewer *viewer);
    /* On the server's thread. NULL: nowhere. */
    void (*audit)(void *context, const struct http_action *action);
    struct http_sessions *sessions; /* NULL: nobody can log in */
};

int http_new(const struct http_options *options, const struct http_limits *limits,
             struct http **ret_http);

enum http_door { HTTP_DOOR_UNIX, HTTP_DOOR_PLAIN, HTTP_DOOR_TLS };

/* Serve a listening, non-blocking socket, whose descriptor is taken on success. Before http_start(). TLS takes
 * certificate and key (PEM) from http_set_tls(). */
int http_listen(struct http *http, int fd, enum http_door door);
/* Both as PEM text, copied. -EINVAL when they make no sense. Before http_listen(). */
int http_set_tls(struct http *http, const char *certificate, const char *key);

int http_start(struct http *http);

/* Answer calls that wait for `where`, on the thread that it stands for, until none is left or `turn_ns` have
 * passed. True: there are more. `ret_again_ns` (may be NULL): after so long somebody who asked for http_again()
 * wants to be served; 0: nobody does. */
bool http_serve(struct http *http, enum http_where where, uint64_t turn_ns, uint64_t *ret_again_ns);

/* Ends streams, answers what waits with a problem and stops the thread. Calls that are out (http_later()) stay
 * good until http_free(), before which all of them must be done. */
void http_stop(struct http *http);
void http_free(struct http *http); /* NULL is fine */

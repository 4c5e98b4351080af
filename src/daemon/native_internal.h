/* What the files of the native protocol share. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/buffer.h"
#include "base/json.h"
#include "daemon/native.h"
#include "daemon/native_request.h"
#include "daemon/turns.h"

struct behalf;
struct behalf_event;
struct native_trace;
struct past_window;
struct tokens;

/* A device of a client, or at [0] the host: its number in the book, and the accounts that were used. */
struct native_binding {
    bool declared;
    uint16_t device;
    uint16_t accounts[MEMOIR_SPACE_MAX + 1]; /* 0: not asked for yet */
};

struct native_client {
    struct native *native;
    struct conn *conn;
    bool remote;
    bool greeted; /* hello was answered; remote clients need it */
    bool closing;

    /* A remote client, until it is greeted. */
    bool stranger; /* in native->strangers */
    uint64_t token_due_ns;
    TAILQ_ENTRY(native_client) stranger_link;

    /* Who asks. */
    bool sees_all;
    uint32_t viewer_uid;

    /* Who reports. The book is made when it is needed. */
    pid_t pid;                       /* as we see it; of a remote client: as it says */
    uint64_t start_ticks;            /* of that process; 0: it was gone already, or is remote */
    struct behalf *behalf;           /* referenced, or NULL */
    struct native_binding *bindings; /* [0] the host, [1 + number] */
    size_t n_bindings;
    uint64_t session;                 /* what the book knows it by; 0: none */
    uint64_t seq;                     /* last one applied */
    struct native_identity *identity; /* of a remote client */

    struct turn turn;               /* at reading blocks and sites */
    struct native_trace *trace;     /* the request at hand that asks the observer, or NULL */
    struct native_cluster *cluster; /* the same that asks other nodes */

    /* What it subscribed to. */
    struct native_client *next, *previous; /* of those that did */
    uint32_t topics;                       /* enum native_topic; 0: nothing */
    int32_t only_pid;                      /* 0: all */
    uint64_t interval_ns, due_ns;          /* of device totals */
    uint64_t lost;                         /* events, not yet told */
};

/* A remote client as it described itself. */
struct native_identity {
    char token[64], host[64], program[64], command[512];
};

struct native {
    struct daemon *daemon;
    struct native_parser parser; /* of the line at hand */
    struct buffer out;           /* the answer at hand */
    struct tokens *tokens;       /* NULL without TCP */
    uint64_t tokens_refused, refused_said_ns;
    TAILQ_HEAD(, native_client) strangers; /* remote clients without a token so far, oldest first */
    size_t n_strangers;
    uint64_t strangers_said_ns;
    struct native_client *subscribers;
    uint32_t topics;               /* with a subscriber */
    struct buffer devices;         /* the last event about them, for all who want it, */
    uint64_t devices_refreshed_ns; /* from the figures of then, */
    uint64_t devices_until_ns;     /* and not written anew before */
};

/* ---- native.c ---- */

/* Begin an answer in native->out; end it with the request's id and send it. */
void native_answer_begin(struct native *native, struct json *json);
void native_answer_end(struct native_client *client, struct json *json);
void native_refuse(struct native_client *client, const struct native_error *error);

/* ---- native_report.c ---- */

/* The client's book, made if need be; false when there is none, and the client was told. */
bool native_book(struct native_client *client);
void native_book_drop(struct native_client *client);
void native_device(struct native_client *client);
void native_report(struct native_client *client);
void native_reset(struct native_client *client);

/* ---- native_login.c ---- */
void native_login(struct native_client *client);

/* ---- native_query.c ---- */
void native_query(struct native_client *client);

/* The answer is too large for the client: it was told so. */
struct query_error;
bool native_answer_fits(struct native_client *client);

/* A partial result as one JSON value. */
struct query_result;
void native_partial_json(const struct query_result *result, size_t size_max, struct json *json);
void native_refuse_query(struct native_client *client, const struct query_error *wrong);

/* The time that a query is about; all 0: the present. -EINVAL with `ret_error` if it makes no sense. */
int native_window(const struct native_query *query, struct past_window *ret_window,
                  struct query_error *ret_error);

/* How long the query at hand has to wait for its turn; 0: not at all. */
uint64_t native_query_wait(struct native_client *client);

/* ---- native_trace.c ---- */

/* False: the answer is not ready yet, and the line has to be handed over again. */
bool native_trace(struct native_client *client);
void native_trace_drop(struct native_client *client); /* fine where there is none */

/* ---- native_cluster.c ---- */

/* A query of other nodes. False: the answer is not ready yet, and the line has to be handed over again. */
bool native_cluster_query(struct native_client *client);
bool native_cluster_call(struct native_client *client); /* the same for an HTTP call */
void native_cluster_drop(struct native_client *client); /* fine where there is none */
void native_cluster_status(struct native_client *client);

/* ---- native_subscribe.c ---- */
void native_subscribe(struct native_client *client);
void native_unsubscribe(struct native_client *client);
void native_subscriber_forget(struct native_client *client); /* fine for one who never did */

/* What behalf_listen() calls while there are subscribers to reports. */
void native_reported(void *context, const struct behalf *behalf, const struct behalf_event *event);

/* Send what is due at the client's interval, and what it lost. The time until it wants to be called again,
 * 0: not by time. */
uint64_t native_due(struct native_client *client, uint64_t now_ns);

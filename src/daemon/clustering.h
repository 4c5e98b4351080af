/* memoird in a cluster: questions to other nodes, and theirs to us, over src/cluster. All of it is the
 * loop's thread's, and none of it waits for the network.
 *
 * Without a cluster (no NATS server is configured) every call here is fine and says so. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/asking.h"
#include "history/past.h"

struct buffer;
struct cluster;
struct clustering;
struct clustering_ask;
struct daemon;
struct gather;
struct json;
struct query_error;
struct query_spec;

int clustering_new(struct daemon *daemon, struct clustering **ret_clustering);

/* The settings may have changed (memoir cluster init, join, leave): take them up. -errno, and said so in the log. */
int clustering_reload(struct clustering *clustering);

/* Ends what is out: every done() that is still due is called, without an answer. Again is fine. */
void clustering_stop(struct clustering *clustering);
void clustering_free(struct clustering *clustering); /* NULL is fine */

/* The cluster, or NULL: this memoird is in none. */
struct cluster *clustering_cluster(const struct clustering *clustering);

/* What this node is called in the column `node`; NULL: by its host name. */
const char *clustering_node_name(const struct clustering *clustering);

/* The user on whose behalf other nodes are asked. */
struct clustering_viewer {
    struct asking_viewer local;
    const char *user;  /* its name here, for nodes that trust us to vouch; NULL: none */
    const char *token; /* of the target; NULL: none */
};

/* `gather` is NULL when memoird ends first; else it is the callee's to look at until it returns. */
typedef void clustering_done(void *context, struct gather *gather);

/* Choose a step that all nodes can answer in: not finer than asked for, a multiple of what they keep of that time. */
void clustering_window_settle(struct past_window *window);

/* Ask all nodes, or one. `window` may be NULL. 0, and done() is called once, later; -EINVAL with `ret_error`; -ENOTCONN: there is no
 * cluster; -ENOENT, -ENOTUNIQ: of `node`; -EBUSY; -EUSERS; -ENOMEM. */
int clustering_query(struct clustering *clustering, const struct query_spec *spec,
                     const struct past_window *window, const char *node,
                     const struct clustering_viewer *viewer, clustering_done *done, void *context,
                     struct clustering_ask **ret_ask, struct query_error *ret_error);

/* An HTTP call that another node answers, with the rights that the viewer has there. */
struct clustering_request {
    const char *node, *method, *target;
    const void *body;
    size_t body_len;
};

/* The same errors as above. `ret_self`: the node is this one, and nothing was sent. */
int clustering_call(struct clustering *clustering, const struct clustering_request *request,
                    const struct clustering_viewer *viewer, clustering_done *done, void *context,
                    struct clustering_ask **ret_ask, bool *ret_self);

/* What gather_body() holds then. Untrusted: -EBADMSG. `body` borrows from the bytes. */
struct clustering_called {
    int status;
    char type[64], filename[128];
    const char *body;
    size_t body_len;
};
int clustering_called_read(const struct buffer *bytes, struct clustering_called *ret);

/* Drop the question: done() is not called. NULL is fine. */
void clustering_drop(struct clustering_ask *ask);

/* Such an error for people. */
const char *clustering_error(int error);

/* Members, connection and figures, into an open object. */
void clustering_json(struct clustering *clustering, struct json *json);

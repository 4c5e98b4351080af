/* Queries of other nodes by native clients: {"query":{...,"scope":"cluster"}} and "node"; {"call":{...}}, an HTTP call that
 * another node answers; {"cluster":"status"}.
 *
 * The request's line waits at the connection until the answer is there, as with native_trace.c: it is handed over
 * again every CLUSTER_LOOK_MS. So answers keep their order. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "cluster/gather.h"
#include "daemon/asking.h"
#include "daemon/clustering.h"
#include "daemon/daemon.h"
#include "daemon/native_internal.h"
#include "daemon/server.h"
#include "query/query.h"

enum { CLUSTER_LOOK_MS = 1 };

struct native_cluster {
    struct clustering_ask *ask; /* until it is done */
    bool done;
    const char *key;       /* of the answer: "result", "partial" or "call" */
    bool ended;            /* memoird exits */
    struct buffer out;     /* the value of "result" or "partial" */
    struct buffer summary; /* and of "cluster" */
};

void native_cluster_drop(struct native_client *client)
{
    struct native_cluster *n = client->cluster;
    if (!n)
        return;
    clustering_drop(n->ask);
    buffer_release(&n->out);
    buffer_release(&n->summary);
    free(n);
    client->cluster = NULL;
}

static void on_done(void *context, struct gather *gather)
{
    struct native_cluster *n = context;
    struct json json;
    n->ask = NULL;
    n->done = true;
    n->ended = !gather;
    if (!gather)
        return;
    json_init(&json, &n->out);
    if (strcmp(n->key, "partial") == 0) {
        native_partial_json(gather_result(gather), n->out.limit, &json);
    } else {
        json_object_begin(&json);
        query_result_json(gather_result(gather), &json);
        json_object_end(&json);
    }
    (void)json_finish(&json);
    json_init(&json, &n->summary);
    gather_json(gather, &json);
    (void)json_finish(&json);
}

static void refuse(struct native_client *client, int error)
{
    struct native_error e;
    native_error_set(&e,
                     error == -ENOTCONN                    ? "no-cluster"
                     : error == -ENOENT                    ? "no-node"
                     : error == -ENOTUNIQ                  ? "no-node"
                     : error == -EBUSY || error == -EUSERS ? "limit"
                                                           : "internal",
                     "%s", clustering_error(error));
    native_refuse(client, &e);
}

static struct clustering_viewer viewer_of(const struct native_client *client, const char *token)
{
    struct asking *asking = client->native->daemon->asking;
    return (struct clustering_viewer){
        .local = {.sees_all = client->sees_all, .uid = client->viewer_uid},
        .user = client->remote ? NULL : asking_user_name(asking, client->viewer_uid),
        .token = token[0] ? token : NULL,
    };
}

static struct native_cluster *native_cluster_new(const struct daemon *daemon, const char *key)
{
    struct native_cluster *n = calloc(1, sizeof(*n));
    if (!n)
        return NULL;
    n->key = key;
    buffer_init(&n->out, daemon->server->limits.queue_max);
    buffer_init(&n->summary, daemon->server->limits.queue_max);
    return n;
}

/* False: it failed, and the client has its error. */
static bool begin(struct native_client *client)
{
    struct daemon *daemon = client->native->daemon;
    const struct native_query *q = &client->native->parser.request.query;
    struct query_error wrong = {0};
    struct query_spec spec = {.table = q->table,
                              .by = q->by,
                              .where = q->where,
                              .show = q->show,
                              .sort = q->sort,
                              .limit = q->limit};
    struct clustering_viewer viewer = viewer_of(client, q->token);
    struct native_cluster *n = native_cluster_new(daemon, q->partial ? "partial" : "result");
    if (!n) {
        refuse(client, -ENOMEM);
        return false;
    }
    struct past_window window;
    int r = native_window(q, &window, &wrong);
    if (r == 0)
        r = clustering_query(daemon->clustering, &spec, window.until_s ? &window : NULL,
                             q->node[0] ? q->node : NULL, &viewer, on_done, n, &n->ask, &wrong);
    if (r < 0) {
        free(n);
        if (r == -EINVAL && wrong.text[0])
            native_refuse_query(client, &wrong);
        else
            refuse(client, r);
        return false;
    }
    client->cluster = n;
    return true;
}

static void answer(struct native_client *client, const struct native_cluster *n)
{
    struct native *native = client->native;
    struct json json;
    int error = n->ended ? -ESHUTDOWN : n->out.error ? n->out.error : n->summary.error;
    if (error) {
        refuse(client, error);
        return;
    }
    native_answer_begin(native, &json);
    json_key(&json, n->key);
    json_raw(&json, n->out.data, n->out.len);
    json_key(&json, "cluster");
    json_raw(&json, n->summary.data, n->summary.len);
    native->daemon->server->figures.queries++;
    if (native_answer_fits(client))
        native_answer_end(client, &json);
}

static bool answer_when_done(struct native_client *client)
{
    if (!client->cluster->done) {
        conn_hold(client->conn, CLUSTER_LOOK_MS * NS_PER_MS);
        return false;
    }
    answer(client, client->cluster);
    native_cluster_drop(client);
    return true;
}

/* ---- calls ---- */

/* {"status":200,"type":"application/json","body":"..."} into `out`, and the nodes that answered into `summary`. */
static void on_called(void *context, struct gather *gather)
{
    struct native_cluster *n = context;
    struct clustering_called called;
    struct json json;
    n->ask = NULL;
    n->done = true;
    n->ended = !gather;
    if (!gather)
        return;
    const struct buffer *bytes = gather_body(gather);
    json_init(&json, &n->out);
    if (bytes && clustering_called_read(bytes, &called) == 0) {
        json_object_begin(&json);
        json_field_u64(&json, "status", (uint64_t)called.status);
        json_field_string(&json, "type", called.type);
        json_key(&json, "body");
        json_string_n(&json, called.body, called.body_len);
        json_object_end(&json);
    } else {
        json_null(&json);
    }
    (void)json_finish(&json);
    json_init(&json, &n->summary);
    gather_json(gather, &json);
    (void)json_finish(&json);
}

static bool begin_call(struct native_client *client)
{
    struct daemon *daemon = client->native->daemon;
    const struct native_call *call = &client->native->parser.request.call;
    struct clustering_viewer viewer = viewer_of(client, call->token);
    struct native_cluster *n = native_cluster_new(daemon, "call");
    bool self = false;
    int r = n ? clustering_call(
                    daemon->clustering,
                    &(struct clustering_request){.node = call->node,
                                                 .method = call->method[0] ? call->method : "GET",
                                                 .target = call->target,
                                                 .body = call->body,
                                                 .body_len = strlen(call->body)},
                    &viewer, on_called, n, &n->ask, &self)
              : -ENOMEM;
    if (r < 0 || self) {
        free(n);
        refuse(client, r < 0 ? r : -ELOOP);
        return false;
    }
    client->cluster = n;
    return true;
}

bool native_cluster_call(struct native_client *client)
{
    if (!client->cluster && !begin_call(client))
        return true;
    return answer_when_done(client);
}

/* ---- queries ---- */

bool native_cluster_query(struct native_client *client)
{
    if (!client->cluster && !begin(client))
        return true;
    return answer_when_done(client);
}

/* For users that may stop memoird: its own and root. */
static bool reload(struct native_client *client)
{
    struct native_error error;
    bool may = !client->remote && (client->viewer_uid == 0 || client->viewer_uid == geteuid());
    struct clustering *clustering = client->native->daemon->clustering;
    int r = may && clustering ? clustering_reload(clustering) : 0;
    if (may && r >= 0)
        return true;
    if (may)
        native_error_set(&error, "internal", "cannot join the cluster: %s", strerror(-r));
    else
        native_error_set(&error, "forbidden", "only for the user that memoird runs as");
    native_refuse(client, &error);
    return false;
}

void native_cluster_status(struct native_client *client)
{
    struct json json;
    if (client->native->parser.request.cluster_reload && !reload(client))
        return;
    native_answer_begin(client->native, &json);
    json_key(&json, "cluster");
    json_object_begin(&json);
    clustering_json(client->native->daemon->clustering, &json);
    json_object_end(&json);
    native_answer_end(client, &json);
}

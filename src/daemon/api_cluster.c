/* The cluster over HTTP: its members, and questions to all nodes or to another one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "cluster/gather.h"
#include "daemon/api_history.h"
#include "daemon/api_internal.h"
#include "daemon/clustering.h"
#include "daemon/daemon.h"
#include "daemon/server.h"
#include "query/query.h"
#include "query/spread.h"

enum { PROGRAMS_SHOWN = 60, NODES_SHOWN = 64 };

void api_answer_cluster(struct http_call *call, void *context)
{
    struct daemon *daemon = context;
    struct json *json = http_json(call);
    api_json_begin(json, "memoir.cluster/3");
    clustering_json(daemon->clustering, json);
    json_object_end(json);
}

void api_cluster_failed(struct http_call *call, int error)
{
    if (error == -ENOTCONN)
        http_problem(call, 409, "no-cluster", "%s", clustering_error(error));
    else if (error == -ENOENT || error == -ENOTUNIQ)
        http_problem(call, 404, "no-node", "%s", clustering_error(error));
    else if (error == -EUSERS)
        http_problem(call, 429, "busy", "%s", clustering_error(error));
    else if (error == -EBUSY)
        http_problem(call, 503, "busy", "%s", clustering_error(error));
    else if (error == -ESHUTDOWN)
        http_problem(call, 503, "ending", "memoird exits");
    else
        api_failed(call, "the query failed", error);
}

static void on_done(void *context, struct gather *gather)
{
    struct http_call *call = context;
    if (!gather) {
        api_cluster_failed(call, -ESHUTDOWN);
        http_done(call);
        return;
    }
    const char *shape = http_argument(call, "shape");
    struct json *json = http_json(call);
    api_json_begin(json, "memoir.query/1");
    if (shape && strcmp(shape, "arrays") == 0)
        query_result_arrays(gather_result(gather), json);
    else
        query_result_json(gather_result(gather), json);
    json_key(json, "cluster");
    gather_json(gather, json);
    json_object_end(json);
    http_done(call);
}

bool api_cluster_wanted(const struct http_call *call)
{
    const char *scope = http_argument(call, "scope");
    return http_argument(call, "node") || (scope && strcmp(scope, "cluster") == 0);
}

/* Another node's question is not handed on: this node would vouch for a user of that one, whom the third may not trust, and one
 * message could make this node ask all. */
static bool refuse_to_hand_on(struct http_call *call)
{
    if (!http_is_visit(call))
        return false;
    http_problem(call, 403, "handed-on",
                 "a question of another node is answered here only: ask the third node directly");
    return true;
}

/* node: which one is asked, or NULL for all; a token is for one. */
static struct clustering_viewer asker_of(struct http_call *call, const struct daemon *daemon,
                                         const char *node)
{
    uint32_t uid = http_viewer(call)->uid;
    return (struct clustering_viewer){
        .local = api_viewer(call),
        .user = uid == HTTP_VIEWER_NOBODY ? NULL : asking_user_name(daemon->asking, uid),
        .token = node ? http_node_token(call) : NULL,
    };
}

void api_cluster_query(struct http_call *call, struct daemon *daemon, const struct query_spec *spec)
{
    struct query_error wrong = {0};
    struct clustering_ask *ask;
    struct clustering_viewer asker = asker_of(call, daemon, http_argument(call, "node"));
    struct past_window window = {0};
    const struct query_table *table = query_table_find(spec->table ? spec->table : "");
    bool past = table && table->needs & QUERY_NEEDS_HISTORY;
    if (refuse_to_hand_on(call))
        return;
    if (past && !api_history_window(call, &window))
        return;
    if (past)
        clustering_window_settle(&window);
    int r = clustering_query(daemon->clustering, spec, past ? &window : NULL,
                             http_argument(call, "node"), &asker, on_done, call, &ask, &wrong);
    if (r == -EINVAL && wrong.text[0]) {
        api_bad_query(call, &wrong);
        return;
    }
    if (r < 0) {
        api_cluster_failed(call, r);
        return;
    }
    http_later(call);
    daemon->server->figures.queries++;
}

/* ---- programs across nodes ---- */

static const char *measure_of(const struct http_call *call)
{
    const char *measure = http_argument(call, "measure");
    return measure ? measure : "rss";
}

static uint64_t number_of(struct http_call *call, const char *name, uint64_t otherwise)
{
    uint64_t number = otherwise;
    (void)http_number(call, name, &number);
    return number;
}

static void on_programs(void *context, struct gather *gather)
{
    struct http_call *call = context;
    MEMOIR_CLEANUP(spread_freep)
    struct spread *spread = NULL;
    int r = gather ? spread_new(gather_result(gather), gather_query(gather), &spread) : -ESHUTDOWN;
    if (r < 0) {
        api_cluster_failed(call, r);
        http_done(call);
        return;
    }
    struct json *json = http_json(call);
    api_json_begin(json, "memoir.cluster-programs/1");
    json_field_string(json, "measure", measure_of(call));
    json_field_u64(json, "programs_total", spread->n);
    json_key(json, "programs");
    spread_json(spread, number_of(call, "limit", PROGRAMS_SHOWN),
                number_of(call, "nodes", NODES_SHOWN), json);
    json_key(json, "cluster");
    gather_json(gather, json);
    json_object_end(json);
    http_done(call);
}

void api_answer_cluster_programs(struct http_call *call, void *context)
{
    struct daemon *daemon = context;
    struct query_error wrong = {0};
    struct clustering_ask *ask;
    struct clustering_viewer asker = asker_of(call, daemon, NULL);
    struct query_spec spec;
    char show[SPREAD_SHOW_MAX];
    if (refuse_to_hand_on(call))
        return;
    spread_spec(measure_of(call), http_argument(call, "where"), show, &spec);
    int r = clustering_query(daemon->clustering, &spec, NULL, NULL, &asker, on_programs, call, &ask,
                             &wrong);
    if (r == -EINVAL && wrong.text[0]) {
        api_bad_query(call, &wrong);
    } else if (r < 0) {
        api_cluster_failed(call, r);
    } else {
        http_later(call);
        daemon->server->figures.queries++;
    }
}

/* ---- calls to another node ---- */

/* Types of answers are static texts; another version may have others. */
static const char *type_of(const char *type)
{
    static const char *const types[] = {"application/json", "application/problem+json",
                                        "text/plain; charset=utf-8"};
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (strcmp(types[i], type) == 0)
            return types[i];
    return "application/octet-stream";
}

static void call_failed(struct http_call *call, struct gather *gather)
{
    size_t n;
    const struct gather_node *nodes = gather_nodes(gather, &n);
    if (n && nodes[0].state == GATHER_REFUSED)
        http_problem(call, 403, "refused", "node %s: %s", nodes[0].label, nodes[0].why);
    else
        http_problem(call, 504, "no-answer", "node %s does not answer: %s", n ? nodes[0].label : "",
                     n ? nodes[0].why : "it is gone");
}

static void on_called(void *context, struct gather *gather)
{
    struct http_call *call = context;
    struct clustering_called called;
    struct buffer body = BUFFER_INIT(HTTP_ANSWER_MAX);
    const struct buffer *bytes = gather ? gather_body(gather) : NULL;
    if (!gather)
        api_cluster_failed(call, -ESHUTDOWN);
    else if (!bytes)
        call_failed(call, gather);
    else if (clustering_called_read(bytes, &called) < 0)
        http_problem(call, 502, "no-answer", "the node's answer was invalid");
    else if (buffer_append(&body, called.body, called.body_len) < 0)
        api_failed(call, "no room for the answer", body.error);
    else {
        http_body(call, type_of(called.type), called.filename[0] ? called.filename : NULL, &body);
        http_status(call, called.status);
    }
    buffer_release(&body);
    http_done(call);
}

bool api_cluster_call(struct http_call *call, struct daemon *daemon, const char *node)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer target = BUFFER_INIT(HTTP_TARGET_MAX);
    struct clustering_ask *ask;
    bool self = false;
    struct clustering_viewer asker = asker_of(call, daemon, http_argument(call, "node"));
    size_t len;
    const char *body = http_request_body(call, &len);
    if (refuse_to_hand_on(call))
        return true;
    int r = http_target(call, "node", &target);
    if (r >= 0)
        r = clustering_call(daemon->clustering,
                            &(struct clustering_request){.node = node,
                                                         .method = http_route(call)->method,
                                                         .target = buffer_string(&target),
                                                         .body = body,
                                                         .body_len = len},
                            &asker, on_called, call, &ask, &self);
    if (r >= 0 && self)
        return false;
    if (r < 0) {
        api_cluster_failed(call, r);
        return true;
    }
    if (http_route(call)->role == HTTP_CONTROL)
        http_audit(call, "%s at node %s", http_route(call)->name, node);
    http_later(call);
    return true;
}

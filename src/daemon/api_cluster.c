/* The cluster over HTTP: who is in it, and questions to all nodes or to another one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cluster/gather.h"
#include "daemon/api_internal.h"
#include "daemon/clustering.h"
#include "daemon/daemon.h"
#include "daemon/server.h"
#include "query/query.h"

void api_answer_cluster(struct http_call *call, void *context)
{
    struct daemon *daemon = context;
    struct json *json = http_json(call);
    api_json_begin(json, "memoir.cluster/1");
    clustering_json(daemon->clustering, json);
    json_object_end(json);
}

void api_cluster_failed(struct http_call *call, int error)
{
    if (error == -ENOTCONN)
        http_problem(call, 409, "no-cluster", "%s", clustering_error(error));
    else if (error == -ENOENT || error == -ENOTUNIQ)
        http_problem(call, 404, "no-node", "%s", clustering_error(error));
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

void api_cluster_query(struct http_call *call, struct daemon *daemon, const struct query_spec *spec)
{
    const struct http_viewer *viewer = http_viewer(call);
    struct query_error wrong = {0};
    struct clustering_ask *ask;
    struct clustering_viewer asker = {
        .local = api_viewer(call),
        .user = viewer->uid == HTTP_VIEWER_NOBODY ? NULL
                                                  : asking_user_name(daemon->asking, viewer->uid),
    };
    int r = clustering_query(daemon->clustering, spec, http_argument(call, "node"), &asker, on_done,
                             call, &ask, &wrong);
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

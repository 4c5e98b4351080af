/* HTTP calls between nodes: any route of another node, asked through this one, with the rights that the target grants. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/varint.h"
#include "daemon/clustering_internal.h"
#include "daemon/daemon.h"
#include "daemon/web.h"
#include "http/http.h"

enum { CALL_S = 10, CALL_MAX = HTTP_TARGET_MAX + HTTP_BODY_MAX + 64 };

/* ---- asking ---- */

int clustering_call(struct clustering *c, const struct clustering_request *request,
                    const struct clustering_viewer *viewer, clustering_done *done, void *context,
                    struct clustering_ask **ret_ask, bool *ret_self)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer body = BUFFER_INIT(CALL_MAX);
    char id[SUBJECT_ID_CHARS + 1];
    if (!c || !c->cluster)
        return -ENOTCONN;
    int r = cluster_find(c->cluster, request->node, id, ret_self);
    if (r < 0 || *ret_self)
        return r;
    buffer_append(&body, request->method, strlen(request->method) + 1);
    buffer_append(&body, request->target, strlen(request->target) + 1);
    buffer_append(&body, request->body, request->body_len);
    if (body.error)
        return body.error;
    struct cluster_wish wish = {.node = id,
                                .what = MESSAGE_CALL,
                                .body = body.data,
                                .body_len = body.len,
                                .deadline_ns = CALL_S * NS_PER_S};
    return clustering_ask_begin(c, &wish, viewer, done, context, ret_ask);
}

static bool take_text(struct varint_reader *in, char *ret_text, size_t size)
{
    uint64_t len = varint_take(in);
    const uint8_t *bytes = varint_bytes(in, len < size ? (size_t)len : varint_left(in) + 1);
    if (!bytes)
        return false;
    memcpy(ret_text, bytes, (size_t)len);
    ret_text[len] = '\0';
    for (const char *at = ret_text; *at; at++)
        if (*at < ' ' || *at > '~' || *at == '"')
            return false;
    return strlen(ret_text) == len;
}

int clustering_called_read(const struct buffer *bytes, struct clustering_called *ret)
{
    struct varint_reader in = varint_reader(buffer_string(bytes), bytes->len);
    uint64_t status = varint_take(&in);
    if (in.bad || status < 200 || status > 599 || !take_text(&in, ret->type, sizeof(ret->type)) ||
        !take_text(&in, ret->filename, sizeof(ret->filename)))
        return -EBADMSG;
    ret->status = (int)status;
    ret->body = (const char *)in.at;
    ret->body_len = varint_left(&in);
    return 0;
}

/* ---- answering ---- */

static void put_text(struct buffer *out, const char *text)
{
    varint_put(out, strlen(text));
    buffer_append_str(out, text);
}

/* Any thread. */
static void on_visited(void *context, int status, const char *type, const char *filename,
                       const char *bytes, size_t len)
{
    struct clustering_visit *visit = context;
    struct clustering *c = visit->clustering;
    struct buffer out = BUFFER_INIT(GATHER_REPLY_MAX);
    varint_put(&out, (uint64_t)status);
    put_text(&out, type ? type : "");
    put_text(&out, filename ? filename : "");
    buffer_append(&out, bytes, len);
    pthread_mutex_lock(&c->visits_lock);
    if (visit->question && out.error)
        cluster_refuse(c->cluster, visit->question, "the answer is too large: ask for less");
    else if (visit->question)
        cluster_answer(c->cluster, visit->question, out.data, out.len);
    LIST_REMOVE(visit, link);
    pthread_mutex_unlock(&c->visits_lock);
    buffer_release(&out);
    free(visit);
}

/* Method and target, each ended by NUL. */
static bool body_split(const struct message_ask *ask, struct http_visit *visit)
{
    const char *at = (const char *)ask->body, *end = at + ask->body_len;
    const char *method_end = memchr(at, '\0', ask->body_len);
    const char *target = method_end ? method_end + 1 : end;
    const char *target_end = target < end ? memchr(target, '\0', (size_t)(end - target)) : NULL;
    if (!target_end)
        return false;
    visit->method = at;
    visit->target = target;
    visit->body = target_end + 1;
    visit->body_len = (size_t)(end - target_end - 1);
    return true;
}

void clustering_take_call(struct clustering *c, struct cluster_question *question,
                          const struct clustering_rights *rights)
{
    struct web *web = c->daemon->web;
    struct http_viewer viewer = {
        .uid = rights->viewer.uid,
        .sees_all = rights->viewer.sees_all,
        .role = rights->control ? HTTP_CONTROL : HTTP_READ,
        .by = question->ask.rights.key ? HTTP_BY_TOKEN : HTTP_BY_PEER,
    };
    snprintf(viewer.name, sizeof(viewer.name), "%.*s", HTTP_NAME_MAX, rights->who);
    snprintf(viewer.from, sizeof(viewer.from), "node %.*s", HTTP_FROM_MAX - 5,
             question->asker_label);
    struct http_visit ask = {.viewer = &viewer, .done = on_visited};
    const char *why = !web                                ? "this node serves no HTTP API"
                      : !body_split(&question->ask, &ask) ? "invalid question"
                                                          : NULL;
    struct clustering_visit *visit = why ? NULL : malloc(sizeof(*visit));
    if (!visit) {
        cluster_refuse(c->cluster, question, why ? why : "out of memory");
        return;
    }
    *visit = (struct clustering_visit){.clustering = c, .question = question};
    ask.context = visit;
    pthread_mutex_lock(&c->visits_lock);
    LIST_INSERT_HEAD(&c->visits, visit, link);
    pthread_mutex_unlock(&c->visits_lock);
    if (http_visit(web_http(web), &ask) < 0)
        on_visited(visit, 500, "application/problem+json", NULL, "", 0);
}

void clustering_calls_stop(struct clustering *c)
{
    struct clustering_visit *visit;
    pthread_mutex_lock(&c->visits_lock);
    LIST_FOREACH(visit, &c->visits, link)
    {
        if (visit->question)
            cluster_refuse(c->cluster, visit->question, "memoird exits");
        visit->question = NULL;
    }
    pthread_mutex_unlock(&c->visits_lock);
}

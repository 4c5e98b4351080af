/* Calls that no client of ours made: another part of the program asks a route on behalf of a viewer. See http.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "http/internal.h"

static int refuse(const struct http_visit *visit, int status, const char *code, const char *detail)
{
    struct buffer out = BUFFER_INIT(64 << 10);
    problem_write(&out, status, code, detail, NULL, NULL, 0);
    visit->done(visit->context, status, "application/problem+json", NULL, buffer_string(&out),
                out.len);
    buffer_release(&out);
    return 0;
}

static struct http_call *call_make(struct http *http, const struct http_visit *visit,
                                   const struct http_route *route, const char *path)
{
    struct http_call *call = calloc(1, sizeof(*call));
    if (!call)
        return NULL;
    call->letter.kind = LETTER_CALL;
    call->letter.lane = call->viewer_lane = LANES - 1;
    call->http = http;
    call->route = route;
    call->viewer = *visit->viewer;
    call->path = strdup(path);
    call->body_len = visit->body_len;
    call->body = visit->body_len ? malloc(visit->body_len + 1) : NULL;
    if (call->body) {
        memcpy(call->body, visit->body, visit->body_len);
        call->body[visit->body_len] = '\0';
    }
    buffer_init(&call->out, HTTP_ANSWER_MAX);
    if (!call->path || (visit->body_len && !call->body)) {
        call_free(call);
        return NULL;
    }
    return call;
}

static int begin(struct http *http, const struct http_visit *visit, const struct target *target)
{
    char error[ARGUMENT_ERROR_MAX];
    struct route_match match;
    router_match(http->router, visit->method, target->path, &match);
    const struct http_route *route = match.route;
    if (!route || !route->visits || route->where != HTTP_ON_LOOP)
        return refuse(visit, 404, "not-found", "this version of Memoir does not answer that here");
    if (route->role > visit->viewer->role)
        return refuse(visit, 403, "forbidden",
                      "this needs a right on that node: a token of it with the role control, or a "
                      "node that it trusts");
    struct http_call *call = call_make(http, visit, route, target->path);
    if (!call)
        return -ENOMEM;
    int r = arguments_read(&match, target, &call->arguments, error);
    if (r < 0) {
        call_free(call);
        return r == -EINVAL ? refuse(visit, 400, "bad-argument", error) : r;
    }
    call->visited = visit->done;
    call->visit_context = visit->context;
    if (mailbox_put(&http->to[HTTP_ON_LOOP], &call->letter))
        http->options.wake(http->options.context, HTTP_ON_LOOP);
    return 0;
}

int http_visit(struct http *http, const struct http_visit *visit)
{
    struct target target;
    const char *error = NULL;
    if (visit->body_len > HTTP_BODY_MAX)
        return refuse(visit, 413, "too-large", "the body is too large");
    int r = target_parse(visit->target, &target, &error);
    if (r < 0)
        return r == -ENOMEM ? r : refuse(visit, 400, "bad-argument", error ? error : "bad target");
    r = begin(http, visit, &target);
    target_release(&target);
    return r;
}

bool http_is_visit(const struct http_call *call)
{
    return call->visited != NULL;
}

bool visit_answered(struct http_call *call)
{
    if (!call->visited)
        return false;
    bool stream = call->answer == CALL_STREAM;
    void (*visited)(void *, int, const char *, const char *, const char *, size_t) = call->visited;
    call->visited = NULL; /* once */
    visited(call->visit_context, stream ? 501 : call->status, call->type, call->filename,
            stream ? "" : buffer_string(&call->out), stream ? 0 : call->out.len);
    return true;
}

void visit_dropped(struct http_call *call)
{
    if (call->visited)
        call->visited(call->visit_context, 503, "application/problem+json", NULL, "", 0);
    call->visited = NULL;
}

/* ---- the other way: what was asked, to be asked elsewhere ---- */

static void put_escaped(struct buffer *out, const char *text, const char *plain)
{
    static const char hex[] = "0123456789ABCDEF";
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool safe = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    strchr(plain, c);
        if (safe) {
            buffer_append_char(out, (char)c);
            continue;
        }
        buffer_append_char(out, '%');
        buffer_append_char(out, hex[c >> 4]);
        buffer_append_char(out, hex[c & 15]);
    }
}

int http_target(const struct http_call *call, const char *without, struct buffer *out)
{
    const struct arguments *a = &call->arguments;
    char sign = '?';
    put_escaped(out, call->path, "/-._~");
    for (size_t i = 0; i < a->n; i++) {
        const struct http_param *param = &a->params[i];
        if (!a->values[i] || param->in != HTTP_IN_QUERY || strcmp(param->name, without) == 0)
            continue;
        buffer_append_char(out, sign);
        buffer_append_str(out, param->name);
        buffer_append_char(out, '=');
        put_escaped(out, a->values[i], "-._~,:");
        sign = '&';
    }
    return out->error;
}

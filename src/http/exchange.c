/* One request: who asks, what for, may he, and how he gets his answer. */
#include "http/exchange.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/accountable.h"
#include "base/clock.h"
#include "base/hash.h"
#include "http/headers.h"
#include "http/question.h"
#include "http/session.h"
#include "http/static.h"
#include "http/stream.h"

enum {
    CALLS_WAITING_MAX = 1024,    /* of one lane for one thread; more are told to come again */
    FAILED_DELAY_NS = 500000000, /* a wrong credential is answered after so long, */
    HELD_SHARE = 8,              /* unless one in so many places is taken by such ones already */
    ANSWER_SMALL = 64 << 10,     /* bytes; there are not more of them than connections */
    UNTAKEN_ALL = 12, /* times what one user may leave untaken, all users together may; */
    UNTAKEN_PART = 8, /* beyond it one user may leave one part in so many */
};

/* What we look at of the headers; NULL: not sent. They live as long as the request. */
struct heads {
    const char *host, *origin, *cookie, *authorization, *content_type, *fetch_site, *last_event_id,
        *node_token;
    size_t n_length, n_host, n_cookie, bytes;
    bool transfer_encoding, malformed;
    uint64_t length;
};

/* ---- headers ---- */

static void length_add(struct heads *heads, const char *value)
{
    char *end;
    heads->n_length++;
    errno = 0;
    heads->length = strtoull(value, &end, 10);
    if (errno || value[0] < '0' || value[0] > '9' || *end)
        heads->malformed = true;
}

static enum MHD_Result head_add(void *context, enum MHD_ValueKind kind, const char *key,
                                size_t key_size, const char *value, size_t value_size)
{
    struct heads *heads = context;
    static const struct {
        const char *name;
        size_t offset;
    } known[] = {
        {"Origin", offsetof(struct heads, origin)},
        {"Authorization", offsetof(struct heads, authorization)},
        {"Content-Type", offsetof(struct heads, content_type)},
        {"Sec-Fetch-Site", offsetof(struct heads, fetch_site)},
        {"Last-Event-ID", offsetof(struct heads, last_event_id)},
        {"Memoir-Node-Token", offsetof(struct heads, node_token)},
    };
    (void)kind;
    heads->bytes += key_size + value_size + 4;
    if (!value || strlen(value) != value_size || strlen(key) != key_size) {
        heads->malformed = heads->malformed || value_size > 0;
        return MHD_YES;
    }
    switch (key_size) {
    case 4:
        if (strcasecmp(key, "Host") == 0) {
            heads->host = value;
            heads->n_host++;
        }
        return MHD_YES;
    case 6:
        if (strcasecmp(key, "Cookie") == 0) {
            heads->cookie = value;
            heads->n_cookie++;
        }
        break;
    case 14:
        if (strcasecmp(key, "Content-Length") == 0)
            length_add(heads, value);
        break;
    case 17:
        if (strcasecmp(key, "Transfer-Encoding") == 0)
            heads->transfer_encoding = true;
        break;
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (strcasecmp(key, known[i].name) == 0) {
            const char **slot = (const char **)((char *)heads + known[i].offset);
            heads->malformed = heads->malformed || *slot; /* twice */
            *slot = value;
        }
    return MHD_YES;
}

/* ---- checks, each of which gives the answer that refuses, or NULL ---- */

/* Where two servers may disagree about where a request ends, somebody smuggles the next one in between. */
static struct answer *check_framing(const struct exchange *exchange, const struct heads *heads,
                                    bool has_body)
{
    const char *path = exchange->target.path;
    struct answer *answer = NULL;
    if (heads->malformed || heads->n_length > 1 || heads->n_host > 1 ||
        (heads->transfer_encoding && heads->n_length))
        answer = answer_problem(400, "bad-headers", path,
                                "a header that may be sent once came twice, or makes no sense");
    else if (heads->bytes > HTTP_HEADERS_MAX)
        answer = answer_problem(431, "headers-too-large", path,
                                "all headers together may have %d bytes", HTTP_HEADERS_MAX);
    else if (heads->transfer_encoding)
        answer = answer_problem(411, "length-required", path,
                                "send Content-Length instead of Transfer-Encoding");
    else if (heads->length > 0 && !has_body)
        answer = answer_problem(400, "unexpected-body", path, "this request has no body");
    else if (heads->length > HTTP_BODY_MAX)
        answer =
            answer_problem(413, "body-too-large", path, "a body may have %d bytes", HTTP_BODY_MAX);
    if (answer)
        answer->closes = true;
    return answer;
}

static struct answer *check_host(struct exchange *exchange, const struct heads *heads,
                                 struct host *ret_host)
{
    struct http *http = exchange->http;
    const char *path = exchange->target.path;
    bool tls = exchange->conn->door->kind == HTTP_DOOR_TLS;
    bool local = exchange->conn->door->kind == HTTP_DOOR_UNIX;
    if (!heads->host || host_parse(heads->host, ret_host) < 0) {
        if (local && !heads->origin) {
            *ret_host = (struct host){.name = "localhost"};
            return NULL;
        }
        COUNT(http, refused_host);
        return answer_problem(400, "bad-host", path,
                              "the Host header is missing or makes no sense");
    }
    /* An address is not a name that somebody else could have pointed at us. */
    bool own = exchange->conn->own[0] && strcmp(ret_host->name, exchange->conn->own) == 0;
    if (!local && !own && !host_is_ours(ret_host, http->hosts)) {
        COUNT(http, refused_host);
        return answer_problem(
            421, "foreign-host", path,
            "this memoird is not known by that name: ask for localhost, or add the "
            "name to http-hosts in its configuration");
    }
    if (heads->origin && !origin_is_host(heads->origin, ret_host, tls)) {
        COUNT(http, refused_origin);
        return answer_problem(403, "foreign-origin", path, "a page from elsewhere may not ask");
    }
    return NULL;
}

/* Did a page of another site make the browser send this? */
static bool is_foreign(const struct heads *heads)
{
    const char *site = heads->fetch_site;
    return site && strcasecmp(site, "same-origin") != 0 && strcasecmp(site, "none") != 0;
}

/* Pages of other sites may make a browser send requests with our cookie. */
static struct answer *check_site(struct exchange *exchange, const struct heads *heads)
{
    if (!is_foreign(heads))
        return NULL;
    COUNT(exchange->http, refused_origin);
    return answer_problem(403, "foreign-origin", exchange->target.path,
                          "a page from elsewhere may not ask");
}

/* ---- who is it? ---- */

static bool viewer_by_peer(struct exchange *exchange)
{
    struct http_viewer *viewer = &exchange->viewer;
    if (!exchange->conn->has_peer)
        return false;
    viewer->uid = exchange->conn->peer.uid;
    viewer->sees_all = viewer->uid == 0;
    viewer->role = HTTP_CONTROL;
    viewer->by = HTTP_BY_PEER;
    snprintf(viewer->name, sizeof(viewer->name), "uid %u", viewer->uid);
    if (exchange->http->options.user)
        exchange->http->options.user(exchange->http->options.context, viewer);
    return true;
}

static bool viewer_by_token(struct exchange *exchange, const char *token)
{
    struct http *http = exchange->http;
    if (!http->options.token ||
        http->options.token(http->options.context, token, &exchange->viewer) < 0)
        return false;
    exchange->viewer.by = HTTP_BY_TOKEN;
    return true;
}

void exchange_cookie_name(const struct host *host, char name[static COOKIE_NAME_MAX])
{
    /* Cookies know no ports, servers do: two memoirds of one machine must not take each other's. */
    snprintf(name, COOKIE_NAME_MAX, "memoir-%u", host->port);
}

static bool viewer_by_session(struct exchange *exchange, const struct heads *heads,
                              const struct host *host)
{
    char name[COOKIE_NAME_MAX];
    size_t len;
    exchange_cookie_name(host, name);
    const char *cookie = heads->n_cookie == 1 ? cookie_find(heads->cookie, name, &len) : NULL;
    if (cookie && len < sizeof(exchange->session))
        memcpy(exchange->session, cookie, len);
    if (!cookie || !exchange->http->options.sessions ||
        sessions_find(exchange->http->options.sessions, cookie, len, &exchange->viewer) < 0)
        return false;
    exchange->viewer.by = HTTP_BY_SESSION;
    return true;
}

bool exchange_still_known(struct exchange *exchange)
{
    const struct http_options *options = &exchange->http->options;
    struct http_viewer now = {0};
    const char *token;
    int r = 0;
    switch (exchange->viewer.by) {
    case HTTP_BY_TOKEN:
        token = bearer_token(
            MHD_lookup_connection_value(exchange->mhd, MHD_HEADER_KIND, "Authorization"));
        r = token ? options->token(options->context, token, &now) : -EACCES;
        break;
    case HTTP_BY_SESSION:
        r = sessions_find(options->sessions, exchange->session, strlen(exchange->session), &now);
        break;
    default:
        return true;
    }
    return r >= 0 && now.uid == exchange->viewer.uid && now.sees_all == exchange->viewer.sees_all &&
           now.role >= exchange->route->role;
}

/* A credential that is shown must be good, whatever else would do. */
static struct answer *check_viewer(struct exchange *exchange, const struct heads *heads,
                                   const struct host *host)
{
    const char *path = exchange->target.path;
    bool known = false;
    if (heads->authorization) {
        const char *token = bearer_token(heads->authorization);
        known = token && viewer_by_token(exchange, token);
        if (!known)
            exchange->hold_until_ns = clock_monotonic_ns() + FAILED_DELAY_NS;
    } else {
        known = viewer_by_peer(exchange) || viewer_by_session(exchange, heads, host);
    }
    snprintf(exchange->viewer.from, sizeof(exchange->viewer.from), "%s", exchange->conn->from);
    if (known && exchange->viewer.role >= exchange->route->role)
        return NULL;
    if (exchange->route->role == HTTP_NONE)
        return NULL;
    COUNT(exchange->http, refused_role);
    if (known)
        return answer_problem(403, "role", path,
                              "this needs the role control: yours may only look");
    if (heads->authorization)
        return answer_problem(401, "token", path,
                              "this token is not known, was revoked or has expired: memoir token "
                              "list shows those that are good");
    return answer_problem(
        401, "login", path,
        "run `memoir open` on the machine where memoird runs and use its link, or "
        "send a token: `memoir token add NAME` makes one");
}

/* ---- the checks in their order ---- */

static struct answer *check_target(const struct exchange *exchange)
{
    if (exchange->target_error == 0)
        return NULL;
    struct answer *answer =
        exchange->target_error == -E2BIG
            ? answer_problem(414, "target-too-long", NULL,
                             "a path with its arguments may have %d bytes, and %d arguments",
                             HTTP_TARGET_MAX, TARGET_PAIRS_MAX)
            : answer_problem(400, "bad-target", NULL, "%s", exchange->target_text);
    if (answer)
        answer->closes = true;
    return answer;
}

static struct answer *no_route(const struct exchange *exchange, const struct route_match *match)
{
    const char *path = exchange->target.path;
    if (!match->allow[0])
        return answer_problem(404, "not-found", path,
                              "there is no such address: /api/v1/openapi.json lists all");
    struct answer *answer =
        answer_problem(405, "method", path, "this address answers to %s", match->allow);
    if (answer)
        memcpy(answer->allow, match->allow, sizeof(answer->allow));
    return answer;
}

/* Only pages of ours and those who hold a token can change something. */
static struct answer *check_post(struct exchange *exchange, const struct heads *heads)
{
    const char *path = exchange->target.path;
    bool needs_origin = exchange->viewer.by != HTTP_BY_TOKEN && exchange->viewer.by != HTTP_BY_PEER;
    if (needs_origin && !heads->origin) {
        COUNT(exchange->http, refused_origin);
        return answer_problem(403, "origin-missing", path,
                              "what changes something needs an Origin header, or a token");
    }
    if (heads->length > 0 && !type_is_json(heads->content_type))
        return answer_problem(415, "content-type", path, "send Content-Type: application/json");
    return NULL;
}

static struct answer *check_route(struct exchange *exchange, const struct heads *heads,
                                  const struct route_match *match, const struct host *host)
{
    char error[ARGUMENT_ERROR_MAX];
    bool post = strcmp(match->route->method, "POST") == 0;
    exchange->route = match->route;
    struct answer *answer = match->route->role == HTTP_NONE ? NULL : check_site(exchange, heads);
    if (!answer)
        answer = check_viewer(exchange, heads, host);
    if (!answer && post)
        answer = check_post(exchange, heads);
    if (answer)
        return answer;
    int r = arguments_read(match, &exchange->target, &exchange->arguments, error);
    if (r == -EINVAL)
        return answer_problem(400, "bad-argument", exchange->target.path, "%s", error);
    exchange->failed = r < 0;
    return NULL;
}

static struct answer *check_request(struct exchange *exchange, const char *method)
{
    struct heads heads = {0};
    struct host host;
    struct route_match match;
    MHD_get_connection_values_n(exchange->mhd, MHD_HEADER_KIND, head_add, &heads);
    COUNT_ADD(exchange->http, bytes_in,
              heads.bytes + (heads.length <= HTTP_BODY_MAX ? heads.length : 0));
    bool post = strcmp(method, "POST") == 0;
    exchange->head = strcmp(method, "HEAD") == 0;
    struct answer *answer = check_target(exchange);
    if (!answer)
        answer = check_framing(exchange, &heads, post);
    if (!answer)
        answer = check_host(exchange, &heads, &host);
    if (answer)
        return answer;
    exchange->host = host;
    exchange->foreign_site = is_foreign(&heads);
    exchange->gzip =
        accept_gzip(MHD_lookup_connection_value(exchange->mhd, MHD_HEADER_KIND, "Accept-Encoding"));
    if (heads.node_token && strlen(heads.node_token) < sizeof(exchange->node_token))
        strcpy(exchange->node_token, heads.node_token);
    if (heads.last_event_id)
        snprintf(exchange->last_event_id, sizeof(exchange->last_event_id), "%s",
                 heads.last_event_id);
    router_match(exchange->http->router, method, exchange->target.path, &match);
    if (match.route)
        return check_route(exchange, &heads, &match, &host);
    if (!match.allow[0] && strncmp(exchange->target.path, "/api/", 5) != 0) {
        if (strcmp(method, "GET") == 0 || exchange->head)
            return static_answer(exchange->target.path, exchange->gzip);
        snprintf(match.allow, sizeof(match.allow), "GET, HEAD");
    }
    return no_route(exchange, &match);
}

/* ---- asking ---- */

void exchange_suspend(struct exchange *exchange)
{
    MHD_suspend_connection(exchange->mhd);
    exchange->suspended = true;
    exchange->conn->phase = CONN_WAITING;
    exchange->conn->since_ns = clock_monotonic_ns();
}

void exchange_ready(struct exchange *exchange, struct answer *answer)
{
    if (answer)
        answer->refs++;
    exchange->answer = answer;
    exchange->failed = !answer;
    if (!exchange->suspended)
        return;
    exchange->suspended = false;
    MHD_resume_connection(exchange->mhd);
}

static bool may_hold(const struct http *http)
{
    return http->n_held < http->limits.connections_max / HELD_SHARE;
}

/* A wrong credential: the answer comes, but not at once. It is suspended already. */
static void exchange_hold(struct exchange *exchange, struct answer *answer)
{
    if (answer)
        answer->refs++;
    exchange->answer = answer;
    exchange->failed = !answer;
    exchange->held = true;
    exchange->hold_until_ns = clock_monotonic_ns() + FAILED_DELAY_NS;
    TAILQ_INSERT_TAIL(&exchange->http->held, exchange, link);
    exchange->http->n_held++;
}

/* Root has one of his own: whoever asks how much, he can still look. */
static unsigned lane_of(const struct http_viewer *viewer)
{
    return viewer->sees_all ? 0 : 1 + accountable_uid(viewer->uid) % (LANES - 1);
}

static struct http_call *call_new(struct exchange *exchange)
{
    struct http_call *call = calloc(1, sizeof(*call));
    if (!call)
        return NULL;
    call->letter.kind = LETTER_CALL;
    call->letter.lane = call->viewer_lane = lane_of(&exchange->viewer);
    call->http = exchange->http;
    call->route = exchange->route;
    call->viewer = exchange->viewer;
    call->arguments = exchange->arguments;
    exchange->arguments = (struct arguments){0};
    call->body_len = exchange->body.len;
    call->body = exchange->body.len ? buffer_take(&exchange->body) : NULL;
    memcpy(call->last_event_id, exchange->last_event_id, sizeof(call->last_event_id));
    memcpy(call->node_token, exchange->node_token, sizeof(call->node_token));
    call->exchange_host = exchange->host;
    call->tls = exchange->conn->door->kind == HTTP_DOOR_TLS;
    call->head = exchange->head;
    call->foreign_site = exchange->foreign_site;
    const char *accept = MHD_lookup_connection_value(exchange->mhd, MHD_HEADER_KIND, "Accept");
    call->page = accept && strstr(accept, "text/html");
    memcpy(call->session, exchange->session, sizeof(call->session));
    call->path = strdup(exchange->target.path);
    buffer_init(&call->out, HTTP_ANSWER_MAX);
    return call;
}

/* What a question is known by: its route, what the viewer may see and do, and its arguments. */
static int question_key(const struct exchange *exchange, char **ret_key, size_t *ret_len)
{
    struct {
        const void *route;
        uint64_t viewer, role;
    } head = {exchange->route, exchange->viewer.sees_all ? UINT64_MAX : exchange->viewer.uid,
              exchange->viewer.role};
    char *arguments;
    size_t len;
    int r = arguments_key(&exchange->arguments, &arguments, &len);
    if (r < 0)
        return r;
    char *key = malloc(sizeof(head) + len);
    if (key) {
        memcpy(key, &head, sizeof(head));
        memcpy(key + sizeof(head), arguments, len);
        *ret_key = key;
        *ret_len = sizeof(head) + len;
    }
    free(arguments);
    return key ? 0 : -ENOMEM;
}

static void wait_for(struct exchange *exchange, struct question *question)
{
    exchange->question = question;
    TAILQ_INSERT_TAIL(&question->waiting, exchange, link);
    exchange_suspend(exchange);
}

/* The same question was asked a moment ago: its answer, or one that is on its way. */
static bool ask_same(struct exchange *exchange, const char *key, size_t len)
{
    struct http *http = exchange->http;
    struct question *question = cache_find(http->cache, key, len, clock_monotonic_ns());
    if (!question)
        return false;
    if (question->answer) {
        COUNT(http, answers_kept);
        exchange_ready(exchange, question->answer);
    } else {
        COUNT(http, answers_waited);
        wait_for(exchange, question);
    }
    return true;
}

static int ask_anew(struct exchange *exchange, char **key, size_t len)
{
    struct http *http = exchange->http;
    enum http_where where = exchange->route->where;
    struct http_call *call = call_new(exchange);
    struct question *question = call ? question_new(http->cache, *key, len) : NULL;
    if (!question) {
        call_free(call);
        return -ENOMEM;
    }
    *key = NULL;
    call->question = question;
    question->call = call;
    question->route = exchange->route;
    TAILQ_INSERT_TAIL(&http->questions, question, link);
    wait_for(exchange, question);
    if (where == HTTP_HERE) {
        call_run_here(http, call);
    } else if (mailbox_put(&http->to[where], &call->letter)) {
        http->to_wake[where] = true; /* when all that clients sent was read */
    }
    return 0;
}

static struct answer *too_busy(const char *path)
{
    struct answer *answer =
        answer_problem(503, "busy", path, "too many questions wait already: try again in a second");
    if (answer)
        answer->retry_s = 1;
    return answer;
}

/* Of this viewer's lane: those that nobody looked at yet, and those that wait for another try. */
static size_t calls_waiting(const struct exchange *exchange)
{
    struct http *http = exchange->http;
    enum http_where where = exchange->route->where;
    unsigned lane = lane_of(&exchange->viewer);
    return mailbox_count_lane(&http->to[where], lane) +
           atomic_load_explicit(&http->again_n[where][lane], memory_order_relaxed);
}

static int ask(struct exchange *exchange)
{
    const struct http_route *route = exchange->route;
    char *key = NULL;
    size_t len = 0;
    int r = 0;
    /* What a token of another node opens is for the one that sent it. */
    if (route->fresh_ms > 0 && strcmp(route->method, "GET") == 0 && !exchange->node_token[0])
        r = question_key(exchange, &key, &len);
    if (r < 0)
        return r;
    if (key && ask_same(exchange, key, len)) {
        free(key);
        return 0;
    }
    if (route->where != HTTP_HERE && calls_waiting(exchange) >= CALLS_WAITING_MAX) {
        struct answer *answer = too_busy(exchange->target.path);
        exchange_ready(exchange, answer);
        answer_unref(answer);
    } else {
        r = ask_anew(exchange, &key, len);
    }
    free(key);
    return r;
}

/* ---- answers that come back ---- */

static void audit(struct http *http, const struct http_call *call)
{
    struct http_action action = {
        .viewer = &call->viewer,
        .method = call->route->method,
        .path = call->path ? call->path : call->route->path,
        .what = call->audit ? call->audit : call->route->name,
        .status = call->status,
    };
    if (http->options.audit && (call->route->role == HTTP_CONTROL || call->audit))
        http->options.audit(http->options.context, &action);
}

/* Answers stay until their last client took them, or was closed for taking too long: so many bytes of them for one user, and not
 * more. Where many users have that much, each can still have a part of it. */
static struct answer *answer_that_fits(struct http *http, struct http_call *call)
{
    size_t max = http->limits.answers_bytes_max, len = call->out.len;
    size_t held = answer_untaken(http, &call->viewer)->bytes;
    bool crowded = http->untaken_bytes + len > max * UNTAKEN_ALL;
    if (held > 0 && len > ANSWER_SMALL && held + len > (crowded ? max / UNTAKEN_PART : max))
        return too_busy(call->path);
    return answer_from_call(call);
}

void exchange_answered(struct http *http, struct http_call *call)
{
    struct question *question = call->question;
    struct exchange *exchange;
    audit(http, call);
    if (call->answer == CALL_STREAM)
        atomic_fetch_sub_explicit(&http->streams_coming, 1, memory_order_relaxed);
    if (visit_answered(call) || !question) { /* nobody waits any more */
        call_free(call);
        return;
    }
    question->call = NULL;
    TAILQ_REMOVE(&http->questions, question, link);
    bool stream = call->answer == CALL_STREAM;
    struct answer *answer = stream ? NULL : answer_that_fits(http, call);
    while ((exchange = TAILQ_FIRST(&question->waiting))) {
        TAILQ_REMOVE(&question->waiting, exchange, link);
        exchange->question = NULL;
        if (stream)
            stream_begin(exchange, call);
        if (call->held && may_hold(http)) {
            exchange_hold(exchange, answer);
            continue;
        }
        exchange_ready(exchange, stream ? exchange->answer : answer);
    }
    if (answer)
        question_keep(http->cache, question, answer,
                      answer->status == 200 ? call->route->fresh_ms * NS_PER_MS : 0,
                      http->limits.cache_bytes_max);
    else
        question_drop(http->cache, question);
    answer_unref(answer);
    call_free(call);
}

/* Nobody waits for it: the call, wherever it is, is not ours from here on. */
static void question_abandon(struct http *http, struct question *question)
{
    struct http_call *call = question->call;
    TAILQ_REMOVE(&http->questions, question, link);
    question_drop(http->cache, question);
    call->question = NULL;
    if (strcmp(call->route->method, "GET") == 0) /* what acts is done, and told of in the audit */
        atomic_store_explicit(&call->abandoned, true, memory_order_release);
}

void exchange_give_up(struct http *http, struct question *question, struct answer *answer)
{
    struct exchange *exchange;
    while ((exchange = TAILQ_FIRST(&question->waiting))) {
        TAILQ_REMOVE(&question->waiting, exchange, link);
        exchange->question = NULL;
        exchange_ready(exchange, answer);
    }
    question_abandon(http, question);
}

/* ---- what MHD calls ---- */

static enum MHD_Result give(struct exchange *exchange)
{
    struct conn *conn = exchange->conn;
    if (exchange->stream)
        return stream_queue(exchange);
    if (!exchange->answer || exchange->failed)
        return MHD_NO; /* no memory: the connection ends */
    conn->phase = CONN_TAKING;
    conn->since_ns = clock_monotonic_ns();
    COUNT_ADD(exchange->http, bytes_out, exchange->answer->len);
    return answer_queue(exchange->http, exchange->answer, exchange->mhd);
}

/* The head is here; a body may follow. */
static enum MHD_Result begin(struct exchange *exchange, const char *method)
{
    exchange->begun = true;
    exchange->conn->phase = CONN_ASKING;
    exchange->conn->since_ns = clock_monotonic_ns();
    COUNT(exchange->http, requests);
    exchange->answer = check_request(exchange, method);
    if (!exchange->answer && !exchange->route)
        return MHD_NO;
    /* What is refused is refused before its body; then the connection ends, for that is still on its way. */
    bool post = strcmp(method, "POST") == 0;
    if (exchange->answer && (post || exchange->answer->closes) && !exchange->hold_until_ns)
        return give(exchange);
    return MHD_YES;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **state)
{
    struct http *http = context;
    struct exchange *exchange = *state;
    (void)url;
    (void)version;
    /* At the end those who have their answer still get it. */
    if (!exchange ||
        (!exchange->answer && atomic_load_explicit(&http->stopping, memory_order_relaxed)))
        return MHD_NO;
    if (!exchange->begun) {
        exchange->mhd = connection;
        return begin(exchange, method);
    }
    if (*upload_size > 0) {
        buffer_append(&exchange->body, upload, *upload_size);
        *upload_size = 0;
        return exchange->body.error ? MHD_NO : MHD_YES;
    }
    if (exchange->answer && exchange->hold_until_ns && may_hold(http)) {
        TAILQ_INSERT_TAIL(&http->held, exchange, link);
        http->n_held++;
        exchange->held = true;
        exchange_suspend(exchange);
        return MHD_YES;
    }
    if (exchange->answer || exchange->stream || exchange->failed)
        return give(exchange);
    if (ask(exchange) < 0)
        return MHD_NO;
    return exchange->suspended ? MHD_YES : give(exchange);
}

static void *on_target(void *context, const char *target, struct MHD_Connection *connection)
{
    struct http *http = context;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct exchange *exchange = calloc(1, sizeof(*exchange));
    if (!exchange || !info || !info->socket_context) {
        free(exchange);
        return NULL;
    }
    exchange->http = http;
    exchange->conn = info->socket_context;
    exchange->conn->exchange = exchange;
    exchange->mhd = connection;
    buffer_init(&exchange->body, HTTP_BODY_MAX);
    exchange->target_error = target_parse(target, &exchange->target, &exchange->target_text);
    return exchange;
}

static void on_completed(void *context, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode why)
{
    struct exchange *exchange = *state;
    (void)context;
    (void)connection;
    (void)why;
    if (!exchange)
        return;
    *state = NULL;
    exchange->conn->exchange = NULL;
    exchange->conn->phase = CONN_IDLE;
    exchange->conn->since_ns = clock_monotonic_ns();
    struct question *question = exchange->question;
    if (question) {
        TAILQ_REMOVE(&question->waiting, exchange, link);
        if (TAILQ_EMPTY(&question->waiting))
            question_abandon(exchange->http, question);
    }
    if (exchange->held) {
        TAILQ_REMOVE(&exchange->http->held, exchange, link);
        exchange->http->n_held--;
    }
    stream_end(exchange);
    answer_unref(exchange->answer);
    arguments_release(&exchange->arguments);
    target_release(&exchange->target);
    buffer_release(&exchange->body);
    free(exchange);
}

const struct exchange_callbacks exchange_callbacks = {
    .on_request = on_request,
    .on_target = on_target,
    .on_completed = on_completed,
};

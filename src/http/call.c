/* Calls: what a handler sees of a request, and how it answers. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "http/internal.h"

enum {
    AGAIN_NS = 2000000,
    AGAIN_MOST = 10,       /* the next try waits for longer, up to so many times that, */
    AGAIN_EACH_NS = 100000 /* and for so much more for each of those who wait for theirs */
};

/* ---- what was asked ---- */

static int argument_index(const struct http_call *call, const char *name)
{
    for (size_t i = 0; i < call->arguments.n; i++)
        if (strcmp(call->arguments.params[i].name, name) == 0)
            return (int)i;
    assert(!"a parameter that the route does not have");
    return -1;
}

const char *http_argument(const struct http_call *call, const char *name)
{
    int i = argument_index(call, name);
    return i < 0 ? NULL : call->arguments.values[i];
}

bool http_number(const struct http_call *call, const char *name, uint64_t *ret_number)
{
    int i = argument_index(call, name);
    if (i < 0 || !call->arguments.values[i])
        return false;
    *ret_number = call->arguments.numbers[i];
    return true;
}

bool http_yes(const struct http_call *call, const char *name, bool otherwise)
{
    uint64_t number;
    return http_number(call, name, &number) ? number != 0 : otherwise;
}

const struct http_viewer *http_viewer(const struct http_call *call)
{
    return &call->viewer;
}

const struct http_route *http_route(const struct http_call *call)
{
    return call->route;
}

struct http *http_server(const struct http_call *call)
{
    return call->http;
}

const char *http_request_body(const struct http_call *call, size_t *ret_len)
{
    *ret_len = call->body_len;
    return call->body ? call->body : "";
}

const char *http_last_event_id(const struct http_call *call)
{
    return call->last_event_id[0] ? call->last_event_id : NULL;
}

const char *http_node_token(const struct http_call *call)
{
    return call->node_token[0] ? call->node_token : NULL;
}

/* ---- the answer ---- */

/* A second answer takes the place of the first: a handler found out late that it cannot go on. */
static void answer_begin(struct http_call *call, enum call_kind kind, int status)
{
    if (call->answer == CALL_STREAM)
        atomic_fetch_sub_explicit(&call->http->streams_coming, 1, memory_order_relaxed);
    buffer_release(&call->out);
    buffer_init(&call->out, HTTP_ANSWER_MAX);
    json_init(&call->json, &call->out);
    free(call->filename);
    call->filename = NULL;
    call->answer = kind;
    call->status = status;
    call->has_members = false;
}

struct json *http_json(struct http_call *call)
{
    answer_begin(call, CALL_JSON, 200);
    call->type = "application/json";
    return &call->json;
}

struct buffer *http_json_buffer(struct http_call *call)
{
    if (call->answer != CALL_JSON)
        http_json(call);
    return &call->out;
}

void http_status(struct http_call *call, int status)
{
    call->status = status;
}

void http_body(struct http_call *call, const char *content_type, const char *filename,
               struct buffer *take)
{
    answer_begin(call, CALL_BODY, 200);
    call->type = content_type;
    call->filename = filename ? strdup(filename) : NULL;
    call->out = *take;
    *take = (struct buffer){.limit = take->limit};
}

void http_problem(struct http_call *call, int status, const char *code, const char *fmt, ...)
{
    answer_begin(call, CALL_PROBLEM, status);
    call->type = "application/problem+json";
    snprintf(call->code, sizeof(call->code), "%s", code);
    free(call->text);
    va_list args;
    va_start(args, fmt);
    if (vasprintf(&call->text, fmt, args) < 0)
        call->text = NULL;
    va_end(args);
}

struct json *http_problem_members(struct http_call *call)
{
    assert(call->answer == CALL_PROBLEM);
    if (!call->has_members)
        json_object_begin(&call->json);
    call->has_members = true;
    return &call->json;
}

void http_stream(struct http_call *call, struct buffer *first)
{
    answer_begin(call, CALL_STREAM, 200);
    atomic_fetch_add_explicit(&call->http->streams_coming, 1, memory_order_relaxed);
    call->stream_from = atomic_load_explicit(&call->http->published, memory_order_relaxed);
    call->type = "text/event-stream";
    if (!first)
        return;
    call->out = *first;
    *first = (struct buffer){.limit = first->limit};
}

void http_audit(struct http_call *call, const char *fmt, ...)
{
    va_list args;
    free(call->audit);
    va_start(args, fmt);
    if (vasprintf(&call->audit, fmt, args) < 0)
        call->audit = NULL;
    va_end(args);
}

/* ---- problems ---- */

const char *problem_title(const char *code, int status)
{
    static const struct {
        const char *code, *title;
    } titles[] = {
        {"bad-query", "Invalid query"},
        {"bad-argument", "Invalid argument"},
        {"bad-body", "Invalid body"},
        {"not-found", "Not found"},
        {"gone", "Gone"},
        {"not-tracing", "CUDA programs are not traced"},
        {"not-traced", "Process not traced"},
        {"no-answer", "Observer does not answer"},
        {"too-large", "Trace too large"},
    };
    static const struct {
        int status;
        const char *title;
    } others[] = {
        {400, "Invalid request"},
        {401, "Login required"},
        {403, "Forbidden"},
        {404, "Not found"},
        {405, "Method not allowed"},
        {409, "Conflict"},
        {411, "Length required"},
        {413, "Body too large"},
        {414, "Address too long"},
        {415, "Unsupported content type"},
        {421, "Unknown host name"},
        {429, "Too many requests"},
        {431, "Headers too large"},
        {500, "Internal error"},
        {501, "Not supported"},
        {503, "Temporarily unavailable"},
        {504, "Timeout"},
    };
    for (size_t i = 0; i < sizeof(titles) / sizeof(*titles); i++)
        if (strcmp(titles[i].code, code) == 0)
            return titles[i].title;
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        if (others[i].status == status)
            return others[i].title;
    return "Request failed";
}

void problem_write(struct buffer *out, int status, const char *code, const char *detail,
                   const char *instance, const char *members, size_t members_len)
{
    char type[HTTP_CODE_MAX + 32];
    struct json json;
    snprintf(type, sizeof(type), "urn:memoir:problem:%s", code);
    json_init(&json, out);
    json_object_begin(&json);
    json_field_string(&json, "type", type);
    json_field_string(&json, "title", problem_title(code, status));
    json_field_u64(&json, "status", (uint64_t)status);
    json_field_string(&json, "detail", detail ? detail : "");
    if (instance)
        json_field_string(&json, "instance", instance);
    json_object_end(&json);
    (void)json_finish(&json);
    /* {"a":1} and {"b":2} become {"a":1,"b":2}. */
    if (!out->error && members_len > 2) {
        out->data[out->len - 1] = ',';
        buffer_append(out, members + 1, members_len - 1);
    }
}

static void problem_finish(struct http_call *call)
{
    if (call->has_members) {
        json_object_end(&call->json);
        (void)json_finish(&call->json);
    }
    struct buffer members = call->out;
    buffer_init(&call->out, HTTP_ANSWER_MAX);
    problem_write(&call->out, call->status, call->code, call->text, call->path,
                  members.error ? NULL : members.data, members.error ? 0 : members.len);
    buffer_release(&members);
}

void call_finish(struct http_call *call)
{
    int error = call->out.error;
    if (call->answer == CALL_JSON && !error) {
        error = json_finish(&call->json);
        if (!error)
            error = buffer_append_char(&call->out, '\n');
    }
    if (call->answer == CALL_UNANSWERED)
        http_problem(call, 500, "unanswered", "this is a fault of Memoir's: please report it");
    else if (error && call->answer != CALL_PROBLEM)
        http_problem(call, error == -ENOBUFS ? 413 : 500,
                     error == -ENOBUFS ? "answer-too-large" : "out-of-memory",
                     error == -ENOBUFS ? "the answer would have more than %d MB: ask for less"
                                       : "there is no memory for the answer (of at most %d MB)",
                     HTTP_ANSWER_MAX >> 20);
    if (call->answer == CALL_PROBLEM)
        problem_finish(call);
}

/* ---- coming back ---- */

/* True when the server has to be woken for it. */
static bool go_back(struct http_call *call)
{
    struct http *http = call->http;
    call_finish(call);
    call->letter.lane = 0; /* what comes back keeps its order */
    return mailbox_put(&http->back, &call->letter);
}

/* The handler may not have returned yet: whoever is last sends the call back. */
static bool let_go(struct http_call *call)
{
    return atomic_fetch_sub_explicit(&call->holders, 1, memory_order_acq_rel) == 1 && go_back(call);
}

void http_later(struct http_call *call)
{
    call->later = true;
}

void http_done(struct http_call *call)
{
    struct http *http = call->http;
    if (let_go(call))
        http_wake_self(http);
}

void http_again(struct http_call *call)
{
    call->again = true;
}

bool http_abandoned(const struct http_call *call)
{
    return atomic_load_explicit(&call->abandoned, memory_order_acquire);
}

unsigned http_tries(const struct http_call *call)
{
    return call->tries;
}

static size_t again_count(struct http *http, enum http_where where)
{
    size_t n = 0;
    for (unsigned i = 0; i < LANES; i++)
        n += atomic_load_explicit(&http->again_n[where][i], memory_order_relaxed);
    return n;
}

static struct letter *again_last(struct http *http, enum http_where where)
{
    struct letters *all = &http->again[where];
    return STAILQ_EMPTY(all)
               ? NULL
               : (struct letter *)((char *)all->stqh_last - offsetof(struct letter, link));
}

/* In the order in which they are due. */
static void put_off(struct http *http, enum http_where where, struct http_call *call)
{
    struct letter *letter, *before = NULL, *last = again_last(http, where);
    unsigned times = ++call->tries < AGAIN_MOST ? call->tries : AGAIN_MOST;
    call->not_before_ns = clock_monotonic_ns() + (uint64_t)times * AGAIN_NS +
                          again_count(http, where) * AGAIN_EACH_NS;
    atomic_fetch_add_explicit(&http->again_n[where][call->letter.lane], 1, memory_order_relaxed);
    if (last && call_of(last)->not_before_ns <= call->not_before_ns) {
        STAILQ_INSERT_TAIL(&http->again[where], &call->letter, link); /* where most belong */
        return;
    }
    STAILQ_FOREACH(letter, &http->again[where], link)
    {
        if (call_of(letter)->not_before_ns > call->not_before_ns)
            break;
        before = letter;
    }
    if (before)
        STAILQ_INSERT_AFTER(&http->again[where], before, &call->letter, link);
    else
        STAILQ_INSERT_HEAD(&http->again[where], &call->letter, link);
}

/* True when the server has to be woken. */
static bool call_run(struct http *http, enum http_where where, struct http_call *call)
{
    atomic_store_explicit(&call->holders, 2, memory_order_relaxed);
    call->again = false;
    call->route->answer(call, http->options.context);
    if (call->again && !call->later) {
        put_off(http, where, call);
        return false;
    }
    if (!call->later)
        (void)let_go(call); /* its own part: it is not the last */
    return let_go(call);
}

void call_run_here(struct http *http, struct http_call *call)
{
    if (call_run(http, HTTP_HERE, call))
        http_wake_self(http);
}

static bool again_due(struct http *http, enum http_where where, uint64_t now_ns)
{
    struct letter *letter = STAILQ_FIRST(&http->again[where]);
    return letter && call_of(letter)->not_before_ns <= now_ns;
}

static struct letter *again_take(struct http *http, enum http_where where, uint64_t now_ns)
{
    struct letter *letter = STAILQ_FIRST(&http->again[where]);
    if (!again_due(http, where, now_ns))
        return NULL;
    STAILQ_REMOVE_HEAD(&http->again[where], link);
    atomic_fetch_sub_explicit(&http->again_n[where][letter->lane], 1, memory_order_relaxed);
    return letter;
}

/* Those who asked for another try, once their time has come, and new ones take turns: neither keeps the other waiting. */
static struct letter *next_call(struct http *http, enum http_where where, uint64_t now_ns)
{
    bool first = http->again_first[where] = !http->again_first[where];
    struct letter *letter = first ? again_take(http, where, now_ns) : NULL;
    if (!letter)
        letter = mailbox_take(&http->to[where]);
    return letter || first ? letter : again_take(http, where, now_ns);
}

bool http_serve(struct http *http, enum http_where where, uint64_t turn_ns, uint64_t *ret_again_ns)
{
    uint64_t begin = clock_monotonic_ns(), now = begin;
    struct letter *letter;
    bool more = false, wake = false;
    while (!more && (letter = next_call(http, where, now)) != NULL) {
        if (http_abandoned(call_of(letter)))
            call_free(call_of(letter));
        else
            wake = call_run(http, where, call_of(letter)) || wake;
        now = clock_monotonic_ns();
        more = now - begin >= turn_ns &&
               (mailbox_count(&http->to[where]) > 0 || again_due(http, where, now));
    }
    /* Once for all that were answered: each alone would cost more than a small answer does. */
    if (wake)
        http_wake_self(http);
    struct letter *waits = STAILQ_FIRST(&http->again[where]);
    if (ret_again_ns)
        *ret_again_ns = !waits                                ? 0
                        : call_of(waits)->not_before_ns > now ? call_of(waits)->not_before_ns - now
                                                              : 1;
    return more;
}

void call_free(struct http_call *call)
{
    if (!call)
        return;
    visit_dropped(call);
    arguments_release(&call->arguments);
    buffer_release(&call->out);
    explicit_bzero(call->node_token, sizeof(call->node_token));
    free(call->path);
    free(call->body);
    free(call->filename);
    free(call->audit);
    free(call->cookie);
    free(call->text);
    free(call);
}

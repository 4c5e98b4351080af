/* The server with routes of its own, over a Unix socket: answers that are shared, kept, late, streamed and refused,
 * with the threads that a daemon has. */
#include "http/server.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "check.h"
#include "http/gzip.h"

enum { ANSWER_MAX = 16 << 20, PATIENCE_MS = 30000, ROWS = 400, REPLAYED = 2 << 20 };

struct fixture {
    struct http *http;
    char path[64];
    int wake[HTTP_WHERES]; /* eventfds of those who serve */
    pthread_t threads[HTTP_WHERES];
    bool serving[HTTP_WHERES];
    _Atomic bool stop;
    _Atomic unsigned answered; /* calls that a handler got */
    _Atomic unsigned actions;
    _Atomic bool released; /* those who would try again and again may be answered */
    _Atomic bool revoked;  /* ann's token */
    struct http_call *late;
};

/* ---- routes ---- */

static void answer_rows(struct http_call *call, void *context)
{
    struct fixture *f = context;
    uint64_t n = ROWS;
    http_number(call, "n", &n);
    unsigned time = atomic_fetch_add(&f->answered, 1);
    struct json *json = http_json(call);
    json_object_begin(json);
    json_field_u64(json, "answered", time);
    json_field_u64(json, "uid", http_viewer(call)->uid);
    json_key(json, "rows");
    json_array_begin(json);
    for (uint64_t i = 0; i < n; i++)
        json_string(json, "the same again and again");
    json_array_end(json);
    json_object_end(json);
}

static void answer_bad(struct http_call *call, void *context)
{
    http_problem(call, 400, "bad-query", "there is no column '%s'", "rsss");
    struct json *json = http_problem_members(call);
    json_field_string(json, "part", "show");
    json_field_u64(json, "at", 3);
}

static void *finish_later(void *context)
{
    struct http_call *call = context;
    struct json *json = http_json(call);
    json_string(json, "late");
    http_done(call);
    return NULL;
}

static void answer_later(struct http_call *call, void *context)
{
    pthread_t thread;
    http_later(call);
    assert_int_equal(pthread_create(&thread, NULL, finish_later, call), 0);
    pthread_detach(thread);
}

static void answer_again(struct http_call *call, void *context)
{
    if (http_tries(call) < 3) {
        http_again(call);
        return;
    }
    json_u64(http_json(call), http_tries(call));
}

/* Takes long to find out that it is too early. */
static void answer_stubborn(struct http_call *call, void *context)
{
    struct fixture *f = context;
    atomic_fetch_add(&f->answered, 1);
    if (!atomic_load(&f->released)) {
        usleep(2000);
        http_again(call);
        return;
    }
    json_u64(http_json(call), http_tries(call));
}

static void answer_nothing(struct http_call *call, void *context)
{
}

static void answer_file(struct http_call *call, void *context)
{
    struct buffer out = BUFFER_INIT(100);
    buffer_append_str(&out, "main;f 1\n");
    http_body(call, "text/plain", "a \"b\"\r\nX: y.folded", &out);
}

static void answer_stream(struct http_call *call, void *context)
{
    struct buffer first = BUFFER_INIT(1000);
    const char *last = http_last_event_id(call);
    char json[64];
    int len = snprintf(json, sizeof(json), "{\"last\":%s}", last ? last : "null");
    http_frame(&first, "hello", 0, json, (size_t)len);
    http_stream(call, &first);
    http_stream_publish(http_server(call), &(struct http_audience){.to = HTTP_TO_ALL}, "first", 1,
                        "1", 1);
}

/* Begins with more than a socket holds. */
static void answer_replay(struct http_call *call, void *context)
{
    struct buffer first = BUFFER_INIT(2 * REPLAYED);
    char *json = malloc(REPLAYED + 2);
    memset(json, 'x', REPLAYED + 2);
    json[0] = json[REPLAYED + 1] = '"';
    http_frame(&first, "past", 0, json, REPLAYED + 2);
    http_stream(call, &first);
    free(json);
}

static void answer_act(struct http_call *call, void *context)
{
    size_t len;
    const char *body = http_request_body(call, &len);
    http_audit(call, "act on %.*s", (int)len, body);
    http_status(call, 200);
    json_string_n(http_json(call), body, len);
}

static const struct http_param rows_params[] = {
    {.name = "n", .in = HTTP_IN_QUERY, .kind = HTTP_NUMBER, .max = 400000}, {0}};

#define GET(p, w, fresh, fn)                                                            \
    {                                                                                   \
        .method = "GET", .path = p, .name = &(p)[1], .summary = "x", .role = HTTP_READ, \
        .where = w, .fresh_ms = fresh, .answer = fn                                     \
    }
static const struct http_route routes[] = {
    {.method = "GET",
     .path = "/rows",
     .name = "rows",
     .summary = "x",
     .params = rows_params,
     .role = HTTP_READ,
     .where = HTTP_ON_LOOP,
     .fresh_ms = 600000,
     .answer = answer_rows},
    {.method = "GET",
     .path = "/fresh",
     .name = "fresh",
     .summary = "x",
     .params = rows_params,
     .role = HTTP_READ,
     .where = HTTP_ON_WORKER,
     .answer = answer_rows},
    GET("/bad", HTTP_ON_LOOP, 1000, answer_bad),
    GET("/later", HTTP_ON_LOOP, 0, answer_later),
    GET("/again", HTTP_ON_LOOP, 0, answer_again),
    GET("/stubborn", HTTP_ON_LOOP, 0, answer_stubborn),
    GET("/replay", HTTP_ON_LOOP, 0, answer_replay),
    GET("/nothing", HTTP_ON_LOOP, 0, answer_nothing),
    GET("/file", HTTP_ON_WORKER, 0, answer_file),
    GET("/stream", HTTP_ON_LOOP, 0, answer_stream),
    {.method = "POST",
     .path = "/act",
     .name = "act",
     .summary = "x",
     .role = HTTP_CONTROL,
     .where = HTTP_ON_LOOP,
     .answer = answer_act},
};

/* ---- the server ---- */

static void on_wake(void *context, enum http_where where)
{
    struct fixture *f = context;
    uint64_t one = 1;
    assert_int_equal(write(f->wake[where], &one, sizeof(one)), sizeof(one));
}

static int on_token(void *context, const char *token, struct http_viewer *ret_viewer)
{
    struct fixture *f = context;
    bool ann = strcmp(token, "ann") == 0, ben = strcmp(token, "ben") == 0;
    if (ann && atomic_load(&f->revoked))
        return -EACCES;
    if (ben) { /* calls of 15 uids apart wait in one lane */
        *ret_viewer = (struct http_viewer){.uid = 1015, .role = HTTP_READ};
        return 0;
    }
    if (!ann && strcmp(token, "root") != 0)
        return -EACCES;
    *ret_viewer = (struct http_viewer){.uid = ann ? 1000 : 0, .sees_all = !ann, .role = HTTP_READ};
    strcpy(ret_viewer->name, token);
    return 0;
}

static void on_action(void *context, const struct http_action *action)
{
    struct fixture *f = context;
    assert_string_equal(action->what, "act on {}");
    assert_string_equal(action->viewer->from, "unix");
    atomic_fetch_add(&f->actions, 1);
}

struct server_thread {
    struct fixture *f;
    enum http_where where;
};

static void *serve(void *context)
{
    struct server_thread *s = context;
    uint64_t again_ns = 0, count;
    while (!atomic_load(&s->f->stop)) {
        struct pollfd poll_fd = {.fd = s->f->wake[s->where], .events = POLLIN};
        if (poll(&poll_fd, 1, again_ns ? 1 : 100) > 0)
            assert_int_equal(read(poll_fd.fd, &count, sizeof(count)), sizeof(count));
        while (http_serve(s->f->http, s->where, 1000, &again_ns))
            ;
    }
    free(s);
    return NULL;
}

static void serve_start(struct fixture *f, enum http_where where)
{
    struct server_thread *s = malloc(sizeof(*s));
    *s = (struct server_thread){f, where};
    f->serving[where] = true;
    assert_int_equal(pthread_create(&f->threads[where], NULL, serve, s), 0);
}

static int listening_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 1024), 0);
    return fd;
}

static struct fixture *start(const struct http_limits *limits)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct http_options options = {
        .routes = routes,
        .n_routes = sizeof(routes) / sizeof(*routes),
        .title = "test",
        .version = "0",
        .context = f,
        .wake = on_wake,
        .token = on_token,
        .audit = on_action,
    };
    log_set_level(LOG_LEVEL_ERROR);
    strcpy(f->path, "/tmp/memoir-test-http-XXXXXX");
    assert_non_null(mkdtemp(f->path));
    strcat(f->path, "/s");
    for (int i = 0; i < HTTP_WHERES; i++)
        f->wake[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_int_equal(http_new(&options, limits, &f->http), 0);
    assert_int_equal(http_listen(f->http, listening_socket(f->path), HTTP_DOOR_UNIX), 0);
    assert_int_equal(http_start(f->http), 0);
    return f;
}

static struct fixture *start_serving(void)
{
    struct fixture *f = start(NULL);
    serve_start(f, HTTP_ON_LOOP);
    serve_start(f, HTTP_ON_WORKER);
    return f;
}

static void end(struct fixture *f)
{
    http_stop(f->http);
    atomic_store(&f->stop, true);
    for (int i = 0; i < HTTP_WHERES; i++) {
        if (f->serving[i]) {
            on_wake(f, (enum http_where)i);
            pthread_join(f->threads[i], NULL);
        }
        close(f->wake[i]);
    }
    http_free(f->http);
    unlink(f->path);
    *strrchr(f->path, '/') = '\0';
    rmdir(f->path);
    free(f);
}

/* ---- a client ---- */

struct answer_seen {
    int status;
    char head[4096];
    struct buffer body;
};

static int connect_to(const struct fixture *f)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    strcpy(address.sun_path, f->path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void ask(int fd, const char *method, const char *target, const char *heads, const char *body)
{
    char text[8192];
    int len = snprintf(text, sizeof(text), "%s %s HTTP/1.1\r\nHost: localhost\r\n%s", method,
                       target, heads);
    if (body)
        len += snprintf(text + len, sizeof(text) - (size_t)len,
                        "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
    len += snprintf(text + len, sizeof(text) - (size_t)len, "\r\n%s", body ? body : "");
    assert_int_equal(send(fd, text, (size_t)len, MSG_NOSIGNAL), len);
}

static const char *header(const struct answer_seen *seen, const char *name)
{
    char line[64];
    snprintf(line, sizeof(line), "\n%s: ", name);
    const char *at = strcasestr(seen->head, line);
    return at ? at + strlen(line) : NULL;
}

static void head_read(int fd, struct answer_seen *seen)
{
    size_t len = 0;
    while (len < 4 || memcmp(seen->head + len - 4, "\r\n\r\n", 4) != 0) {
        assert_true(len < sizeof(seen->head) - 1);
        assert_int_equal(recv(fd, seen->head + len, 1, 0), 1);
        seen->head[++len] = '\0';
    }
    assert_int_equal(sscanf(seen->head, "HTTP/1.1 %d", &seen->status), 1);
}

static void receive(int fd, bool head, struct answer_seen *seen)
{
    *seen = (struct answer_seen){.body = BUFFER_INIT(ANSWER_MAX)};
    head_read(fd, seen);
    const char *length = header(seen, "Content-Length");
    size_t left = head || seen->status == 304 || !length ? 0 : strtoul(length, NULL, 10);
    while (left > 0) {
        char *to = buffer_reserve(&seen->body, left);
        ssize_t n = recv(fd, to, left, 0);
        assert_true(n > 0);
        buffer_commit(&seen->body, (size_t)n);
        left -= (size_t)n;
    }
}

static int get(const struct fixture *f, const char *target, const char *heads,
               struct answer_seen *seen)
{
    int fd = connect_to(f);
    ask(fd, "GET", target, heads, NULL);
    receive(fd, false, seen);
    close(fd);
    return seen->status;
}

static void forget(struct answer_seen *seen)
{
    buffer_release(&seen->body);
}

static void wait_for(struct fixture *f, uint64_t (*figure)(const struct http_figures *),
                     uint64_t wanted)
{
    struct http_figures figures;
    uint64_t until = clock_monotonic_ns() + PATIENCE_MS * NS_PER_MS;
    do {
        http_figures(f->http, &figures);
        if (figure(&figures) >= wanted)
            return;
        usleep(1000);
    } while (clock_monotonic_ns() < until);
    fail_msg("waited in vain");
}

static uint64_t waited(const struct http_figures *figures)
{
    return figures->answers_waited;
}

static uint64_t streams(const struct http_figures *figures)
{
    return figures->streams;
}

static uint64_t events(const struct http_figures *figures)
{
    return figures->events;
}

static uint64_t waiting(const struct http_figures *figures)
{
    return figures->waiting;
}

/* ---- tests ---- */

static void a_question_that_many_ask_is_answered_once(void **state)
{
    enum { N = 20 };
    struct fixture *f = start(NULL);
    int fds[N];
    for (int i = 0; i < N; i++) {
        fds[i] = connect_to(f);
        ask(fds[i], "GET", "/rows", "", NULL);
    }
    wait_for(f, waited, N - 1); /* the first is out, the others wait for it */
    serve_start(f, HTTP_ON_LOOP);
    struct answer_seen first = {0}, seen;
    for (int i = 0; i < N; i++) {
        receive(fds[i], false, i ? &seen : &first);
        if (i) {
            assert_int_equal(seen.status, 200);
            assert_string_equal(seen.body.data, first.body.data);
            assert_non_null(header(&seen, "ETag"));
            forget(&seen);
        }
        close(fds[i]);
    }
    assert_int_equal(atomic_load(&f->answered), 1);
    assert_int_equal(get(f, "/rows", "", &seen), 200); /* and again while it is fresh */
    assert_string_equal(seen.body.data, first.body.data);
    assert_int_equal(atomic_load(&f->answered), 1);
    forget(&seen);
    assert_int_equal(get(f, "/rows?n=3", "", &seen), 200); /* another question */
    assert_int_equal(atomic_load(&f->answered), 2);
    forget(&seen);
    forget(&first);
    end(f);
}

static void each_viewer_gets_his_own_answer(void **state)
{
    struct fixture *f = start_serving();
    struct answer_seen seen;
    char uid[32];
    static const char *const heads[] = {"", "Authorization: Bearer ann\r\n",
                                        "Authorization: Bearer root\r\n"};
    const unsigned uids[] = {getuid(), 1000, 0};
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < 3; i++) {
            assert_int_equal(get(f, "/rows", heads[i], &seen), 200);
            snprintf(uid, sizeof(uid), "\"uid\":%u,", uids[i]);
            assert_non_null(strstr(seen.body.data, uid));
            forget(&seen);
        }
    /* Root by peer may act, by token only look: what he may do is part of an answer, too. */
    assert_int_equal(atomic_load(&f->answered), 3);
    end(f);
}

static void head_304_and_gzip_agree_with_get(void **state)
{
    struct fixture *f = start_serving();
    struct answer_seen plain, seen;
    char tag[128], length[64];
    assert_int_equal(get(f, "/rows", "", &plain), 200);
    snprintf(tag, sizeof(tag), "If-None-Match: %.*s\r\n",
             (int)strcspn(header(&plain, "ETag"), "\r"), header(&plain, "ETag"));
    snprintf(length, sizeof(length), "%zu\r", plain.body.len);
    int fd = connect_to(f);
    ask(fd, "HEAD", "/rows", "", NULL);
    receive(fd, true, &seen);
    assert_int_equal(seen.status, 200);
    assert_memory_equal(header(&seen, "Content-Length"), length, strlen(length));
    assert_memory_equal(header(&seen, "ETag"), header(&plain, "ETag"), 18);
    ask(fd, "GET", "/rows", tag, NULL); /* on the same connection: HEAD left nothing behind */
    receive(fd, false, &seen);
    assert_int_equal(seen.status, 304);
    assert_int_equal(seen.body.len, 0);
    ask(fd, "GET", "/rows", "Accept-Encoding: gzip\r\n", NULL);
    receive(fd, false, &seen);
    assert_int_equal(seen.status, 200);
    assert_memory_equal(header(&seen, "Content-Encoding"), "gzip", 4);
    assert_true(seen.body.len < plain.body.len / 5);
    struct buffer again = BUFFER_INIT(ANSWER_MAX);
    assert_int_equal(gzip_expand(seen.body.data, seen.body.len, &again), 0);
    assert_int_equal(again.len, plain.body.len);
    assert_memory_equal(again.data, plain.body.data, again.len);
    buffer_release(&again);
    /* The two forms have different tags, and either of them is "has it already". */
    assert_memory_not_equal(header(&seen, "ETag"), header(&plain, "ETag"), 20);
    snprintf(tag, sizeof(tag), "Accept-Encoding: gzip\r\nIf-None-Match: %.*s\r\n",
             (int)strcspn(header(&seen, "ETag"), "\r"), header(&seen, "ETag"));
    forget(&seen);
    ask(fd, "GET", "/rows", tag, NULL);
    receive(fd, false, &seen);
    assert_int_equal(seen.status, 304);
    ask(fd, "GET", "/rows?n=1", "Accept-Encoding: gzip\r\n", NULL); /* too small to be worth it */
    receive(fd, false, &seen);
    assert_null(header(&seen, "Content-Encoding"));
    forget(&seen);
    ask(fd, "GET", "/rows?n=400000", "Accept-Encoding: gzip\r\n", NULL); /* others would wait */
    receive(fd, false, &seen);
    assert_int_equal(seen.status, 200);
    assert_true(seen.body.len > 8 << 20);
    assert_null(header(&seen, "Content-Encoding"));
    forget(&seen);
    close(fd);
    forget(&plain);
    end(f);
}

static void handlers_may_answer_later_again_or_badly(void **state)
{
    struct fixture *f = start_serving();
    struct answer_seen seen;
    assert_int_equal(get(f, "/later", "", &seen), 200);
    assert_string_equal(seen.body.data, "\"late\"\n");
    forget(&seen);
    assert_int_equal(get(f, "/again", "", &seen), 200);
    assert_string_equal(seen.body.data, "3\n");
    forget(&seen);
    assert_int_equal(get(f, "/nothing", "", &seen), 500);
    assert_non_null(strstr(seen.body.data, "\"status\":500"));
    forget(&seen);
    assert_int_equal(get(f, "/bad", "", &seen), 400);
    assert_memory_equal(header(&seen, "Content-Type"), "application/problem+json", 24);
    assert_string_equal(
        seen.body.data,
        "{\"type\":\"urn:memoir:problem:bad-query\",\"title\":\"Invalid query\","
        "\"status\":400,\"detail\":\"there is no column 'rsss'\",\"instance\":\"/bad\","
        "\"part\":\"show\",\"at\":3}");
    forget(&seen);
    assert_int_equal(get(f, "/file", "", &seen), 200);
    assert_string_equal(seen.body.data, "main;f 1\n");
    const char *disposition = header(&seen, "Content-Disposition"); /* whatever the name was */
    assert_memory_equal(disposition, "attachment; filename=\"a__b___X__y.folded\"\r\n", 43);
    forget(&seen);
    end(f);
}

static void who_may_only_look_cannot_act_and_acts_are_noted(void **state)
{
    struct fixture *f = start_serving();
    struct answer_seen seen;
    int fd = connect_to(f);
    ask(fd, "POST", "/act", "", "{}"); /* by peer credentials */
    receive(fd, false, &seen);
    assert_int_equal(seen.status, 200);
    assert_string_equal(seen.body.data, "\"{}\"\n");
    assert_int_equal(atomic_load(&f->actions), 1);
    forget(&seen);
    ask(fd, "POST", "/act", "Authorization: Bearer ann\r\n", "{}");
    receive(fd, false, &seen);
    assert_int_equal(seen.status, 403);
    assert_int_equal(atomic_load(&f->actions), 1);
    forget(&seen);
    close(fd);
    assert_int_equal(get(f, "/rows", "Authorization: Bearer eve\r\n", &seen), 401);
    forget(&seen);
    assert_int_equal(get(f, "/act", "", &seen), 405);
    assert_memory_equal(header(&seen, "Allow"), "POST\r", 5);
    forget(&seen);
    end(f);
}

/* Everything that a stream sends until `end` was in it. */
static char *stream_until(int fd, struct buffer *text, const char *wanted)
{
    while (!text->data || !strstr(text->data, wanted)) {
        char *to = buffer_reserve(text, 4096);
        ssize_t n = recv(fd, to, 4096, 0);
        if (n <= 0)
            fail_msg("the stream ended without %s: %s", wanted, buffer_string(text));
        buffer_commit(text, (size_t)n);
    }
    return text->data;
}

static void publish(struct fixture *f, struct http_audience audience, const char *event,
                    const char *json)
{
    assert_int_equal(http_stream_publish(f->http, &audience, event, 0, json, strlen(json)), 0);
}

static void streams_get_what_they_may_see_in_order(void **state)
{
    struct fixture *f = start_serving();
    struct buffer of_ann = BUFFER_INIT(1 << 20), of_root = BUFFER_INIT(1 << 20);
    struct answer_seen seen;
    int ann = connect_to(f), root = connect_to(f);
    ask(ann, "GET", "/stream", "Authorization: Bearer ann\r\nLast-Event-ID: 41\r\n", NULL);
    head_read(ann, &seen);
    assert_int_equal(seen.status, 200);
    assert_memory_equal(header(&seen, "Content-Type"), "text/event-stream", 17);
    stream_until(ann, &of_ann, "data: 1\n");
    ask(root, "GET", "/stream", "Authorization: Bearer root\r\n", NULL);
    head_read(root, &seen);
    stream_until(root, &of_root, "data: 1\n");
    struct http_audience classes[4];
    assert_int_equal(http_stream_classes(f->http, classes, 4), 2);
    publish(f, (struct http_audience){.to = HTTP_TO_UID, .uid = 1000}, "tick", "\"anns\"");
    publish(f, (struct http_audience){.to = HTTP_TO_SEES_ALL}, "tick", "\"roots\"");
    publish(f, (struct http_audience){.to = HTTP_TO_UID, .uid = 1001}, "tick", "\"bobs\"");
    publish(f, (struct http_audience){.to = HTTP_TO_ALL}, "last", "\"alls\"");
    const char *text = stream_until(ann, &of_ann, "alls");
    assert_non_null(strstr(text, "event: hello\ndata: {\"last\":41}\n\n"));
    assert_non_null(strstr(text, "id: 1\nevent: first\ndata: 1\n\n"));
    assert_true(strstr(text, "hello") < strstr(text, "first") &&
                strstr(text, "first") < strstr(text, "anns"));
    assert_null(strstr(text, "roots"));
    assert_null(strstr(text, "bobs"));
    text = stream_until(root, &of_root, "alls");
    assert_non_null(strstr(text, "roots"));
    assert_null(strstr(text, "anns"));
    assert_non_null(strstr(text, "\"last\":null"));
    close(ann);
    end(f); /* with a stream open: it ends */
    char byte[4096];
    while (recv(root, byte, sizeof(byte), 0) > 0)
        ;
    close(root);
    buffer_release(&of_ann);
    buffer_release(&of_root);
}

static void a_stream_that_does_not_read_is_told_what_it_lost(void **state)
{
    struct fixture *f = start_serving();
    struct buffer text = BUFFER_INIT(64 << 20);
    struct answer_seen seen;
    char *json = malloc(32 << 10);
    json[0] = '"';
    memset(json + 1, 'x', (32 << 10) - 3);
    strcpy(json + (32 << 10) - 2, "\"");
    int fd = connect_to(f);
    ask(fd, "GET", "/stream", "", NULL);
    head_read(fd, &seen);
    stream_until(fd, &text, "data: 1\n");
    wait_for(f, streams, 1);
    for (int i = 0; i < 1000; i++) { /* more than the ring, and than any socket, holds */
        while (http_stream_publish(f->http, &(struct http_audience){.to = HTTP_TO_ALL}, "big", 0,
                                   json, (32 << 10) - 1) == -ENOBUFS)
            usleep(1000);
    }
    /* It gets whole events, then hears that some are missing, or its stream ends where one was half sent. */
    bool told = false;
    for (ssize_t n = 1; n > 0 && !told;) {
        char *to = buffer_reserve(&text, 65536);
        n = recv(fd, to, 65536, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) {
            publish(f, (struct http_audience){.to = HTTP_TO_ALL}, "tick", "1");
            usleep(1000);
            n = 1;
            continue;
        }
        if (n > 0)
            buffer_commit(&text, (size_t)n);
        const char *latest = buffer_string(&text) + (text.len > 200000 ? text.len - 200000 : 0);
        told = n == 0 || strstr(latest, "event: lost") ||
               strstr(latest, "\r\n0\r\n\r\n"); /* the last chunk */
    }
    assert_true(told);
    assert_true(text.len < 1000 * (32 << 10));
    close(fd);
    free(json);
    buffer_release(&text);
    end(f);
}

static void what_is_not_answered_in_time_is_given_up(void **state)
{
    struct http_limits limits = http_limits_default;
    limits.answer_ns = 300 * NS_PER_MS;
    struct fixture *f = start(&limits);
    struct answer_seen seen;
    assert_int_equal(get(f, "/rows", "", &seen), 504);
    forget(&seen);
    assert_false(http_serve(f->http, HTTP_ON_LOOP, NS_PER_S, NULL));
    assert_int_equal(atomic_load(&f->answered), 0); /* nobody waits for it any more */
    serve_start(f, HTTP_ON_LOOP);
    uint64_t until = clock_monotonic_ns() + PATIENCE_MS * NS_PER_MS;
    int status;
    do { /* on a busy machine the next one may be late as well */
        status = get(f, "/rows?n=1", "", &seen);
        forget(&seen);
    } while (status == 504 && clock_monotonic_ns() < until);
    assert_int_equal(status, 200);
    end(f);
}

static void who_waits_at_the_end_is_told(void **state)
{
    struct fixture *f = start(NULL);
    int fd = connect_to(f);
    struct answer_seen seen;
    ask(fd, "GET", "/rows", "", NULL);
    wait_for(f, waiting, 1);
    end(f);
    receive(fd, false, &seen);
    assert_int_equal(seen.status, 503);
    forget(&seen);
    close(fd);
}

/* ---- more than is good ---- */

static void who_tries_again_and_again_leaves_the_thread_its_turn(void **state)
{
    enum { N = 40 };
    struct fixture *f = start(NULL);
    struct answer_seen seen;
    int fds[N];
    for (int i = 0; i < N; i++) {
        fds[i] = connect_to(f);
        ask(fds[i], "GET", "/stubborn", "", NULL);
    }
    wait_for(f, waiting, N);
    /* All of them together take longer than any waits until its next try. */
    while (atomic_load(&f->answered) < 5 * N)
        (void)http_serve(f->http, HTTP_ON_LOOP, NS_PER_MS, NULL);
    int other = connect_to(f);
    ask(other, "GET", "/rows?n=1", "", NULL);
    struct pollfd comes = {.fd = other, .events = POLLIN};
    unsigned before = atomic_load(&f->answered);
    while (poll(&comes, 1, 0) == 0)
        (void)http_serve(f->http, HTTP_ON_LOOP, NS_PER_MS, NULL);
    receive(other, false, &seen);
    assert_int_equal(seen.status, 200);
    assert_true(atomic_load(&f->answered) > before);
    forget(&seen);
    close(other);
    atomic_store(&f->released, true);
    serve_start(f, HTTP_ON_LOOP);
    for (int i = 0; i < N; i++) {
        receive(fds[i], false, &seen);
        assert_int_equal(seen.status, 200);
        forget(&seen);
        close(fds[i]);
    }
    end(f);
}

static void answers_that_nobody_takes_are_not_piled_up(void **state)
{
    struct http_limits limits = http_limits_default;
    limits.answers_bytes_max = 1 << 20;
    struct fixture *f = start(&limits);
    struct answer_seen seen, taken;
    static const char large[] =
        "/fresh?n=30000"; /* more than half of that, and than a socket holds */
    serve_start(f, HTTP_ON_WORKER);
    int deaf = connect_to(f);
    ask(deaf, "GET", large, "", NULL);
    head_read(deaf, &taken);
    assert_int_equal(taken.status, 200);
    assert_int_equal(get(f, large, "", &seen), 503);
    assert_non_null(header(&seen, "Retry-After"));
    forget(&seen);
    assert_int_equal(get(f, "/fresh?n=1", "", &seen), 200);
    forget(&seen);
    assert_int_equal(get(f, large, "Authorization: Bearer ann\r\n", &seen), 200); /* has her own */
    forget(&seen);
    int deaf_ann = connect_to(f);
    ask(deaf_ann, "GET", large, "Authorization: Bearer ann\r\n", NULL);
    head_read(deaf_ann, &taken);
    assert_int_equal(taken.status, 200);
    assert_int_equal(get(f, large, "Authorization: Bearer ann\r\n", &seen), 503);
    forget(&seen);
    assert_int_equal(get(f, large, "Authorization: Bearer ben\r\n", &seen),
                     200); /* and so has ben */
    forget(&seen);
    close(deaf_ann);
    close(deaf);
    uint64_t until = clock_monotonic_ns() + PATIENCE_MS * NS_PER_MS;
    int status;
    do {
        status = get(f, large, "", &seen);
        forget(&seen);
    } while (status == 503 && clock_monotonic_ns() < until);
    assert_int_equal(status, 200);
    end(f);
}

static void a_stream_ends_with_the_token_that_opened_it(void **state)
{
    struct fixture *f = start_serving();
    struct buffer text = BUFFER_INIT(1 << 20);
    struct answer_seen seen;
    int ann = connect_to(f), root = connect_to(f);
    ask(ann, "GET", "/stream", "Authorization: Bearer ann\r\n", NULL);
    head_read(ann, &seen);
    ask(root, "GET", "/stream", "Authorization: Bearer root\r\n", NULL);
    head_read(root, &seen);
    stream_until(ann, &text, "data: 1\n");
    atomic_store(&f->revoked, true);
    stream_until(ann, &text, "\r\n0\r\n\r\n"); /* the last chunk */
    buffer_reset(&text);
    publish(f, (struct http_audience){.to = HTTP_TO_ALL}, "tick", "\"still\"");
    stream_until(root, &text, "still");
    close(ann);
    close(root);
    buffer_release(&text);
    end(f);
}

static void what_a_stream_begins_with_is_whole_also_when_it_loses_events(void **state)
{
    struct fixture *f = start_serving();
    struct buffer text = BUFFER_INIT(16 << 20);
    struct answer_seen seen;
    int fd = connect_to(f);
    ask(fd, "GET", "/replay", "", NULL);
    head_read(fd, &seen);
    wait_for(f, streams, 1);
    for (int i = 0; i < 600; i++) /* the ring goes round, while it has not taken its past */
        while (http_stream_publish(f->http, &(struct http_audience){.to = HTTP_TO_ALL}, "tick", 0,
                                   "1", 1) == -ENOBUFS)
            usleep(1000);
    wait_for(f, events, 600);
    const char *at = stream_until(fd, &text, "event: lost");
    size_t n = 0;
    for (; *at; at++)
        n += *at == 'x';
    assert_int_equal(n, REPLAYED);
    close(fd);
    buffer_release(&text);
    end(f);
}

/* ---- all at once ---- */

struct crowd {
    struct fixture *f;
    unsigned number;
};

static void *crowd_member(void *context)
{
    struct crowd *c = context;
    static const char *const targets[] = {"/rows",  "/rows?n=%u", "/fresh?n=2",
                                          "/later", "/again",     "/bad"};
    char target[64];
    struct answer_seen seen;
    int fd = connect_to(c->f);
    for (unsigned i = 0; i < 60; i++) {
        snprintf(target, sizeof(target), targets[(i + c->number) % 6], i);
        ask(fd, "GET", target, i % 2 ? "Accept-Encoding: gzip\r\n" : "", NULL);
        receive(fd, false, &seen);
        assert_int_equal(seen.status, (i + c->number) % 6 == 5 ? 400 : 200);
        forget(&seen);
    }
    close(fd);
    return NULL;
}

static void *crowd_publisher(void *context)
{
    struct crowd *c = context;
    for (int i = 0; i < 500; i++) {
        struct http_audience classes[4];
        (void)http_stream_classes(c->f->http, classes, 4);
        (void)http_stream_publish(c->f->http, &(struct http_audience){.to = HTTP_TO_ALL}, "tick", 0,
                                  "{}", 2);
    }
    return NULL;
}

static void many_threads_at_once_get_their_answers(void **state)
{
    enum { N = 6 };
    struct fixture *f = start_serving();
    struct crowd members[N + 1];
    pthread_t threads[N + 1];
    struct answer_seen seen;
    int stream = connect_to(f);
    ask(stream, "GET", "/stream", "", NULL);
    head_read(stream, &seen);
    wait_for(f, streams, 1);
    for (unsigned i = 0; i <= N; i++) {
        members[i] = (struct crowd){f, i};
        assert_int_equal(
            pthread_create(&threads[i], NULL, i < N ? crowd_member : crowd_publisher, &members[i]),
            0);
    }
    for (unsigned i = 0; i <= N; i++)
        pthread_join(threads[i], NULL);
    struct buffer text = BUFFER_INIT(1 << 20);
    stream_until(stream, &text, "event: tick");
    buffer_release(&text);
    close(stream);
    end(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_question_that_many_ask_is_answered_once),
        cmocka_unit_test(each_viewer_gets_his_own_answer),
        cmocka_unit_test(head_304_and_gzip_agree_with_get),
        cmocka_unit_test(handlers_may_answer_later_again_or_badly),
        cmocka_unit_test(who_may_only_look_cannot_act_and_acts_are_noted),
        cmocka_unit_test(streams_get_what_they_may_see_in_order),
        cmocka_unit_test(a_stream_that_does_not_read_is_told_what_it_lost),
        cmocka_unit_test(what_is_not_answered_in_time_is_given_up),
        cmocka_unit_test(who_waits_at_the_end_is_told),
        cmocka_unit_test(who_tries_again_and_again_leaves_the_thread_its_turn),
        cmocka_unit_test(answers_that_nobody_takes_are_not_piled_up),
        cmocka_unit_test(a_stream_ends_with_the_token_that_opened_it),
        cmocka_unit_test(what_a_stream_begins_with_is_whole_also_when_it_loses_events),
        cmocka_unit_test(many_threads_at_once_get_their_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Connections of the native protocol: lines, hello, who is who. The requests have files of their own. */
#include "daemon/native.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/version.h"
#include "daemon/asking.h"
#include "daemon/behalf.h"
#include "daemon/daemon.h"
#include "daemon/native_internal.h"
#include "daemon/server.h"
#include "daemon/token.h"

/* The viewer of a token without a user: no process has this uid. */
#define VIEWER_NOBODY UINT32_MAX

/* ---- answers ---- */

void native_answer_begin(struct native *native, struct json *json)
{
    buffer_reset(&native->out);
    json_init(json, &native->out);
    json_object_begin(json);
}

/* What has come since is not looked at any more. */
static void close_soon(struct native_client *client)
{
    client->closing = true;
    conn_close(client->conn);
}

static void out_send(struct native_client *client)
{
    struct buffer *out = &client->native->out;
    buffer_append_char(out, '\n');
    if (out->error) {
        log_error("cannot answer a native client: %s", strerror(-out->error));
        close_soon(client);
    } else if (conn_send(client->conn, out->data, out->len) < 0) {
        client->closing = true; /* by itself: it does not take its answers */
    }
}

void native_answer_end(struct native_client *client, struct json *json)
{
    const struct native_request *request = &client->native->parser.request;
    if (request->id) {
        json_key(json, "id");
        json_raw(json, request->id, request->id_len);
    }
    json_object_end(json);
    (void)json_finish(json);
    out_send(client);
}

void native_refuse(struct native_client *client, const struct native_error *error)
{
    struct native *native = client->native;
    struct json json;
    buffer_reset(&native->out);
    json_init(&json, &native->out);
    native_error_write(error, &native->parser.request, &json);
    (void)json_finish(&json);
    out_send(client);
}

static void refuse_and_close(struct native_client *client, const struct native_error *error)
{
    native_refuse(client, error);
    close_soon(client);
}

/* ---- strangers ---- */

static void stranger_remove(struct native_client *client)
{
    struct native *native = client->native;
    if (!client->stranger)
        return;
    client->stranger = false;
    TAILQ_REMOVE(&native->strangers, client, stranger_link);
    native->n_strangers--;
}

/* A client with a token shows it at once, so the oldest connection is closed, not the new one: else a few silent
 * connections would keep all clients out. */
static void stranger_drop(struct native_client *client, const char *where)
{
    if (server_may_say(&client->native->strangers_said_ns))
        log_warn("too many clients without a token %s: the oldest, from %s, is closed", where,
                 conn_peer(client->conn)->host);
    stranger_remove(client);
    close_soon(client);
}

static void stranger_add(struct native_client *client)
{
    struct native *native = client->native;
    const char *address = conn_peer(client->conn)->host;
    struct native_client *other, *oldest = NULL;
    size_t n = 0;
    TAILQ_FOREACH(other, &native->strangers, stranger_link)
    {
        if (strcmp(conn_peer(other->conn)->host, address) != 0)
            continue;
        if (n++ == 0)
            oldest = other;
    }
    if (n >= NATIVE_STRANGERS_ADDRESS_MAX)
        stranger_drop(oldest, "from one address");
    else if (native->n_strangers >= NATIVE_STRANGERS_MAX)
        stranger_drop(TAILQ_FIRST(&native->strangers), "at once");
    client->stranger = true;
    TAILQ_INSERT_TAIL(&native->strangers, client, stranger_link);
    native->n_strangers++;
}

/* ---- hello ---- */

/* What books and memory know a session by: not the secret itself, and bound to the client that began it. */
static uint64_t session_number(const struct native_client *client, const char *session)
{
    char text[NATIVE_SESSION_CHARS + sizeof(client->identity->token) + 2];
    uint8_t digest[SHA256_BYTES];
    uint64_t number;
    int len = snprintf(text, sizeof(text), "%s %s", session,
                       client->identity ? client->identity->token : "");
    sha256(text, (size_t)len, digest);
    memcpy(&number, digest, sizeof(number));
    return number ? number : 1;
}

static int session_make(char session[static NATIVE_SESSION_CHARS + 1])
{
    uint8_t random[NATIVE_SESSION_CHARS / 2];
    if (getrandom(random, sizeof(random), GRND_NONBLOCK) != sizeof(random))
        return -EIO;
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(session + 2 * i, 3, "%02x", random[i]);
    return 0;
}

static bool check_version(struct native_client *client, const struct native_hello *hello)
{
    struct native_error error;
    if (client->greeted)
        native_error_set(&error, "bad-request", "hello was said already: open another connection");
    else if (hello->version != NATIVE_VERSION)
        native_error_set(&error, "bad-request", "this memoird speaks version %d only",
                         NATIVE_VERSION);
    else
        return true;
    native_refuse(client, &error);
    return false;
}

/* At most a line a second, however many attempts there are. */
static void token_failed(struct native *native, const char *address, bool had_one)
{
    uint64_t now = clock_monotonic_ns();
    native->tokens_refused++;
    if (native->refused_said_ns && now - native->refused_said_ns < NS_PER_S)
        return;
    native->refused_said_ns = now;
    log_warn("a client from %s came with %s token (%" PRIu64 " so far)", address,
             had_one ? "a wrong" : "no", native->tokens_refused);
}

/* The token decides who a remote client is; all else it may say about itself. */
static bool enter_remote(struct native_client *client, const struct native_request *request)
{
    struct native *native = client->native;
    const struct native_hello *hello = &request->hello;
    const char *address = conn_peer(client->conn)->host;
    struct native_error error;
    struct token token;
    if (!hello->has_token || tokens_check(native->tokens, hello->token, &token) < 0) {
        token_failed(native, address, hello->has_token);
        native_error_set(&error, "token",
                         hello->has_token ? "this token is not known: see memoird's token-file"
                                          : "a token is needed: {\"hello\":1,\"token\":\"...\"}");
        refuse_and_close(client, &error);
        return false;
    }
    struct native_identity *identity = calloc(1, sizeof(*identity));
    if (!identity) {
        native_error_set(&error, "internal", "out of memory, try again later");
        refuse_and_close(client, &error);
        return false;
    }
    memcpy(identity->token, token.name, sizeof(identity->token));
    memcpy(identity->host, hello->host[0] ? hello->host : address, sizeof(identity->host));
    memcpy(identity->program, hello->program, sizeof(identity->program));
    memcpy(identity->command, hello->command, sizeof(identity->command));
    client->identity = identity;
    client->pid = (pid_t)request->pid;
    client->viewer_uid = token.has_uid ? token.uid : VIEWER_NOBODY;
    client->sees_all = token.has_uid && token.uid == 0;
    return true;
}

static bool enter_local(struct native_client *client, const struct native_request *request)
{
    struct native_error error;
    if (!request->has_pid)
        return true;
    struct peer_process process;
    int r = peer_resolve(conn_peer(client->conn), (pid_t)request->pid, &process);
    if (r >= 0) {
        if (process.pid != client->pid || process.start_ticks != client->start_ticks)
            native_book_drop(client); /* what it reported before was another one's */
        client->pid = process.pid;
        client->start_ticks = process.start_ticks;
        return true;
    }
    if (r == -EPERM)
        native_error_set(&error, "forbidden",
                         "you may not speak for PID %d: only for yourself and for descendants with "
                         "your uid",
                         (int)request->pid);
    else if (r == -ESRCH)
        native_error_set(&error, "forbidden", "there is no process %d", (int)request->pid);
    else
        native_error_set(&error, "limit", "too many PIDs at once, try again later");
    native_refuse(client, &error);
    return false;
}

static void hello_answer(struct native_client *client, const char *session, bool resumed)
{
    const struct config *config = &client->native->daemon->config;
    struct json json;
    native_answer_begin(client->native, &json);
    json_field_u64(&json, "hello", NATIVE_VERSION);
    json_field_string(&json, "server", "memoird " MEMOIR_VERSION);
    json_field_string(&json, "session", session);
    json_field_bool(&json, "resumed", resumed);
    json_field_u64(&json, "seq", client->seq);
    json_field_i64(&json, "pid", client->pid);
    if (!client->remote) {
        json_field_u64(&json, "uid", client->viewer_uid);
        json_field_string(&json, "state", client->native->daemon->state_path);
        json_field_u64(&json, "rejected", server_rejected_reports(client->native->daemon->server));
    }
    json_key(&json, "limits");
    json_object_begin(&json);
    json_field_u64(&json, "message_bytes", config->message_max);
    json_field_u64(&json, "buffers", config->buffers_per_client_max);
    json_field_u64(&json, "reports_per_second", config->reports_per_second);
    json_object_end(&json);
    native_answer_end(client, &json);
}

static void native_hello(struct native_client *client)
{
    const struct native_request *request = &client->native->parser.request;
    const struct native_hello *hello = &request->hello;
    char session[NATIVE_SESSION_CHARS + 1];
    if (!check_version(client, hello))
        return;
    if (!(client->remote ? enter_remote(client, request) : enter_local(client, request)))
        return;
    if (hello->has_session) {
        memcpy(session, hello->session, sizeof(session));
    } else if (session_make(session) < 0) {
        struct native_error error;
        native_error_set(&error, "internal", "no random numbers yet, try again later");
        native_refuse(client, &error);
        return;
    }
    client->session = session_number(client, session);
    client->greeted = true;
    stranger_remove(client);
    if (hello->has_session) { /* only then there may be a book that knows it */
        if (!native_book(client))
            return;
        client->seq = behalf_session_seq(client->behalf, client->session);
    }
    hello_answer(client, session, client->seq > 0);
}

/* ---- lines ---- */

static void native_pong(struct native_client *client)
{
    const struct native_request *request = &client->native->parser.request;
    struct json json;
    native_answer_begin(client->native, &json);
    json_key(&json, "pong");
    json_raw(&json, request->ping, request->ping_len);
    native_answer_end(client, &json);
}

/* False: it has to wait for its turn. */
static bool on_line(struct native_client *client, const char *line, size_t len)
{
    static void (*const requests[])(struct native_client *) = {
        [NATIVE_HELLO] = native_hello,
        [NATIVE_DEVICE] = native_device,
        [NATIVE_REPORT] = native_report,
        [NATIVE_RESET] = native_reset,
        [NATIVE_QUERY] = native_query,
        [NATIVE_SUBSCRIBE] = native_subscribe,
        [NATIVE_UNSUBSCRIBE] = native_unsubscribe,
        [NATIVE_PING] = native_pong,
        [NATIVE_LOGIN] = native_login,
        [NATIVE_CLUSTER] = native_cluster_status,
    };
    struct native *native = client->native;
    struct native_error error;
    uint64_t wait_ns;
    int r = native_parse(&native->parser, line, len, &error);
    if (client->remote && !client->greeted &&
        (r < 0 || native->parser.request.kind != NATIVE_HELLO)) {
        native_error_set(&error, "token", "the first line must be {\"hello\":1,\"token\":\"...\"}");
        refuse_and_close(client, &error);
    } else if (r < 0) {
        native_refuse(client, &error);
    } else if ((native->parser.request.kind == NATIVE_QUERY ||
                (native->parser.request.kind == NATIVE_TRACE && !client->trace)) &&
               conn_answer_waits(client->conn)) {
        return false;
    } else if (native->parser.request.kind == NATIVE_QUERY &&
               (native->parser.request.query.cluster || native->parser.request.query.node[0])) {
        return native_cluster_query(client);
    } else if (native->parser.request.kind == NATIVE_CALL) {
        return native_cluster_call(client);
    } else if (native->parser.request.kind == NATIVE_QUERY &&
               (wait_ns = native_query_wait(client)) > 0) {
        conn_hold(client->conn, wait_ns);
        return false;
    } else if (native->parser.request.kind == NATIVE_TRACE) {
        return native_trace(client);
    } else {
        requests[native->parser.request.kind](client);
    }
    return true;
}

static size_t line_max(const struct native_client *client)
{
    if (client->remote && !client->greeted)
        return NATIVE_TOKEN_LINE_MAX;
    return client->native->daemon->config.message_max;
}

static void refuse_long_line(struct native_client *client)
{
    struct native_error error;
    client->native->parser.request.id = NULL; /* whatever was read before it is not this line's */
    client->native->parser.request.has_seq = false;
    native_error_set(&error, "too-long",
                     "a line of more than %zu bytes: send smaller batches, or raise message-max",
                     line_max(client));
    refuse_and_close(client, &error);
}

static void wake_set(struct native_client *client, uint64_t now_ns)
{
    uint64_t ns = native_due(client, now_ns);
    if (client->remote && !client->greeted)
        ns = client->token_due_ns > now_ns ? client->token_due_ns - now_ns : 1;
    conn_wake_after(client->conn, ns);
}

static ssize_t on_bytes(struct conn *conn, const uint8_t *bytes, size_t n)
{
    struct native_client *client = conn_state(conn);
    const char *at = (const char *)bytes, *end = at + n, *newline;
    bool waiting = false;
    while (!client->closing && at < end &&
           (newline = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        waiting = at > (const char *)bytes && conn_must_stop(conn);
        if (waiting)
            break;
        if ((size_t)(newline - at) > line_max(client))
            refuse_long_line(client);
        else if (newline > at && !(newline == at + 1 && *at == '\r')) /* empty lines are fine */
            waiting = !on_line(client, at, (size_t)(newline - at));
        if (waiting)
            break;
        at = newline + 1;
    }
    if (!client->closing && !waiting && (size_t)(end - at) > line_max(client))
        refuse_long_line(client);
    if (client->closing)
        return (ssize_t)n;
    if (client->topics || (client->remote && !client->greeted))
        wake_set(client, clock_monotonic_ns());
    return at - (const char *)bytes;
}

static ssize_t on_wake(struct conn *conn, const uint8_t *bytes, size_t n)
{
    struct native_client *client = conn_state(conn);
    if (client->remote && !client->greeted && clock_monotonic_ns() >= client->token_due_ns) {
        close_soon(client);
        return 0;
    }
    wake_set(client, clock_monotonic_ns());
    return 0;
}

static int on_open(struct conn *conn)
{
    const struct server *server = conn_context(conn);
    struct native *native = server->daemon->native;
    const struct peer *peer = conn_peer(conn);
    struct native_client *client = calloc(1, sizeof(*client));
    if (!client)
        return -ENOMEM;
    client->native = native;
    client->conn = conn;
    client->remote = peer->remote;
    client->pid = peer->remote ? 0 : peer->pid;
    client->start_ticks = peer->remote ? 0 : peer->start_ticks;
    client->viewer_uid = peer->remote ? VIEWER_NOBODY : peer->uid;
    client->sees_all = !peer->remote && peer->uid == 0;
    conn_set_state(conn, client);
    if (client->remote) {
        uint64_t now = clock_monotonic_ns();
        stranger_add(client);
        client->token_due_ns = now + NATIVE_TOKEN_WAIT_S * NS_PER_S;
        wake_set(client, now);
    }
    return 0;
}

static void on_close(struct conn *conn, enum conn_end end)
{
    struct native_client *client = conn_state(conn);
    (void)end;
    stranger_remove(client);
    asking_leave(client->native->daemon->asking, &client->turn);
    native_subscriber_forget(client);
    native_trace_drop(client);
    native_cluster_drop(client);
    native_book_drop(client);
    free(client->identity);
    free(client);
}

const struct conn_protocol native_protocol = {
    .name = "native",
    .on_open = on_open,
    .on_bytes = on_bytes,
    .on_wake = on_wake,
    .on_close = on_close,
    .rest_max = CONN_BATCH_BYTES - 1,
};

/* ---- life ---- */

int native_new(struct daemon *daemon, struct native **ret_native)
{
    struct native *native = calloc(1, sizeof(*native));
    if (!native)
        return -ENOMEM;
    native->daemon = daemon;
    TAILQ_INIT(&native->strangers);
    buffer_init(&native->out, NATIVE_ANSWER_MAX);
    buffer_init(&native->devices, NATIVE_EVENTS_QUEUED_MAX);
    if (daemon->config.tcp[0]) {
        int r = daemon->config.token_file[0]
                    ? tokens_new(daemon->config.token_file, &native->tokens)
                    : -EINVAL;
        if (!daemon->config.token_file[0])
            log_error("--tcp needs --token-file: remote clients show a token");
        if (r < 0) {
            native_free(native);
            return r;
        }
    }
    *ret_native = native;
    return 0;
}

void native_free(struct native *native)
{
    if (!native)
        return;
    native_parser_release(&native->parser);
    buffer_release(&native->out);
    buffer_release(&native->devices);
    tokens_free(native->tokens);
    free(native);
}

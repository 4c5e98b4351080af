/* Connections. See conn.h. */
#include "daemon/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/conn_internal.h"
#include "daemon/loop.h"
#include "daemon/server.h"

enum {
    OUT_LENT_BYTES = 64 << 10,
    TIMER_FINE_NS = 500000,       /* no two rounds of the timer closer than this */
    SMALL_BATCH_BYTES = 16 << 10, /* of a user with much output kept already */
    FULL_RETRY_NS = 10000000,     /* to look whether a user has taken its answers */
};

static void conn_end(struct conn *conn, enum conn_end end);

/* ---- timers ---- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a == 0 ? b : b == 0 ? a : a < b ? a : b;
}

static uint64_t deadline_of(const struct conn *conn)
{
    uint64_t stall = conn->server->limits->stall_ns;
    uint64_t at = conn->resume_ns;
    if (!conn->ready) /* else it is called anyway */
        at = earlier(at, earlier(conn->wake_ns, conn->hold_ns));
    if (conn->rest_ns && conn->resume_ns == 0)
        at = earlier(at, conn->rest_ns + stall);
    if (conn->out_ns)
        at = earlier(at, conn->out_ns + stall);
    return at;
}

static void timer_arm(struct conn_server *server, uint64_t at, uint64_t now)
{
    if (at == 0 || (server->timer_ns && server->timer_ns <= at))
        return;
    server->timer_ns = at;
    uint64_t delay = at > now + TIMER_FINE_NS ? at - now : TIMER_FINE_NS;
    loop_timer_set(server->timer, delay, 0);
}

/* After anything that may have changed when something is due. */
static void conn_time(struct conn *conn)
{
    struct conn_server *server = conn->server;
    uint64_t at = deadline_of(conn);
    if (at && !conn->timed)
        TAILQ_INSERT_TAIL(&server->timed, conn, timed_link);
    else if (!at && conn->timed)
        TAILQ_REMOVE(&server->timed, conn, timed_link);
    conn->timed = at != 0;
    if (at && (server->timer_ns == 0 || at < server->timer_ns))
        timer_arm(server, at, clock_monotonic_ns());
}

/* ---- output ---- */

/* Its own answers have to go first. */
static bool out_full(const struct conn *conn)
{
    return conn->out.len - conn->out.sent >= CONN_OUT_HIGH;
}

/* Its user's answers have to go first, wherever they wait. */
static bool user_full(const struct conn *conn, size_t high)
{
    return conn->user->uid != 0 &&
           (conn->user->out_bytes >= high || conn->server->out_bytes >= CONN_OUT_ALL_HIGH);
}

static bool blocked(const struct conn *conn)
{
    return conn->resume_ns || conn->hold_ns || out_full(conn);
}

/* End the connection of a client that sends no more, once nothing is left to do for it. False when it is
 * no more. */
static bool finish(struct conn *conn)
{
    if (!conn->ended || conn->held || conn->out.len > conn->out.sent)
        return true;
    conn_end(conn, CONN_END_PEER);
    return false;
}

static void events_set(struct conn *conn)
{
    uint32_t events = (blocked(conn) || conn->ended ? 0 : EPOLLIN) |
                      (conn->out.len > conn->out.sent ? EPOLLOUT : 0);
    if (!conn->source || events == conn->events)
        return;
    conn->events = events;
    (void)loop_fd_events(conn->source, events);
}

/* After anything that may have changed what it waits for. */
static void settle(struct conn *conn)
{
    if (conn->held && !blocked(conn))
        conn_ready(conn);
    events_set(conn);
    conn_time(conn);
}

static void out_count(struct conn *conn, size_t before, size_t after)
{
    conn->user->out_bytes += after - before;
    conn->server->out_bytes += after - before;
}

/* Give back what was lent, or free it. */
static void out_release(struct conn *conn)
{
    struct conn_server *server = conn->server;
    out_count(conn, conn->out.room, 0);
    if (conn->out.data && !server->spare_out && conn->out.room == OUT_LENT_BYTES)
        server->spare_out = conn->out.data;
    else
        free(conn->out.data);
    conn->out = (struct conn_out){0};
}

static int out_room(struct conn *conn, size_t n)
{
    struct conn_out *out = &conn->out;
    struct conn_server *server = conn->server;
    if (!out->data && n <= OUT_LENT_BYTES && server->spare_out) {
        *out = (struct conn_out){.data = server->spare_out, .room = OUT_LENT_BYTES};
        server->spare_out = NULL;
        out_count(conn, 0, out->room);
    }
    if (out->room - out->len >= n)
        return 0;
    if (out->sent > 0) {
        memmove(out->data, out->data + out->sent, out->len - out->sent);
        out->len -= out->sent;
        out->sent = 0;
    }
    size_t room = out->room ? out->room : OUT_LENT_BYTES;
    while (room < out->len + n)
        room *= 2;
    if (room == out->room)
        return 0;
    uint8_t *data = realloc(out->data, room);
    if (!data)
        return -ENOMEM;
    out_count(conn, out->room, room);
    out->data = data;
    out->room = room;
    return 0;
}

/* 0, or -errno when the client is gone. */
static int out_flush(struct conn *conn)
{
    struct conn_out *out = &conn->out;
    while (out->sent < out->len) {
        ssize_t n = send(conn->fd, out->data + out->sent, out->len - out->sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            return -errno;
        if (n <= 0)
            break;
        out->sent += (size_t)n;
        conn->server->figures->bytes_out += (uint64_t)n;
        conn->out_taken += (uint64_t)n;
    }
    if (out->sent == out->len) {
        out_release(conn);
        conn->out_ns = 0;
    } else if (!conn->out_ns || conn->out_taken >= CONN_OUT_PACE) {
        conn->out_ns = clock_monotonic_ns();
        conn->out_taken = 0;
    }
    return 0;
}

static void pend(struct conn *conn)
{
    if (conn->in_call || conn->pending)
        return;
    conn->pending = true;
    TAILQ_INSERT_TAIL(&conn->server->pending, conn, pending_link);
    loop_defer(conn->server->work);
}

int conn_send(struct conn *conn, const void *bytes, size_t n)
{
    if (conn->closing)
        return -EPIPE;
    size_t waiting = conn->out.len - conn->out.sent;
    if (waiting + n > conn->server->limits->queue_max || out_room(conn, n) < 0) {
        conn->closing = true;
        conn->end = CONN_END_QUEUE;
        pend(conn);
        return -ENOBUFS;
    }
    memcpy(conn->out.data + conn->out.len, bytes, n);
    conn->out.len += n;
    pend(conn);
    return 0;
}

size_t conn_queued(const struct conn *conn)
{
    return conn->out.len - conn->out.sent;
}

/* ---- input ---- */

static int rest_keep(struct conn *conn, const uint8_t *bytes, size_t n)
{
    if (n != conn->rest_len || bytes != conn->rest) {
        uint8_t *rest = n ? malloc(n) : NULL;
        if (n && !rest)
            return -ENOMEM;
        if (n)
            memcpy(rest, bytes, n);
        free(conn->rest);
        conn->user->rest_bytes += n - conn->rest_len;
        conn->rest = rest;
        conn->rest_len = n;
    }
    if (n == 0 || conn->held) /* then it waits for us, not for the client */
        conn->rest_ns = 0;
    else if (conn->rest_ns == 0)
        conn->rest_ns = clock_monotonic_ns();
    return 0;
}

/* Hand bytes to the protocol and keep what it leaves. False when the connection is no more. */
static bool deliver(struct conn *conn, const uint8_t *bytes, size_t n,
                    ssize_t (*call)(struct conn *, const uint8_t *, size_t))
{
    conn->in_call = true;
    conn->stopped = false;
    ssize_t taken = call(conn, bytes, n);
    conn->in_call = false;
    if (taken < 0 && !conn->closing) {
        conn->closing = true;
        conn->end = CONN_END_PROTOCOL;
    }
    if (conn->out.len > 0 && out_flush(conn) < 0) {
        conn_end(conn, CONN_END_PEER);
        return false;
    }
    if (conn->closing) {
        conn_end(conn, conn->end);
        return false;
    }
    size_t left = n - (size_t)taken;
    /* A wake-up changes nothing for what is held already, unless it took it. */
    conn->held = left > 0 && (conn->stopped || (conn->held && taken == 0));
    if (!conn->held && left > conn->protocol->rest_max) {
        conn_end(conn, CONN_END_MESSAGE);
        return false;
    }
    if (taken > 0)
        conn->rest_ns = 0; /* what is left belongs to a message that began just now */
    if (rest_keep(conn, left ? bytes + taken : NULL, left) < 0) {
        conn_end(conn, CONN_END_ERROR);
        return false;
    }
    return true;
}

/* What is held. False when the connection is no more. */
static bool go_on(struct conn *conn)
{
    const struct conn_protocol *protocol = conn->protocol;
    conn->held = false;
    return deliver(conn, conn->rest, conn->rest_len,
                   conn->ended && protocol->on_end ? protocol->on_end : protocol->on_bytes);
}

/* The client has closed its sending side. -1: the connection is no more, 0: something is still to be done. */
static int stream_end(struct conn *conn)
{
    conn->ended = true;
    conn->wake_ns = 0;
    if (conn->rest_len > 0 && conn->protocol->on_end &&
        !deliver(conn, conn->rest, conn->rest_len, conn->protocol->on_end))
        return -1;
    return finish(conn) ? 0 : -1;
}

/* One batch. 1: there may be more, 0: not now, -1: the connection is no more. */
static int read_batch(struct conn *conn)
{
    struct conn_server *server = conn->server;
    size_t old = conn->rest_len;
    size_t room =
        conn->user->rest_bytes < CONN_REST_USER_HIGH ? CONN_BATCH_BYTES : SMALL_BATCH_BYTES;
    if (old)
        memcpy(server->batch, conn->rest, old);
    ssize_t n = recv(conn->fd, server->batch + old, room, MSG_DONTWAIT);
    if (n < 0)
        return errno == EINTR ? 1 : errno == EAGAIN ? 0 : (conn_end(conn, CONN_END_PEER), -1);
    if (n == 0)
        return stream_end(conn);
    server->figures->bytes_in += (uint64_t)n;
    conn->wake_ns = 0;
    if (!deliver(conn, server->batch, old + (size_t)n, conn->protocol->on_bytes))
        return -1;
    /* The kernel gives out at most what came in one piece, so a short read does not mean that it was all;
     * asking again costs less than another turn of the loop. */
    return !conn->held && !blocked(conn);
}

static bool slice_over(const struct conn *conn)
{
    return clock_monotonic_ns() >= conn->server->slice_end_ns;
}

/* Its turn has come. False when the connection is no more. */
static bool serve(struct conn *conn, uint64_t now)
{
    bool readable = conn->readable;
    conn->readable = false;
    if (conn->wake_ns && conn->wake_ns <= now) {
        conn->wake_ns = 0;
        if (conn->protocol->on_wake &&
            !deliver(conn, conn->rest, conn->rest_len, conn->protocol->on_wake))
            return false;
    }
    if (conn->hold_ns && conn->hold_ns <= now)
        conn->hold_ns = 0;
    if (user_full(conn, CONN_OUT_USER_HIGH) && !conn->hold_ns)
        conn->hold_ns = now + FULL_RETRY_NS;
    if (conn->held && !blocked(conn) && (!go_on(conn) || !finish(conn)))
        return false;
    int more = readable && !conn->ended && !conn->held && !blocked(conn);
    for (int i = 0; more > 0 && i < CONN_BATCHES; i++) {
        more = read_batch(conn);
        if (more > 0 && slice_over(conn))
            break;
    }
    return more >= 0;
}

static void on_event(void *context, uint32_t events)
{
    struct conn *conn = context;
    if (events & EPOLLOUT && out_flush(conn) < 0) {
        conn_end(conn, CONN_END_PEER);
        return;
    }
    if (events & (EPOLLHUP | EPOLLERR) && (out_full(conn) || conn->ended)) {
        conn_end(conn, CONN_END_PEER); /* its answers cannot be delivered any more */
        return;
    }
    if (!finish(conn))
        return;
    if (events & (EPOLLHUP | EPOLLERR) && blocked(conn)) {
        /* It would be told again and again; what it sent before it went is read when it may be. */
        loop_source_free(conn->source);
        conn->source = NULL;
    } else if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        conn->readable = true;
        conn_ready(conn);
    }
    settle(conn);
}

bool conn_must_stop(struct conn *conn)
{
    if (conn->closing || out_full(conn) || user_full(conn, CONN_OUT_USER_HIGH) || slice_over(conn))
        conn->stopped = true;
    return conn->stopped;
}

void conn_hold(struct conn *conn, uint64_t ns)
{
    conn->stopped = true;
    conn->hold_ns = clock_monotonic_ns() + ns;
}

bool conn_answer_waits(struct conn *conn)
{
    if (!user_full(conn, CONN_OUT_USER_LARGE))
        return false;
    conn_hold(conn, FULL_RETRY_NS);
    return true;
}

void conn_spend(struct conn *conn, uint64_t n)
{
    uint64_t rate = conn->server->limits->reports_per_second;
    if (rate == 0 || conn->resume_ns)
        return;
    uint64_t now = clock_monotonic_ns();
    conn->tokens += (double)(now - conn->tokens_ns) * (double)rate / (double)NS_PER_S;
    if (conn->tokens > (double)rate)
        conn->tokens = (double)rate;
    conn->tokens_ns = now;
    conn->tokens -= (double)n;
    if (conn->tokens >= 0)
        return;
    /* The batch at hand was done in full: wait until it is paid for. */
    conn->resume_ns = now + (uint64_t)(-conn->tokens * (double)NS_PER_S / (double)rate) + NS_PER_MS;
    conn->server->figures->throttled++;
    if (!conn->server->said_throttled)
        log_warn(
            "PID %d sends more than %llu reports a second and has to wait (reports-per-second)",
            (int)conn->peer.pid, (unsigned long long)rate);
    conn->server->said_throttled = true;
}

/* Have its events again, after it hung up while we did not read. */
static bool source_again(struct conn *conn)
{
    if (conn->source || blocked(conn))
        return true;
    if (loop_add_fd(conn->server->loop, conn->fd, EPOLLIN, on_event, conn, &conn->source) < 0) {
        conn_end(conn, CONN_END_ERROR);
        return false;
    }
    conn->events = EPOLLIN;
    return true;
}

/* ---- turns ---- */

/* Those who want to be called, by user, for as long as the rest of the loop can wait. */
static void on_turn(void *context)
{
    struct conn_server *server = context;
    uint64_t now = clock_monotonic_ns(), end = now + CONN_TURN_NS;
    struct conn *conn = NULL;
    while (now < end && (conn = conn_next_ready(server))) {
        struct conn_user *user = conn->user;
        conn_unready(conn);
        server->slice_end_ns = now + CONN_SLICE_NS;
        if (serve(conn, now) && source_again(conn))
            settle(conn);
        uint64_t after = clock_monotonic_ns();
        user->used_ns += after - now;
        now = after;
    }
    if (!TAILQ_EMPTY(&server->ready_users))
        loop_defer(server->turn);
}

/* ---- what is due ---- */

static void conn_due(struct conn *conn, uint64_t now)
{
    uint64_t stall = conn->server->limits->stall_ns;
    if (conn->resume_ns && conn->resume_ns <= now) {
        conn->resume_ns = 0;
        if (!source_again(conn))
            return;
    }
    bool stalled = (conn->rest_ns && !conn->resume_ns && conn->rest_ns + stall <= now) ||
                   (conn->out_ns && conn->out_ns + stall <= now);
    if (stalled) {
        conn_end(conn, CONN_END_STALLED);
        return;
    }
    if ((conn->wake_ns && conn->wake_ns <= now) || (conn->hold_ns && conn->hold_ns <= now))
        conn_ready(conn);
    settle(conn);
}

static void on_timer(void *context)
{
    struct conn_server *server = context;
    uint64_t now = clock_monotonic_ns(), next = 0;
    server->timer_ns = UINT64_MAX; /* it is not armed meanwhile */
    struct conn *conn, *after;
    for (conn = TAILQ_FIRST(&server->timed); conn; conn = after) {
        after = TAILQ_NEXT(conn, timed_link);
        if (deadline_of(conn) <= now)
            conn_due(conn, now);
    }
    TAILQ_FOREACH(conn, &server->timed, timed_link)
    next = earlier(next, deadline_of(conn));
    server->timer_ns = 0;
    timer_arm(server, next, now);
}

static void on_work(void *context)
{
    struct conn_server *server = context;
    struct conn *conn;
    while ((conn = TAILQ_FIRST(&server->pending))) {
        TAILQ_REMOVE(&server->pending, conn, pending_link);
        conn->pending = false;
        if (out_flush(conn) < 0)
            conn_end(conn, CONN_END_PEER);
        else if (conn->closing)
            conn_end(conn, conn->end);
        else if (finish(conn))
            settle(conn);
    }
}

/* ---- begin and end of one ---- */

/* Give back all that it has. */
static void conn_discard(struct conn *conn)
{
    loop_source_free(conn->source);
    close(conn->fd);
    if (conn->user) {
        conn->user->connections--;
        conn->user->rest_bytes -= conn->rest_len;
        out_release(conn);
    }
    free(conn->rest);
    peer_release(&conn->peer);
    free(conn);
}

void conn_accept(struct conn_listener *listener, int fd)
{
    struct conn_server *server = listener->server;
    struct conn *conn = calloc(1, sizeof(*conn));
    if (!conn) {
        close(fd);
        return;
    }
    *conn = (struct conn){.server = server,
                          .protocol = listener->protocol,
                          .context = listener->context,
                          .fd = fd,
                          .events = EPOLLIN,
                          .tokens = (double)server->limits->reports_per_second,
                          .tokens_ns = clock_monotonic_ns()};
    int one = 1;
    int r = peer_init(&conn->peer, fd);
    if (r >= 0) {
        conn->user = conn_user_enter(server, conn->peer.uid);
        r = conn->user ? 0 : -EBUSY;
    }
    if (r >= 0 && conn->peer.remote)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (r >= 0)
        r = loop_add_fd(server->loop, fd, EPOLLIN, on_event, conn, &conn->source);
    if (r >= 0 && conn->protocol->on_open) {
        conn->in_call = true;
        r = conn->protocol->on_open(conn);
        conn->in_call = false;
    }
    if (r < 0) {
        conn_discard(conn);
        return;
    }
    TAILQ_INSERT_TAIL(&server->conns, conn, link);
    server->n_conns++;
    server->figures->connections++;
    server->figures->accepted++;
    if (conn->out.len > 0 || conn->closing)
        pend(conn);
    conn_time(conn); /* it may want to be woken */
}

static void end_say(struct conn *conn, enum conn_end end)
{
    struct conn_server *server = conn->server;
    struct server_figures *figures = server->figures;
    bool *said = NULL;
    const char *why = NULL;
    if (end == CONN_END_MESSAGE) {
        figures->closed_message++;
        said = &server->said_message;
        why = "its message is too large (message-max)";
    } else if (end == CONN_END_STALLED) {
        figures->closed_stalled++;
        said = &server->said_stalled;
        why = conn->rest_ns ? "half a message stood for too long (stall)"
                            : "it does not take its answers (stall)";
    } else if (end == CONN_END_QUEUE) {
        figures->closed_queue++;
        said = &server->said_queue;
        why = "it does not take its answers as fast as it asks";
    }
    if (why && !*said)
        log_warn("%s connection of PID %d (uid %u) closed: %s; others are counted",
                 conn->protocol->name, (int)conn->peer.pid, conn->peer.uid, why);
    if (said)
        *said = true;
}

static void conn_end(struct conn *conn, enum conn_end end)
{
    struct conn_server *server = conn->server;
    conn->closing = true;
    conn->in_call = true; /* nothing is queued any more */
    end_say(conn, end);
    if (conn->protocol->on_close)
        conn->protocol->on_close(conn, end);
    if (conn->pending)
        TAILQ_REMOVE(&server->pending, conn, pending_link);
    if (conn->timed)
        TAILQ_REMOVE(&server->timed, conn, timed_link);
    TAILQ_REMOVE(&server->conns, conn, link);
    server->n_conns--;
    server->figures->connections--;
    conn_unready(conn);
    conn_discard(conn);
}

void conn_close(struct conn *conn)
{
    if (conn->closing)
        return;
    conn->closing = true;
    conn->end = CONN_END_PROTOCOL;
    pend(conn);
}

void conn_wake_after(struct conn *conn, uint64_t ns)
{
    conn->wake_ns = ns ? clock_monotonic_ns() + ns : 0;
    if (!conn->in_call)
        conn_time(conn);
}

void *conn_context(const struct conn *conn)
{
    return conn->context;
}

void conn_set_state(struct conn *conn, void *state)
{
    conn->state = state;
}

void *conn_state(const struct conn *conn)
{
    return conn->state;
}

struct peer *conn_peer(struct conn *conn)
{
    return &conn->peer;
}

/* ---- all of them ---- */

int conn_server_new(struct loop *loop, const struct conn_limits *limits,
                    struct server_figures *figures, struct conn_server **ret_server)
{
    struct conn_server *server = calloc(1, sizeof(*server));
    if (!server)
        return -ENOMEM;
    server->loop = loop;
    server->limits = limits;
    server->figures = figures;
    TAILQ_INIT(&server->conns);
    TAILQ_INIT(&server->pending);
    TAILQ_INIT(&server->timed);
    TAILQ_INIT(&server->ready_users);
    LIST_INIT(&server->listeners);
    server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    server->spare_out = malloc(OUT_LENT_BYTES);
    int r = server->spare_out ? loop_add_deferred(loop, on_work, server, &server->work) : -ENOMEM;
    if (r >= 0) /* after `work`, and so called before it, which sends what a turn queued */
        r = loop_add_deferred(loop, on_turn, server, &server->turn);
    if (r >= 0)
        r = loop_add_timer(loop, on_timer, server, &server->timer);
    if (r < 0) {
        conn_server_free(server);
        return r;
    }
    *ret_server = server;
    return 0;
}

void conn_server_free(struct conn_server *server)
{
    if (!server)
        return;
    struct conn *conn;
    while ((conn = TAILQ_FIRST(&server->conns)))
        conn_end(conn, CONN_END_SHUTDOWN);
    struct conn_listener *listener;
    while ((listener = LIST_FIRST(&server->listeners)))
        conn_listener_free(listener);
    loop_source_free(server->work);
    loop_source_free(server->turn);
    loop_source_free(server->timer);
    if (server->spare_fd >= 0)
        close(server->spare_fd);
    free(server->spare_out);
    conn_users_free(server);
    free(server);
}

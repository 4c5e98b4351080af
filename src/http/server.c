/* The server's thread: sockets, connections, time, and what comes back from other threads.
 *
 * Listening and accepting are our own, so that limits by address and peer credentials come before a byte is read;
 * then the connection is MHD's, which runs inside this thread as well (MHD_run), so nothing of it is shared. */
#include "http/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "http/admission.h"
#include "http/builtin.h"
#include "http/exchange.h"
#include "http/question.h"
#include "http/socket_owner.h"
#include "http/stream.h"

enum {
    EVENTS_MAX = 16,
    ROOM = 16, /* connections beyond the limit, while others that were ended still go */
    SEND_BUFFER = 256 << 10, /* of a connection: what the kernel keeps for one who does not read */
    ACCEPTS_PER_TURN = 64,
    CONNECTION_MEMORY = 16 << 10, /* of MHD for one: head, body and answer's head */
    SWEEP_MS = 250,
    END_MS = 1000, /* for answers and streams to go out at the end */
    LOG_TEXT_MAX = 256,
};

const struct http_limits http_limits_default = {
    .connections_max = 2048,
    .connections_address_max = 256,
    .streams_max = 1536,
    .streams_viewer_max = 64,
    .cache_bytes_max = 16 << 20,
    .answers_bytes_max = 96 << 20,
    .request_ns = 10 * NS_PER_S,
    .idle_ns = 75 * NS_PER_S,
    .answer_ns = 30 * NS_PER_S,
    .take_ns = 60 * NS_PER_S,
};

void http_wake_self(struct http *http)
{
    uint64_t one = 1;
    (void)!write(http->wake_fd, &one, sizeof(one));
}

/* ---- connections ---- */

static bool conn_register(struct http *http, struct conn *conn)
{
    size_t fd = (size_t)conn->fd;
    if (fd >= http->by_fd_n) {
        size_t n = fd + 64;
        struct conn **more = realloc(http->by_fd, n * sizeof(*more));
        if (!more)
            return false;
        memset(more + http->by_fd_n, 0, (n - http->by_fd_n) * sizeof(*more));
        http->by_fd = more;
        http->by_fd_n = n;
    }
    http->by_fd[fd] = conn;
    LIST_INSERT_HEAD(&http->conns, conn, link);
    COUNT_SET(http, connections, ++http->n_conns);
    return true;
}

static void conn_forget(struct http *http, struct conn *conn)
{
    http->by_fd[conn->fd] = NULL;
    LIST_REMOVE(conn, link);
    COUNT_SET(http, connections, --http->n_conns);
    admission_leave(conn);
    free(conn);
}

void http_conn_shut(struct http *http, struct conn *conn)
{
    if (conn->shut)
        return;
    conn->shut = true;
    COUNT(http, closed_slow);
    shutdown(conn->fd, SHUT_RDWR);
}

static void on_connection(void *context, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http *http = context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        size_t fd = info ? (size_t)info->connect_fd : SIZE_MAX;
        struct conn *conn = fd < http->by_fd_n ? http->by_fd[fd] : NULL;
        if (conn)
            conn->mhd = connection;
        *state = conn;
    } else if (*state) {
        conn_forget(http, *state);
        *state = NULL;
    }
}

static void address_text(const struct sockaddr_storage *address, char *text, socklen_t size)
{
    const struct sockaddr_in *v4 = (const void *)address;
    const struct sockaddr_in6 *v6 = (const void *)address;
    if (address->ss_family == AF_INET)
        inet_ntop(AF_INET, &v4->sin_addr, text, size);
    else if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
        inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], text, size);
    else
        inet_ntop(AF_INET6, &v6->sin6_addr, text, size);
}

/* Where it comes from, for people and for limits. */
static void conn_address(struct conn *conn, const struct sockaddr_storage *address)
{
    const struct sockaddr_in *v4 = (const void *)address;
    const struct sockaddr_in6 *v6 = (const void *)address;
    switch (address->ss_family) {
    case AF_INET:
        address_text(address, conn->from, sizeof(conn->from));
        conn->local = ntohl(v4->sin_addr.s_addr) >> 24 == 127;
        conn->address = hash_bytes(&v4->sin_addr, sizeof(v4->sin_addr), 4);
        break;
    case AF_INET6:
        address_text(address, conn->from, sizeof(conn->from));
        conn->local = IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
        conn->address = hash_bytes(&v6->sin6_addr, 8, 6); /* one customer has 2^64 of them */
        break;
    default:
        snprintf(conn->from, sizeof(conn->from), "unix");
        conn->local = true;
    }
}

static void take_client(struct http *http, const struct door *door, int fd,
                        const struct sockaddr_storage *address, socklen_t address_len)
{
    struct conn *conn = calloc(1, sizeof(*conn));
    int one = 1;
    if (!conn) {
        close(fd);
        return;
    }
    conn->fd = fd;
    conn->door = door;
    conn->since_ns = clock_monotonic_ns();
    conn_address(conn, address);
    if (door->kind == HTTP_DOOR_UNIX) {
        socklen_t len = sizeof(conn->peer);
        conn->has_peer = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &conn->peer, &len) == 0 &&
                         conn->peer.uid != (uid_t)-1;
    } else {
        struct sockaddr_storage own = {0};
        socklen_t len = sizeof(own);
        int send_buffer = SEND_BUFFER;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof(send_buffer));
        if (!conn->local && getsockname(fd, (struct sockaddr *)&own, &len) == 0)
            address_text(&own, conn->own, sizeof(conn->own));
    }
    if (!admission_enter(http, conn) || !conn_register(http, conn)) {
        COUNT(http, refused_connections);
        admission_leave(conn);
        free(conn);
        close(fd);
        return;
    }
    struct MHD_Daemon *daemon = door->kind == HTTP_DOOR_TLS ? http->tls : http->plain;
    if (MHD_add_connection(daemon, fd, (const struct sockaddr *)address, address_len) != MHD_YES &&
        (size_t)fd < http->by_fd_n && http->by_fd[fd] == conn) /* MHD closed the descriptor */
        conn_forget(http, conn);
}

static void take_clients(struct http *http, const struct door *door)
{
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        /* Those who made room go when MHD has its turn; who comes waits for that. */
        if (http->n_conns >= http->limits.connections_max + ROOM)
            return;
        struct sockaddr_storage address = {0};
        socklen_t len = sizeof(address);
        int fd = accept4(door->fd, (struct sockaddr *)&address, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            take_client(http, door, fd, &address, len);
        else if (errno != EINTR && errno != ECONNABORTED)
            return; /* without descriptors the next turn tries again: others may have ended by then */
    }
}

/* ---- time ---- */

static uint64_t conn_time(const struct http *http, const struct conn *conn)
{
    switch (conn->phase) {
    case CONN_ASKING:
        return http->limits.request_ns;
    case CONN_IDLE:
        return http->limits.idle_ns;
    case CONN_TAKING:
        return http->limits.take_ns;
    default:
        return UINT64_MAX; /* MHD and the questions look after these */
    }
}

static void sweep_conns(struct http *http, uint64_t now)
{
    struct conn *conn;
    LIST_FOREACH(conn, &http->conns, link)
    if (now - conn->since_ns > conn_time(http, conn))
        http_conn_shut(http, conn);
}

static void sweep_questions(struct http *http, uint64_t now)
{
    struct question *question, *next;
    for (question = TAILQ_FIRST(&http->questions); question; question = next) {
        next = TAILQ_NEXT(question, link);
        if (now - question->asked_ns < http->limits.answer_ns)
            break; /* in the order in which they were asked */
        struct answer *answer =
            answer_problem(504, "late", NULL, "memoird did not get round to it in %llu s",
                           (unsigned long long)(http->limits.answer_ns / NS_PER_S));
        exchange_give_up(http, question, answer);
        answer_unref(answer);
    }
}

static void sweep_held(struct http *http, uint64_t now)
{
    struct exchange *exchange;
    while ((exchange = TAILQ_FIRST(&http->held)) && exchange->hold_until_ns <= now) {
        TAILQ_REMOVE(&http->held, exchange, link);
        http->n_held--;
        exchange->held = exchange->suspended = false;
        exchange->hold_until_ns = 0;
        MHD_resume_connection(exchange->mhd);
    }
}

static void sweep(struct http *http, uint64_t now)
{
    size_t n, bytes;
    sweep_conns(http, now);
    sweep_questions(http, now);
    sweep_held(http, now);
    cache_expire(http->cache, now);
    streams_tick(http->streams, now);
    cache_size(http->cache, &n, &bytes);
    const struct question *question;
    uint64_t waiting = 0;
    TAILQ_FOREACH(question, &http->questions, link)
    waiting++;
    COUNT_SET(http, waiting, waiting);
    COUNT_SET(http, cache_entries, n);
    COUNT_SET(http, cache_bytes, bytes);
}

/* ---- the thread ---- */

static void take_letters(struct http *http)
{
    struct letters letters = STAILQ_HEAD_INITIALIZER(letters);
    struct letter *letter;
    mailbox_take_all(&http->back, &letters);
    while ((letter = STAILQ_FIRST(&letters))) {
        STAILQ_REMOVE_HEAD(&letters, link);
        if (letter->kind == LETTER_FRAME)
            streams_take(http->streams, letter);
        else
            exchange_answered(http, call_of(letter));
    }
    streams_flush(http->streams);
}

static void wake_others(struct http *http)
{
    for (int i = 0; i < HTTP_WHERES; i++) {
        if (!http->to_wake[i])
            continue;
        http->to_wake[i] = false;
        http->options.wake(http->options.context, (enum http_where)i);
    }
}

static void run_mhd(struct http *http)
{
    if (http->plain)
        MHD_run(http->plain);
    if (http->tls)
        MHD_run(http->tls);
}

/* How long may the thread sleep? */
static int patience(struct http *http, int most_ms)
{
    struct MHD_Daemon *daemons[] = {http->plain, http->tls};
    for (size_t i = 0; i < 2; i++) {
        MHD_UNSIGNED_LONG_LONG ms;
        if (daemons[i] && MHD_get_timeout(daemons[i], &ms) == MHD_YES && (long long)ms < most_ms)
            most_ms = (int)ms;
    }
    return most_ms;
}

static void turn(struct http *http, int patience_ms)
{
    struct epoll_event events[EVENTS_MAX];
    int n = epoll_wait(http->epoll_fd, events, EVENTS_MAX, patience_ms);
    for (int i = 0; i < n; i++) {
        uint64_t count;
        if (events[i].data.ptr == http)
            (void)!read(http->wake_fd, &count, sizeof(count));
        else if (events[i].data.ptr)
            take_clients(http, events[i].data.ptr);
    }
    take_letters(http);
    run_mhd(http);
    wake_others(http);
}

/* Everybody who waits is told, and what is on its way gets a moment to go out. */
static void end(struct http *http)
{
    struct question *question;
    struct exchange *exchange;
    struct conn *conn;
    for (size_t i = 0; i < http->n_doors; i++)
        epoll_ctl(http->epoll_fd, EPOLL_CTL_DEL, http->doors[i].fd, NULL);
    struct answer *answer = answer_problem(503, "ending", NULL, "memoird ends");
    while ((question = TAILQ_FIRST(&http->questions)))
        exchange_give_up(http, question, answer);
    answer_unref(answer);
    while ((exchange = TAILQ_FIRST(&http->held))) {
        exchange->hold_until_ns = 0;
        sweep_held(http, UINT64_MAX);
    }
    streams_end_all(http->streams);
    uint64_t until = clock_monotonic_ns() + END_MS * NS_PER_MS;
    bool busy = true;
    while (busy && clock_monotonic_ns() < until) {
        turn(http, patience(http, 10));
        busy = false;
        LIST_FOREACH(conn, &http->conns, link)
        busy = busy || conn->phase == CONN_TAKING || conn->phase == CONN_STREAMING;
    }
    streams_end_all(http->streams); /* those who slept again meanwhile */
    run_mhd(http);
}

static void *thread_main(void *context)
{
    struct http *http = context;
    uint64_t swept = clock_monotonic_ns();
    pthread_setname_np(pthread_self(), "memoird-http");
    while (!atomic_load_explicit(&http->stopping, memory_order_acquire)) {
        turn(http, patience(http, SWEEP_MS));
        uint64_t now = clock_monotonic_ns();
        if (now - swept < SWEEP_MS * NS_PER_MS)
            continue;
        swept = now;
        sweep(http, now);
    }
    end(http);
    if (http->plain)
        MHD_stop_daemon(http->plain);
    if (http->tls)
        MHD_stop_daemon(http->tls);
    http->plain = http->tls = NULL;
    return NULL;
}

/* ---- begin and end ---- */

static void on_log(void *context, const char *fmt, va_list args)
{
    char text[LOG_TEXT_MAX];
    (void)context;
    if (!log_enabled(LOG_LEVEL_DEBUG))
        return;
    vsnprintf(text, sizeof(text), fmt, args);
    text[strcspn(text, "\n")] = '\0';
    log_debug("http: %s", text);
}

static int daemon_start_mhd(struct http *http, bool tls, struct MHD_Daemon **ret_daemon)
{
    unsigned flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME |
                     MHD_USE_ERROR_LOG | (tls ? MHD_USE_TLS : 0);
    struct MHD_OptionItem secrets[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, http->tls_certificate},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, http->tls_key},
        {MHD_OPTION_HTTPS_PRIORITIES, 0,
         (void *)"SECURE128:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-SHA1"},
        {MHD_OPTION_END, 0, NULL},
    };
    struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    struct MHD_Daemon *daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, exchange_callbacks.on_request, http, MHD_OPTION_EXTERNAL_LOGGER,
        on_log, NULL, /* first, so that it hears of the others */
        MHD_OPTION_URI_LOG_CALLBACK, exchange_callbacks.on_target, http,
        MHD_OPTION_NOTIFY_COMPLETED, exchange_callbacks.on_completed, http,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, http, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)(http->limits.connections_max + 2 * ROOM), MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)(http->limits.idle_ns / NS_PER_S + 1), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_MEMORY, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_ARRAY, tls ? secrets : none,
        MHD_OPTION_END);
    if (!daemon)
        return -EINVAL;
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD);
    struct epoll_event event = {.events = EPOLLIN};
    if (!info || epoll_ctl(http->epoll_fd, EPOLL_CTL_ADD, info->epoll_fd, &event) < 0) {
        MHD_stop_daemon(daemon);
        return -EIO;
    }
    *ret_daemon = daemon;
    return 0;
}

static int routes_join(struct http *http)
{
    size_t n_own;
    const struct http_route *own = builtin_routes(&n_own);
    const struct http_options *options = &http->options;
    http->routes = calloc(n_own + options->n_routes, sizeof(*http->routes));
    if (!http->routes)
        return -ENOMEM;
    for (size_t i = 0; i < options->n_routes; i++)
        http->routes[http->n_routes++] = &options->routes[i];
    for (size_t i = 0; i < n_own; i++)
        http->routes[http->n_routes++] = &own[i];
    return 0;
}

static int http_init(struct http *http)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
        return -EAGAIN;
    http->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    http->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    http->owner_fd = socket_owner_open(); /* without it all users of TCP are one */
    if (http->epoll_fd < 0 || http->wake_fd < 0)
        return -errno;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = http};
    if (epoll_ctl(http->epoll_fd, EPOLL_CTL_ADD, http->wake_fd, &event) < 0)
        return -errno;
    int r = cache_new(seed, &http->cache);
    if (r >= 0)
        r = streams_new(http, &http->streams);
    if (r >= 0)
        r = routes_join(http);
    if (r >= 0)
        r = router_new(http->routes, http->n_routes, &http->router);
    return r;
}

int http_new(const struct http_options *options, const struct http_limits *limits,
             struct http **ret_http)
{
    struct http *http = calloc(1, sizeof(*http));
    if (!http)
        return -ENOMEM;
    http->options = *options;
    http->limits = limits ? *limits : http_limits_default;
    http->epoll_fd = http->wake_fd = http->owner_fd = -1;
    LIST_INIT(&http->conns);
    TAILQ_INIT(&http->held);
    TAILQ_INIT(&http->questions);
    for (int i = 0; i < HTTP_WHERES; i++) {
        mailbox_init(&http->to[i]);
        STAILQ_INIT(&http->again[i]);
    }
    mailbox_init(&http->back);
    http->hosts = strdup(options->hosts ? options->hosts : "");
    int r = http->hosts ? http_init(http) : -ENOMEM;
    if (r < 0) {
        http_free(http);
        return r;
    }
    *ret_http = http;
    return 0;
}

int http_set_tls(struct http *http, const char *certificate, const char *key)
{
    free(http->tls_certificate);
    free(http->tls_key);
    http->tls_certificate = strdup(certificate);
    http->tls_key = strdup(key);
    return http->tls_certificate && http->tls_key ? 0 : -ENOMEM;
}

int http_listen(struct http *http, int fd, enum http_door kind)
{
    if (http->n_doors == sizeof(http->doors) / sizeof(*http->doors))
        return -E2BIG;
    struct MHD_Daemon **daemon = kind == HTTP_DOOR_TLS ? &http->tls : &http->plain;
    int r = *daemon ? 0 : daemon_start_mhd(http, kind == HTTP_DOOR_TLS, daemon);
    if (r < 0)
        return r;
    struct door *door = &http->doors[http->n_doors];
    *door = (struct door){.fd = fd, .kind = kind, .http = http};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = door};
    if (epoll_ctl(http->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        return -errno;
    http->n_doors++;
    return 0;
}

int http_start(struct http *http)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); /* signals are the loop's */
    int r = -pthread_create(&http->thread, NULL, thread_main, http);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    http->started = r == 0;
    return r;
}

void http_stop(struct http *http)
{
    if (!http->started)
        return;
    atomic_store_explicit(&http->stopping, true, memory_order_release);
    http_wake_self(http);
    pthread_join(http->thread, NULL);
    http->started = false;
}

static void letters_free(struct letters *letters)
{
    struct letter *letter;
    while ((letter = STAILQ_FIRST(letters))) {
        STAILQ_REMOVE_HEAD(letters, link);
        if (letter->kind == LETTER_CALL)
            call_free(call_of(letter));
        else
            free(letter);
    }
}

static void mailbox_free(struct mailbox *box)
{
    struct letters letters = STAILQ_HEAD_INITIALIZER(letters);
    mailbox_take_all(box, &letters);
    letters_free(&letters);
    mailbox_release(box);
}

void http_free(struct http *http)
{
    if (!http)
        return;
    http_stop(http);
    if (http->plain)
        MHD_stop_daemon(http->plain);
    if (http->tls)
        MHD_stop_daemon(http->tls);
    for (int i = 0; i < HTTP_WHERES; i++) {
        mailbox_free(&http->to[i]);
        letters_free(&http->again[i]);
    }
    mailbox_free(&http->back);
    for (size_t i = 0; i < http->n_doors; i++)
        close(http->doors[i].fd);
    cache_free(http->cache);
    streams_free(http->streams);
    router_free(http->router);
    free(http->routes);
    if (http->wake_fd >= 0)
        close(http->wake_fd);
    if (http->owner_fd >= 0)
        close(http->owner_fd);
    if (http->epoll_fd >= 0)
        close(http->epoll_fd);
    if (http->tls_key)
        explicit_bzero(http->tls_key, strlen(http->tls_key));
    free(http->tls_certificate);
    free(http->tls_key);
    free(http->by_fd);
    free(http->hosts);
    free(http);
}

void http_figures(struct http *http, struct http_figures *ret_figures)
{
#define FIGURE(what) .what = atomic_load_explicit(&http->figures.what, memory_order_relaxed)
    *ret_figures = (struct http_figures){
        FIGURE(requests),
        FIGURE(answers_kept),
        FIGURE(answers_waited),
        FIGURE(not_modified),
        FIGURE(compressed),
        FIGURE(bytes_in),
        FIGURE(bytes_out),
        FIGURE(refused_role),
        FIGURE(refused_host),
        FIGURE(refused_origin),
        FIGURE(refused_connections),
        FIGURE(refused_streams),
        FIGURE(closed_slow),
        FIGURE(problems),
        FIGURE(events),
        FIGURE(events_lost),
        FIGURE(connections),
        FIGURE(streams),
        FIGURE(waiting),
        FIGURE(cache_entries),
        FIGURE(cache_bytes),
    };
#undef FIGURE
}

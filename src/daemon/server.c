/* The daemon's sockets. See server.h. */
#include "daemon/server.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/allowance.h"
#include "daemon/behalf.h"
#include "daemon/daemon.h"
#include "daemon/loop.h"
#include "daemon/native.h"
#include "daemon/tt.h"
#include "ledger/ledger.h"
#include "trace/ask.h"

enum {
    QUEUE_MAX = 16 << 20,
    SAY_MS = 60000, /* how often what was turned away is told */
    LINE_MAX_BYTES = 2048,
    LOG_LINES = 200,     /* that a user may make us write, */
    LOG_REFILL_S = 3600, /* time in which the allowance refills */
    REFRESH_SHARE = 4,   /* refreshing for those who ask takes at most a quarter of the time */
};

static const char tt_default[] = "/tmp/tt_allocation_server.sock";

/* ---- figures ---- */

void server_figures_changed(struct server *server)
{
    server->changed = true;
}

void server_refresh(struct server *server)
{
    uint64_t now = clock_monotonic_ns();
    uint64_t age_max = server->changed ? 0 : SERVER_FRESH_NS;
    /* Once may have been the first look at new books; twice in a row is how many there are. */
    uint64_t cost = server->refresh_cost_ns < server->refresh_cost_before_ns
                        ? server->refresh_cost_ns
                        : server->refresh_cost_before_ns;
    if (cost > SERVER_FRESH_NS / REFRESH_SHARE)
        age_max = cost * REFRESH_SHARE;
    if (now - server->refreshed_ns < age_max)
        return;
    /* By our own time: on a busy machine the clock on the wall says nothing about what it costs. */
    uint64_t begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    behalf_refresh(server->daemon->behalf);
    ledger_refresh(server->daemon->ledger); /* and the sums */
    server->changed = false;
    server->refreshed_ns = clock_monotonic_ns();
    server->refresh_cost_before_ns = server->refresh_cost_ns;
    server->refresh_cost_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin;
}

bool server_may_say(uint64_t *last_ns)
{
    uint64_t now = clock_monotonic_ns();
    if (*last_ns && now - *last_ns < NS_PER_S)
        return false;
    *last_ns = now;
    return true;
}

bool server_may_log(struct server *server, uint32_t uid)
{
    return allowance_take(server->log_share, uid, 1, clock_monotonic_ns());
}

static void say_left_out(uint32_t uid, uint64_t n, void *context)
{
    log_warn("%" PRIu64 " lines that uid %u caused were left out of the log", n, uid);
}

/* ---- what was turned away ---- */

/* Each limit says once when it is first hit; how often it was is told here. */
static const struct {
    size_t offset;
    const char *what;
} refusals[] = {
#define REFUSAL(field, what)                         \
    {                                                \
        offsetof(struct server_figures, field), what \
    }
    REFUSAL(refused_connections_max, "connections past connections-max"),
    REFUSAL(refused_connections_per_user_max, "connections past connections-per-user-max"),
    REFUSAL(refused_descriptors, "connections for want of descriptors"),
    REFUSAL(closed_message, "connections for what they sent"),
    REFUSAL(closed_stalled, "connections that stalled"),
    REFUSAL(closed_queue, "connections that did not take their answers"),
    REFUSAL(throttled, "times past reports-per-second"),
    REFUSAL(bad_reports, "invalid reports"),
    REFUSAL(denied_reports, "reports about processes of others"),
    REFUSAL(denied_questions, "questions about processes of others"),
    REFUSAL(refused_buffers, "buffers past buffers-per-client-max"),
    REFUSAL(refused_books, "processes without a book"),
#undef REFUSAL
};

uint64_t server_rejected_reports(const struct server *server)
{
    const struct server_figures *f = &server->figures;
    return f->bad_reports + f->denied_reports + f->refused_buffers + f->refused_books;
}

/* One line with all of it, if there is something new. */
static void say_refusals(void *context)
{
    struct server *server = context;
    struct buffer line = BUFFER_INIT(LINE_MAX_BYTES);
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
        uint64_t n = *(const uint64_t *)((const char *)&server->figures + refusals[i].offset);
        sum += n;
        if (n > 0)
            buffer_printf(&line, "%s%" PRIu64 " %s", line.len ? ", " : "", n, refusals[i].what);
    }
    if (sum != server->said_refusals)
        log_warn("rejected since start: %s", buffer_string(&line));
    server->said_refusals = sum;
    allowance_tell(server->log_share, clock_monotonic_ns(), say_left_out, NULL);
    buffer_release(&line);
}

/* ---- who may connect ---- */

static int group_find(const char *name, gid_t *ret_group)
{
    char *end;
    unsigned long number = strtoul(name, &end, 10);
    const struct group *group = getgrnam(name);
    if (group)
        *ret_group = group->gr_gid;
    else if (*name && !*end && number < UINT32_MAX)
        *ret_group = (gid_t)number;
    else
        return -ENOENT;
    return 0;
}

int server_socket_access(const struct config *config, struct conn_unix_options *options)
{
    options->mode = 0660;
    options->group = (gid_t)-1;
    if (strcmp(config->socket_group, "all") == 0) {
        options->mode = 0666;
        return 0;
    }
    if (config->socket_group[0]) {
        int r = group_find(config->socket_group, &options->group);
        if (r < 0)
            log_error("socket-group = %s: there is no such group", config->socket_group);
        return r;
    }
    if (geteuid() == 0)
        (void)group_find("memoir", &options->group); /* without it, root's own */
    return 0;
}

/* ---- listening ---- */

/* What to do about a name that cannot be had. */
static const char *advice(int error)
{
    switch (error) {
    case -EADDRINUSE:
        return "another server answers there; stop it, or choose another path";
    case -EEXIST:
        return "something that is no socket has that name; remove it, or choose another path";
    case -EPERM:
        return "the path belongs to another user: remove it as that user or root, or choose another path";
    default:
        return strerror(-error);
    }
}

int server_listen(struct server *server, const struct conn_protocol *protocol, const char *set,
                  const char *usual, struct conn_listener **ret_listener)
{
    if (strcmp(set, "none") == 0)
        return 0;
    struct conn_unix_options options = {.path = set[0] ? set : usual};
    int r = server_socket_access(&server->daemon->config, &options);
    if (r < 0)
        return r;
    r = conn_listen_unix(server->conns, protocol, server, &options, ret_listener);
    if (r >= 0) {
        log_debug("listening at '%s' (%s)", options.path, protocol->name);
        return 0;
    }
    if (set[0]) {
        log_error("cannot listen at '%s': %s", options.path, advice(r));
        return r;
    }
    log_warn("cannot listen at '%s': %s; going on without it", options.path, advice(r));
    return 0;
}

/* The native protocol's own socket: where a memoird of the system or of a user is looked for. */
static int listen_native(struct server *server)
{
    static const char system_path[] = TRACE_ASK_DIR "/memoir.sock";
    const char *set = server->daemon->config.socket, *runtime = getenv("XDG_RUNTIME_DIR");
    char usual[PATH_MAX] = "";
    if (!set[0] && geteuid() == 0) {
        int r = trace_ask_dir_make();
        if (r < 0)
            log_warn("cannot use '%s': %s", TRACE_ASK_DIR,
                     r == -EPERM ? "users other than root can write to it" : strerror(-r));
        snprintf(usual, sizeof(usual), "%s", system_path);
    } else if (!set[0] && runtime && runtime[0] == '/') {
        snprintf(usual, sizeof(usual), "%s/memoird.sock", runtime);
    } else if (!set[0]) {
        log_warn(
            "no place for a socket: set --socket PATH, or XDG_RUNTIME_DIR; going on without it");
        return 0;
    }
    int r = server_listen(server, &native_protocol, set, usual, &server->native);
    if (server->native)
        snprintf(server->native_path, sizeof(server->native_path), "%s", set[0] ? set : usual);
    return r;
}

static int listen_tcp(struct server *server)
{
    const char *address = server->daemon->config.tcp;
    uint16_t port;
    if (!address[0])
        return 0;
    int r = conn_listen_tcp(server->conns, &native_protocol, server, address, &port, &server->tcp);
    if (r < 0)
        log_error("cannot listen at %s: %s", address,
                  r == -EINVAL ? "expected HOST:PORT with a numeric host" : strerror(-r));
    else
        log_info("listening to the network at %s, port %u", address, port);
    return r;
}

/* ---- begin and end ---- */

void server_reconfigure(struct server *server)
{
    const struct config *config = &server->daemon->config;
    server->limits = (struct conn_limits){
        .connections_max = config->connections_max,
        .connections_per_user_max = config->connections_per_user_max,
        .queue_max = QUEUE_MAX,
        .reports_per_second = config->reports_per_second,
        .stall_ns = config->stall_ns,
    };
}

int server_new(struct daemon *daemon, struct server **ret_server)
{
    struct server *server = calloc(1, sizeof(*server));
    if (!server)
        return -ENOMEM;
    server->daemon = daemon;
    server_reconfigure(server);
    int r = allowance_new(LOG_LINES, LOG_REFILL_S * NS_PER_S, &server->log_share);
    if (r >= 0)
        r = conn_server_new(daemon->loop, &server->limits, &server->figures, &server->conns);
    if (r >= 0)
        r = loop_add_timer(daemon->loop, say_refusals, server, &server->say_timer);
    if (r >= 0)
        r = loop_timer_set(server->say_timer, SAY_MS * NS_PER_MS, SAY_MS * NS_PER_MS);
    if (r < 0)
        log_error("cannot serve sockets: %s", strerror(-r));
    if (r >= 0)
        r = server_listen(server, &tt_protocol, daemon->config.tt_socket, tt_default, &server->tt);
    if (r >= 0)
        r = native_new(daemon, &daemon->native);
    if (r >= 0)
        r = listen_native(server);
    if (r >= 0)
        r = listen_tcp(server);
    if (r < 0) {
        server_free(server);
        return r;
    }
    *ret_server = server;
    return 0;
}

void server_free(struct server *server)
{
    if (!server)
        return;
    if (server->log_share)
        say_refusals(server);
    loop_source_free(server->say_timer);
    conn_server_free(server->conns); /* listeners and connections go with it */
    allowance_free(server->log_share);
    free(server);
}

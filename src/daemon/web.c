/* memoird's HTTP server. See web.h. */
#include "daemon/web.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/version.h"
#include "daemon/api.h"
#include "daemon/audit.h"
#include "daemon/daemon.h"
#include "daemon/listen.h"
#include "daemon/loop.h"
#include "daemon/server.h"
#include "daemon/token.h"
#include "daemon/users.h"
#include "http/server.h"
#include "http/session.h"

enum {
    TURN_NS = 3000000, /* for answers, before the rest of the loop gets its turn */
    PEM_MAX = 1 << 20,
    TAKE_STALLS = 6, /* a whole answer may take so many times as long as a stall */
};

/* Where `http = auto` serves: the first port of these that is free, else any. */
static const char auto_host[] = "127.0.0.1";
enum { AUTO_PORT = 7070, AUTO_PORTS = 10 };

struct web {
    struct daemon *daemon;
    struct http *http;
    struct http_sessions *sessions;
    struct tokens *tokens; /* the server's thread only, as are */
    struct users *users;
    struct audit *audit;
    struct users *link_users; /* the loop's */
    struct listen_name name;
    char *address; /* for people: "http://localhost:7070" */
    char *hosts;

    struct loop_source *wake, *work, *again_timer;
};

/* ---- calls for the loop ---- */

static void on_work(void *context)
{
    struct web *web = context;
    uint64_t again_ns;
    if (http_serve(web->http, HTTP_ON_LOOP, TURN_NS, &again_ns))
        loop_defer(web->work);
    if (again_ns)
        loop_timer_set(web->again_timer, again_ns, 0);
}

static void on_waiting(void *context, enum http_where where)
{
    (void)where;
    assert(where == HTTP_ON_LOOP); /* what blocks goes on from there: see api_job.c */
    loop_wake(((struct daemon *)context)->web->wake);
}

/* ---- who asks ---- */

static int on_token(void *context, const char *text, struct http_viewer *ret_viewer)
{
    struct web *web = ((struct daemon *)context)->web;
    struct token token;
    if (!web->tokens || tokens_check(web->tokens, text, &token) < 0)
        return -EACCES;
    *ret_viewer = (struct http_viewer){
        .uid = token.has_uid ? token.uid : HTTP_VIEWER_NOBODY,
        .sees_all = token.has_uid && token.uid == 0,
        .role = token.control ? HTTP_CONTROL : HTTP_READ,
    };
    snprintf(ret_viewer->name, sizeof(ret_viewer->name), "%s", token.name);
    return 0;
}

/* Peers of the Unix socket, and sessions of links that they made, have a name. */
static void user_name(struct users *users, struct http_viewer *viewer)
{
    users_refresh(users);
    const char *name = users_name(users, viewer->uid);
    if (name)
        snprintf(viewer->name, sizeof(viewer->name), "%s", name);
    else
        snprintf(viewer->name, sizeof(viewer->name), "uid-%u", viewer->uid);
}

static void on_user(void *context, struct http_viewer *viewer)
{
    struct web *web = ((struct daemon *)context)->web;
    user_name(web->users, viewer);
}

static void on_action(void *context, const struct http_action *action)
{
    struct web *web = ((struct daemon *)context)->web;
    audit_write(web->audit, action);
}

/* ---- where it listens ---- */

static bool is_loopback(const struct sockaddr_storage *address)
{
    const struct sockaddr_in *v4 = (const void *)address;
    const struct sockaddr_in6 *v6 = (const void *)address;
    return address->ss_family == AF_INET ? ntohl(v4->sin_addr.s_addr) >> 24 == 127
                                         : IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

static int pem_read(const char *path, bool secret, char **ret_text)
{
    struct buffer text = BUFFER_INIT(PEM_MAX);
    struct stat st;
    int r = stat(path, &st) < 0 ? -errno : 0;
    if (r >= 0 && secret && st.st_mode & 077) {
        log_error("'%s' can be read by others: chmod 600", path);
        return -EACCES;
    }
    if (r >= 0)
        r = fs_read_file(path, &text);
    if (r < 0)
        log_error("cannot read '%s': %s", path, strerror(-r));
    else
        *ret_text = buffer_take(&text);
    buffer_release(&text);
    return r < 0 ? r : *ret_text ? 0 : -EINVAL;
}

static int load_tls(struct web *web)
{
    const struct config *config = &web->daemon->config;
    MEMOIR_CLEANUP(freep)
    char *certificate = NULL;
    MEMOIR_CLEANUP(freep)
    char *key = NULL;
    if (!config->http_tls_cert[0] || !config->http_tls_key[0]) {
        log_error("http-tls-cert and http-tls-key belong together: one of them is not set");
        return -EINVAL;
    }
    int r = pem_read(config->http_tls_cert, false, &certificate);
    if (r >= 0)
        r = pem_read(config->http_tls_key, true, &key);
    if (r >= 0)
        r = http_set_tls(web->http, certificate, key);
    if (key)
        explicit_bzero(key, strlen(key));
    return r;
}

/* Beyond this machine only by TLS, or where the configuration says so. */
static int check_reach(const struct config *config, const struct sockaddr_storage *own)
{
    bool tls = config->http_tls_cert[0] || config->http_tls_key[0];
    if (is_loopback(own) || tls)
        return 0;
    if (config->http_plain) {
        log_warn("http = %s is served without TLS: tokens can be intercepted on the network",
                 config->http);
        return 0;
    }
    log_error(
        "http = %s reaches beyond this machine: set http-tls-cert and http-tls-key, or http-plain = yes",
        config->http);
    return -EPERM;
}

static int address_keep(struct web *web, const struct sockaddr_storage *own, bool tls)
{
    const struct sockaddr_in *v4 = (const void *)own;
    const struct sockaddr_in6 *v6 = (const void *)own;
    char host[INET6_ADDRSTRLEN + 2] = "localhost";
    bool six = own->ss_family == AF_INET6;
    unsigned port = ntohs(six ? v6->sin6_port : v4->sin_port);
    if (!is_loopback(own)) {
        if (gethostname(host, sizeof(host)) < 0 || !memchr(host, '\0', sizeof(host)))
            strcpy(host, "localhost");
    } else if (six) {
        strcpy(host, "[::1]");
    } else if (ntohl(v4->sin_addr.s_addr) != INADDR_LOOPBACK) {
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
    }
    return asprintf(&web->address, "%s://%s:%u", tls ? "https" : "http", host, port) < 0 ? -ENOMEM
                                                                                         : 0;
}

/* Names that are ours: those of the configuration, the machine's own, and the address that is listened at. */
static int hosts_make(struct web *web)
{
    const struct config *config = &web->daemon->config;
    char name[256] = "", address[INET6_ADDRSTRLEN + 8] = "";
    if (gethostname(name, sizeof(name) - 1) < 0)
        name[0] = '\0';
    const char *colon = strrchr(config->http, ':');
    if (colon && colon > config->http) {
        const char *start = config->http + (config->http[0] == '[');
        snprintf(address, sizeof(address), "%.*s", (int)(colon - start - (config->http[0] == '[')),
                 start);
    }
    return asprintf(&web->hosts, "%s %s %s", config->http_hosts, name, address) < 0 ? -ENOMEM : 0;
}

/* A socket at the usual port or, where that is in use, at another one. */
static int listen_auto(struct sockaddr_storage *ret_own)
{
    char address[64];
    int fd = -EADDRINUSE;
    for (int i = 0; i <= AUTO_PORTS && fd == -EADDRINUSE; i++) {
        snprintf(address, sizeof(address), "%s:%d", auto_host, i < AUTO_PORTS ? AUTO_PORT + i : 0);
        fd = listen_inet(address, ret_own);
    }
    unsigned port = fd < 0 ? 0 : ntohs(((const struct sockaddr_in *)ret_own)->sin_port);
    if (port && port != AUTO_PORT)
        log_warn("port %d is in use: the dashboard is at port %u", AUTO_PORT, port);
    return fd;
}

static int listen_net(struct web *web)
{
    const struct config *config = &web->daemon->config;
    const char *set = config->http;
    const char *address = set[0] ? set : config->dir[0] ? "none" : "auto";
    struct sockaddr_storage own = {0};
    bool tls = config->http_tls_cert[0] || config->http_tls_key[0];
    if (strcmp(address, "none") == 0)
        return 0;
    MEMOIR_CLEANUP(closep)
    int fd = strcmp(address, "auto") == 0 ? listen_auto(&own) : listen_inet(address, &own);
    if (fd < 0) {
        const char *why =
            fd == -EINVAL ? "expected HOST:PORT with a numeric host, auto or none" : strerror(-fd);
        if (set[0])
            log_error("cannot serve http at %s: %s%s", address, why,
                      fd == -EADDRINUSE ? "; --http auto takes another port" : "");
        else
            log_warn("cannot serve http at %s: %s; going on without it", auto_host, why);
        return set[0] ? fd : 0;
    }
    int r = check_reach(config, &own);
    if (r >= 0 && tls)
        r = load_tls(web);
    if (r >= 0)
        r = address_keep(web, &own, tls);
    if (r < 0)
        return r;
    r = http_listen(web->http, fd, tls ? HTTP_DOOR_TLS : HTTP_DOOR_PLAIN);
    if (r < 0) {
        log_error("cannot serve http at %s: %s", address,
                  r == -EINVAL && tls ? "invalid certificate or key" : strerror(-r));
        return r;
    }
    (void)MEMOIR_TAKE_FD(fd);
    log_info("dashboard and API at %s (log in with: memoir open)", web->address);
    return 0;
}

/* "…/memoir.sock" has "…/memoir-http.sock" beside it. */
static int socket_path(struct web *web, char *path, size_t size)
{
    const struct config *config = &web->daemon->config;
    const char *native = web->daemon->server->native_path;
    path[0] = '\0';
    if (config->http_socket[0]) {
        snprintf(path, size, "%s", config->http_socket);
    } else if (native[0]) {
        size_t len = strlen(native);
        if (len > 5 && strcmp(native + len - 5, ".sock") == 0)
            len -= 5;
        snprintf(path, size, "%.*s-http.sock", (int)len, native);
    }
    return path[0] && strcmp(path, "none") != 0;
}

static int listen_socket(struct web *web)
{
    const struct config *config = &web->daemon->config;
    char path[PATH_MAX];
    struct conn_unix_options options = {.path = path};
    if (!socket_path(web, path, sizeof(path)))
        return 0;
    int r = server_socket_access(config, &options);
    if (r < 0)
        return r;
    MEMOIR_CLEANUP(closep)
    int fd = listen_unix(&options, &web->name);
    r = fd < 0 ? fd : http_listen(web->http, fd, HTTP_DOOR_UNIX);
    if (r >= 0) {
        (void)MEMOIR_TAKE_FD(fd);
        log_debug("listening at '%s' (http)", path);
        return 0;
    }
    if (config->http_socket[0])
        log_error("cannot serve http at '%s': %s", path, strerror(-r));
    else
        log_warn("cannot serve http at '%s': %s; going on without it", path, strerror(-r));
    return config->http_socket[0] ? r : 0;
}

/* ---- life ---- */

/* What outlives us: tokens, sessions and the audit. */
static int state_open(struct web *web)
{
    const struct config *config = &web->daemon->config;
    const char *state = web->daemon->state_path;
    MEMOIR_CLEANUP(freep)
    char *tokens = NULL;
    MEMOIR_CLEANUP(freep)
    char *sessions = NULL;
    MEMOIR_CLEANUP(freep)
    char *audit = NULL;
    if (asprintf(&tokens, "%s/tokens", state) < 0 ||
        asprintf(&sessions, "%s/sessions", state) < 0 ||
        asprintf(&audit, "%s/audit.jsonl", state) < 0)
        return -ENOMEM;
    int r = tokens_watch(config->token_file[0] ? config->token_file : tokens, &web->tokens);
    if (r >= 0)
        r = sessions_new(sessions, &web->sessions);
    if (r >= 0)
        r = users_new(&web->users);
    if (r >= 0)
        r = users_new(&web->link_users);
    if (r >= 0)
        r = audit_new(audit, &web->audit);
    return r;
}

static struct http_limits limits_of(const struct config *config)
{
    struct http_limits limits = http_limits_default;
    limits.connections_max = config->http_connections_max;
    limits.streams_max = limits.connections_max / 4 * 3;
    limits.request_ns = config->stall_ns;
    limits.take_ns = TAKE_STALLS * config->stall_ns;
    return limits;
}

static int web_start(struct web *web)
{
    struct daemon *daemon = web->daemon;
    struct http_limits limits = limits_of(&daemon->config);
    struct http_options options = {
        .title = "Memoir",
        .version = MEMOIR_VERSION,
        .context = daemon,
        .wake = on_waiting,
        .token = on_token,
        .user = on_user,
        .audit = on_action,
    };
    options.routes = api_routes(&options.n_routes);
    options.schemas = api_schemas(&options.n_schemas);
    int r = hosts_make(web);
    options.hosts = web->hosts;
    if (r >= 0)
        r = state_open(web);
    options.sessions = web->sessions;
    if (r >= 0)
        r = http_new(&options, &limits, &web->http);
    if (r >= 0)
        r = loop_add_wake(daemon->loop, on_work, web, &web->wake);
    if (r >= 0)
        r = loop_add_deferred(daemon->loop, on_work, web, &web->work);
    if (r >= 0)
        r = loop_add_timer(daemon->loop, on_work, web, &web->again_timer);
    if (r < 0)
        log_error("cannot serve http: %s", strerror(-r));
    if (r >= 0)
        r = listen_net(web);
    if (r >= 0)
        r = listen_socket(web);
    return r;
}

int web_new(struct daemon *daemon, struct web **ret_web)
{
    struct web *web = calloc(1, sizeof(*web));
    if (!web)
        return -ENOMEM;
    web->daemon = daemon;
    web->name.dirfd = -1;
    int r = web_start(web);
    if (r >= 0 && !web->address && web->name.dirfd < 0) {
        web_free(web);
        return 0;
    }
    *ret_web = web; /* before the server's thread, which looks for it there */
    if (r >= 0)
        r = http_start(web->http);
    if (r >= 0)
        r = api_start(daemon->api, web->http);
    if (r < 0) {
        *ret_web = NULL;
        web_free(web);
    }
    return r;
}

void web_free(struct web *web)
{
    if (!web)
        return;
    if (web->http)
        http_stop(web->http);
    api_stop(web->daemon->api);
    http_free(web->http);
    listen_name_release(&web->name);
    loop_source_free(web->wake);
    loop_source_free(web->work);
    loop_source_free(web->again_timer);
    sessions_free(web->sessions);
    tokens_free(web->tokens);
    users_free(web->users);
    users_free(web->link_users);
    audit_free(web->audit);
    free(web->address);
    free(web->hosts);
    free(web);
}

struct http *web_http(const struct web *web)
{
    return web->http;
}

const char *web_address(const struct web *web)
{
    return web->address ? web->address : "";
}

int web_link(struct web *web, const struct http_viewer *viewer, char ret_link[static WEB_LINK_MAX])
{
    char code[SESSION_SECRET_CHARS + 1];
    if (!web->address)
        return -ENOTCONN;
    struct http_viewer named = *viewer;
    user_name(web->link_users, &named);
    int r = sessions_code_make(web->sessions, &named, code);
    if (r >= 0)
        snprintf(ret_link, WEB_LINK_MAX, "%s/login?code=%s", web->address, code);
    return r;
}

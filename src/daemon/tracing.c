/* See tracing.h. */
#include "daemon/tracing.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/helper.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/loop.h"
#include "trace/ask.h"

enum { WHY_MAX = 256 };

struct tracing {
    struct daemon *daemon;
    struct loop_source *timer, *link_source;
    enum tracing_state state;
    int link;    /* the connection that holds it; -1 */
    pid_t child; /* that we started; 0: none, or another's */
    unsigned backoff_ms;
    uint64_t linked_ns; /* since when it runs */
    char why[WHY_MAX];
    char socket[108];
    char program[PATH_MAX];
};

extern char **environ;

/* ---- where things are ---- */

bool tracing_program_find(char *path, size_t size)
{
    static const char *const places[] = {"../libexec/memoir/memoir-observe",
                                         "../observe/memoir-observe"};
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n <= 0)
        return false;
    self[n] = '\0';
    char *name = strrchr(self, '/');
    if (!name)
        return false;
    name[1] = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        int len = snprintf(path, size, "%s%s", self, places[i]);
        if (len < (int)size && access(path, X_OK) == 0)
            return true;
    }
    return false;
}

/* A driver: its device file or its library. Containers may bring a library of their own, so the former is enough. */
static bool driver_exists(void)
{
    static const char *const signs[] = {
        "/dev/nvidiactl",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "/usr/lib64/libcuda.so.1",
        "/usr/lib/libcuda.so.1",
        "/usr/lib/wsl/lib/libcuda.so.1",
    };
    for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++)
        if (access(signs[i], F_OK) == 0)
            return true;
    return false;
}

/* ---- the connection ---- */

static void later(struct tracing *t, uint64_t ms)
{
    loop_timer_set(t->timer, ms * NS_PER_MS, 0);
}

static void state_set(struct tracing *t, enum tracing_state state, const char *why)
{
    bool changed = t->state != state || strcmp(t->why, why) != 0;
    t->state = state;
    snprintf(t->why, sizeof(t->why), "%s", why);
    if (!changed)
        return;
    if (state == TRACING_RUNNING)
        log_info("tracing CUDA programs");
    else if (state == TRACING_FAILED)
        log_warn("CUDA programs are not traced: %s", why);
}

static void link_close(struct tracing *t)
{
    loop_source_free(t->link_source);
    t->link_source = NULL;
    closep(&t->link);
    t->link = -1;
}

static void child_reap(struct tracing *t, char *why, size_t size)
{
    int status;
    if (t->child <= 0 || waitpid(t->child, &status, WNOHANG) != t->child)
        return;
    if (WIFSIGNALED(status))
        snprintf(why, size, "memoir-observe was ended by signal %d", WTERMSIG(status));
    else
        snprintf(why, size, "memoir-observe exited with status %d: its messages are in this log",
                 WEXITSTATUS(status));
    t->child = 0;
}

static void fail(struct tracing *t, const char *why)
{
    /* One that ran for a while is started again soon; one that falls again and again is not. */
    if (t->link >= 0 && clock_monotonic_ns() - t->linked_ns > TRACING_BACKOFF_MAX_MS * NS_PER_MS)
        t->backoff_ms = TRACING_BACKOFF_MS;
    link_close(t);
    state_set(t, TRACING_FAILED, why);
    later(t, t->backoff_ms);
    t->backoff_ms =
        t->backoff_ms * 2 < TRACING_BACKOFF_MAX_MS ? t->backoff_ms * 2 : TRACING_BACKOFF_MAX_MS;
}

/* The observer never speaks first: the connection was closed. */
static void on_link(void *context, uint32_t events)
{
    struct tracing *t = context;
    char bytes[64], why[WHY_MAX] = "memoir-observe closed the connection";
    ssize_t n = recv(t->link, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return; /* "ok 0" */
    child_reap(t, why, sizeof(why));
    fail(t, why);
}

/* Hold the observer that answers, if one does. */
static bool link_open(struct tracing *t)
{
    int fd = trace_ask_open(t->socket);
    if (fd < 0)
        return false;
    t->link = fd;
    if (send(fd, "hold\n", 5, MSG_NOSIGNAL | MSG_DONTWAIT) != 5 ||
        loop_add_fd(t->daemon->loop, fd, EPOLLIN | EPOLLRDHUP, on_link, t, &t->link_source) < 0) {
        link_close(t);
        return false;
    }
    t->linked_ns = clock_monotonic_ns();
    state_set(t, TRACING_RUNNING, "");
    return true;
}

/* ---- starting it ---- */

enum { NAME_MAX_BYTES = 32 };

/* Of its pins: those of an observer with a socket of its own are its own, too. */
static void name_make(const struct tracing *t, char name[static NAME_MAX_BYTES])
{
    if (t->daemon->config.trace_socket[0])
        snprintf(name, NAME_MAX_BYTES, "at-%016llx", (unsigned long long)hash_string(t->socket, 0));
    else
        snprintf(name, NAME_MAX_BYTES, "all");
}

static int program_spawn(const struct tracing *t, const char *const *arguments, pid_t *ret_child)
{
    posix_spawnattr_t attributes;
    helper_attributes_init(&attributes); /* Ctrl-C is memoird's: it ends the observer in order */
    int r =
        posix_spawn(ret_child, t->program, NULL, &attributes, (char *const *)arguments, environ);
    posix_spawnattr_destroy(&attributes);
    return -r;
}

static int child_start(struct tracing *t)
{
    const struct daemon *daemon = t->daemon;
    const char *dir = daemon->config.dir[0] ? daemon->config.dir : daemon->own_root;
    char linger[16], name[NAME_MAX_BYTES];
    snprintf(linger, sizeof(linger), "%d", TRACING_LINGER_S);
    name_make(t, name);
    const char *arguments[16] = {"memoir-observe", "--all", "--socket", t->socket,
                                 "--linger",       linger,  "--name",   name};
    size_t n = 8;
    if (dir) {
        arguments[n++] = "--dir";
        arguments[n++] = dir;
    }
    if (daemon->config.trace_system_calls)
        arguments[n++] = "--system-calls";
    if (daemon->config.trace_library[0]) {
        arguments[n++] = "--library";
        arguments[n++] = daemon->config.trace_library;
    }
    arguments[n] = NULL;
    int r = program_spawn(t, arguments, &t->child);
    if (r < 0)
        t->child = 0;
    return r;
}

/* Probes that a killed observer left in the kernel would go on counting in every CUDA program, and no reader would use the figures. */
static void orphan_remove(const struct tracing *t)
{
    char name[NAME_MAX_BYTES];
    pid_t child;
    name_make(t, name);
    const char *arguments[] = {"memoir-observe", "--name", name, "--remove-orphans", NULL};
    if (program_spawn(t, arguments, &child) < 0)
        return;
    for (int ms = 0; ms < TRACING_REMOVE_MS; ms += 10) {
        if (waitpid(child, NULL, WNOHANG) != 0)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 10 * (long)NS_PER_MS}, NULL);
    }
}

/* Look at things, and go on from there. */
static void on_timer(void *context)
{
    struct tracing *t = context;
    char why[WHY_MAX] = "";
    if (t->link >= 0 || t->state == TRACING_OFF || link_open(t))
        return;
    child_reap(t, why, sizeof(why));
    if (why[0] && t->state == TRACING_STARTING) {
        fail(t, why);
        return;
    }
    if (t->child > 0) { /* it has not bound its socket yet */
        state_set(t, TRACING_STARTING, "");
        later(t, 50);
        return;
    }
    if (t->daemon->config.trace == CONFIG_AUTO_AUTO && !driver_exists()) {
        state_set(t, TRACING_WAITING, "no CUDA driver was found");
        later(t, TRACING_LOOK_S * 1000);
        return;
    }
    int r = child_start(t);
    if (r < 0) {
        snprintf(why, sizeof(why), "cannot start '%.200s': %s", t->program, strerror(-r));
        fail(t, why);
        return;
    }
    state_set(t, TRACING_STARTING, "");
    later(t, 50);
}

int tracing_new(struct daemon *daemon, struct tracing **ret_tracing)
{
    struct tracing *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    t->daemon = daemon;
    t->link = -1;
    t->backoff_ms = TRACING_BACKOFF_MS;
    const struct config *config = &daemon->config;
    int len = config->trace_socket[0]
                  ? snprintf(t->socket, sizeof(t->socket), "%s", config->trace_socket)
                  : snprintf(t->socket, sizeof(t->socket), "%s", TRACE_ASK_SOCKET);
    if (config->trace == CONFIG_AUTO_NO)
        state_set(t, TRACING_OFF, "switched off in the configuration");
    else if (geteuid() != 0)
        state_set(t, TRACING_OFF, "memoird does not run as root");
    else if (config->trace == CONFIG_AUTO_AUTO && config->dir[0])
        state_set(t, TRACING_OFF, "memoird looks at one directory only");
    else if (len >= (int)sizeof(t->socket))
        state_set(t, TRACING_OFF, "the path of its socket is too long");
    else if (!tracing_program_find(t->program, sizeof(t->program)))
        state_set(t, TRACING_OFF, "memoir-observe is not installed");
    else
        t->state = TRACING_STARTING;
    int r = loop_add_timer(daemon->loop, on_timer, t, &t->timer);
    if (r < 0) {
        free(t);
        return r;
    }
    if (t->state == TRACING_STARTING)
        later(t, 1);
    *ret_tracing = t;
    return 0;
}

void tracing_free(struct tracing *t)
{
    if (!t)
        return;
    char why[WHY_MAX];
    if (t->link < 0)
        child_reap(t, why, sizeof(why));
    bool gone = t->link < 0 && t->child <= 0 && t->state == TRACING_FAILED;
    if (t->link >= 0) {
        gone = send(t->link, "stop\n", 5, MSG_NOSIGNAL | MSG_DONTWAIT) != 5;
        link_close(t);
    } else if (t->child > 0) {
        kill(t->child, SIGTERM);
    }
    if (gone)
        orphan_remove(t);
    loop_source_free(t->timer);
    free(t);
}

enum tracing_state tracing_state(const struct tracing *t)
{
    return t ? t->state : TRACING_OFF;
}

const char *tracing_state_name(enum tracing_state state)
{
    static const char *const names[] = {"off", "waiting", "starting", "running", "failed"};
    return names[state];
}

const char *tracing_why(const struct tracing *t)
{
    return t ? t->why : "";
}

const char *tracing_socket(const struct tracing *t)
{
    return t && t->state == TRACING_RUNNING ? t->socket : "";
}

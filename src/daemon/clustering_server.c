/* The cluster's private nats-server. See clustering_server.h. */
#include "daemon/clustering_server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/helper.h"
#include "base/log.h"
#include "daemon/clustering_confine.h"
#include "daemon/daemon.h"
#include "daemon/loop.h"

enum { END_MS = 2000 };

struct clustering_server {
    struct daemon *daemon;
    struct loop_source *timer, *source;
    char *config; /* path */
    char *pid_path;
    pid_t pid; /* 0: it does not run */
    bool own;  /* our child */
    int pidfd; /* -1 */
    uint64_t wait_ms, started_ns;
};

extern char **environ;

static int pidfd_open_(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    return fd < 0 ? -errno : fd;
}

static void forget(struct clustering_server *s)
{
    loop_source_free(s->source);
    s->source = NULL;
    closep(&s->pidfd);
    s->pidfd = -1;
    s->pid = 0;
}

static void on_end(void *context, uint32_t events)
{
    struct clustering_server *s = context;
    int status = 0;
    if (s->own)
        (void)waitpid(s->pid, &status, WNOHANG);
    if (clock_monotonic_ns() - s->started_ns > CLUSTERING_SERVER_RETRY_MAX_MS * NS_PER_MS)
        s->wait_ms = CLUSTERING_SERVER_RETRY_MS;
    log_warn("the cluster's nats-server ended; starting it again in %llu ms",
             (unsigned long long)s->wait_ms);
    forget(s);
    loop_timer_set(s->timer, s->wait_ms * NS_PER_MS, 0);
    if (s->wait_ms < CLUSTERING_SERVER_RETRY_MAX_MS)
        s->wait_ms *= 2;
}

static int watch(struct clustering_server *s, pid_t pid, bool own)
{
    int fd = pidfd_open_(pid);
    if (fd < 0)
        return fd;
    s->pidfd = fd;
    s->pid = pid;
    s->own = own;
    s->started_ns = clock_monotonic_ns();
    int r = loop_add_fd(s->daemon->loop, fd, EPOLLIN, on_end, s, &s->source);
    if (r < 0)
        forget(s);
    return r;
}

/* One that a memoird before us started: a process of this configuration, by its command line. */
static pid_t running(const struct clustering_server *s)
{
    char path[64];
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(64);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer command = BUFFER_INIT(1 << 16);
    if (fs_read_file(s->pid_path, &text) < 0)
        return 0;
    pid_t pid = (pid_t)strtol(buffer_string(&text), NULL, 10);
    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    if (pid <= 1 || fs_read_file(path, &command) < 0)
        return 0;
    for (size_t at = 0; at < command.len; at += strlen(command.data + at) + 1)
        if (strcmp(command.data + at, s->config) == 0)
            return pid;
    return 0;
}

/* It confines itself first. */
static int spawn(struct clustering_server *s, pid_t *ret_pid)
{
    char *const arguments[] = {(char *)CLUSTERING_SERVER_HELPER, s->config, NULL};
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    if (!clustering_server_program())
        return -ENOENT;
    helper_attributes_init(&attributes);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
    int r = posix_spawn(ret_pid, "/proc/self/exe", &actions, &attributes, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (r == 0 && geteuid() == 0 && !clustering_confine_whole())
        log_warn("the kernel has no Landlock: the cluster's nats-server can use files of root's");
    return -r;
}

static void start(void *context)
{
    struct clustering_server *s = context;
    pid_t pid = running(s);
    bool own = pid == 0;
    int r = own ? spawn(s, &pid) : 0;
    if (r >= 0)
        r = watch(s, pid, own);
    if (r >= 0) {
        log_info("%s the cluster's nats-server (PID %d)", own ? "started" : "took over", (int)pid);
        return;
    }
    log_error("cannot start nats-server: %s",
              r == -ENOENT ? "it is not installed (the package nats-server)" : strerror(-r));
    loop_timer_set(s->timer, CLUSTERING_SERVER_RETRY_MAX_MS * NS_PER_MS, 0);
}

int clustering_server_new(struct daemon *daemon, struct clustering_server **ret_server)
{
    struct clustering_server *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->daemon = daemon;
    s->pidfd = -1;
    s->wait_ms = CLUSTERING_SERVER_RETRY_MS;
    int r = asprintf(&s->config, "%s/cluster/nats.conf", daemon->state_path) < 0 ||
                    asprintf(&s->pid_path, "%s/cluster/nats.pid", daemon->state_path) < 0
                ? -ENOMEM
                : loop_add_timer(daemon->loop, start, s, &s->timer);
    if (r < 0) {
        clustering_server_free(s);
        return r;
    }
    start(s);
    *ret_server = s;
    return 0;
}

void clustering_server_reload(struct clustering_server *s)
{
    if (s && s->pid)
        (void)kill(s->pid, SIGHUP);
}

void clustering_server_free(struct clustering_server *s)
{
    if (!s)
        return;
    pid_t pid = s->pid;
    if (pid) {
        (void)kill(pid, SIGTERM);
        for (int ms = 0; ms < END_MS && kill(pid, 0) == 0; ms += 10) {
            if (s->own && waitpid(pid, NULL, WNOHANG) == pid)
                break;
            usleep(10000);
        }
    }
    forget(s);
    loop_source_free(s->timer);
    free(s->config);
    free(s->pid_path);
    free(s);
}

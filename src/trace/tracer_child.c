/* The observer of a tracer: a child process, and the thread that reads its stream. See tracer.h. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "trace/stream.h"
#include "trace/tracer.h"

enum {
    STREAM_FD = 3,   /* in the child */
    DRAIN_MS = 2000, /* for the observer to end by itself */
    KILL_MS = 100,   /* after that, or after its stream ended, until it is killed */
    READ_BYTES = 1 << 18,
};

extern char **environ;

/* ---- the thread ---- */

static int on_hello(void *user, uint32_t version, uint64_t monotonic_ns, uint64_t real_ns)
{
    struct memoir_tracer *t = user;
    (void)version;
    (void)monotonic_ns;
    (void)real_ns;
    if (t->options.target == MEMOIR_TRACER_ALL) {
        pthread_mutex_lock(&t->lock);
        t->ready = true;
        pthread_cond_broadcast(&t->changed);
        pthread_mutex_unlock(&t->lock);
    }
    return 0;
}

static int on_process(void *user, const struct trace_identity *identity)
{
    struct memoir_tracer *t = user;
    struct memoir_trace *trace = tracer_trace_for(t, identity);
    if (trace && t->resumed) {
        struct trace_event gap = {
            .time_ns = clock_monotonic_ns(), .kind = TRACE_GAP, .pid = identity->pid, .device = -1};
        trace_history_event(trace->history, &gap);
        trace_history_sweep_begin(trace->history);
    }
    pthread_mutex_lock(&t->lock);
    t->ready = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return 0;
}

static int on_site(void *user, int32_t pid, const struct trace_site *site)
{
    struct memoir_trace *trace = tracer_trace_find(user, pid);
    if (trace)
        trace_sites_define(trace_history_sites(trace->history), site);
    return 0;
}

static int on_events(void *user, const struct trace_event *events, size_t n)
{
    struct memoir_tracer *t = user;
    uint64_t unkept = 0;
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && events[end].pid == events[i].pid;)
            end++;
        struct memoir_trace *trace = tracer_trace_find(t, events[i].pid);
        if (trace)
            trace_history_events(trace->history, events + i, end - i);
        else
            unkept += end - i;
    }
    pthread_mutex_lock(&t->lock);
    t->events += n;
    t->unkept += unkept;
    pthread_mutex_unlock(&t->lock);
    return 0;
}

static int on_synced(void *user, int32_t pid)
{
    struct memoir_tracer *t = user;
    struct memoir_trace *trace = tracer_trace_find(t, pid);
    if (trace && t->resumed)
        trace_history_sweep_end(trace->history);
    return 0;
}

static int on_ended(void *user, int32_t pid)
{
    struct memoir_tracer *t = user;
    bool ours = (t->options.target == MEMOIR_TRACER_PID && t->options.pid == pid) ||
                (t->options.target == MEMOIR_TRACER_SELF && getpid() == pid);
    if (ours)
        tracer_state_set(t, MEMOIR_TRACER_ENDED, 0, "the process ended");
    return 0;
}

static int on_error(void *user, int error, const char *text)
{
    tracer_state_set(user, MEMOIR_TRACER_FAILED, error < 0 ? -error : error ? error : EIO, text);
    return 0;
}

static const struct trace_stream_calls calls = {
    .hello = on_hello,
    .process = on_process,
    .site = on_site,
    .events = on_events,
    .error = on_error,
    .synced = on_synced,
    .ended = on_ended,
};

/* One read; false: the stream is at its end or bad. */
static bool read_some(struct memoir_tracer *t, struct trace_stream_reader *reader, char *bytes)
{
    ssize_t n = read(t->stream_fd, bytes, READ_BYTES);
    if (n < 0)
        return errno == EINTR || errno == EAGAIN;
    if (n == 0)
        return false;
    int r = trace_stream_feed(reader, bytes, (size_t)n);
    if (r < 0) {
        char text[128];
        snprintf(text, sizeof(text), "bad data from memoir-observe: %s", strerror(-r));
        tracer_state_set(t, MEMOIR_TRACER_FAILED, -r, text);
    }
    return r == 0;
}

static void *stream_read(void *arg)
{
    struct memoir_tracer *t = arg;
    struct trace_stream_reader reader;
    char *bytes = malloc(READ_BYTES);
    struct pollfd fds[2] = {{.fd = t->stream_fd, .events = POLLIN},
                            {.fd = t->stop_fd, .events = POLLIN}};
    uint64_t deadline = 0;
    trace_stream_reader_init(&reader, &calls, t);
    while (bytes) {
        uint64_t now = clock_monotonic_ns();
        if (deadline && now >= deadline)
            break;
        int wait = deadline ? (int)((deadline - now) / NS_PER_MS + 1) : -1;
        int n = poll(fds, deadline ? 1 : 2, wait);
        if (n < 0 && errno != EINTR)
            break;
        /* Once it is told to end, the observer flushes what it has. */
        if (n > 0 && !deadline && fds[1].revents)
            deadline = now + (uint64_t)DRAIN_MS * NS_PER_MS;
        if (n > 0 && fds[0].revents && !read_some(t, &reader, bytes))
            break;
    }
    if (!bytes)
        tracer_state_set(t, MEMOIR_TRACER_FAILED, ENOMEM, "out of memory");
    else if (!deadline)
        tracer_state_set(t, MEMOIR_TRACER_FAILED, EPIPE, "memoir-observe ended");
    trace_stream_reader_release(&reader);
    free(bytes);
    return NULL;
}

/* ---- the process ---- */

/* Where memoir-observe is: beside this library, as it is installed. */
static bool observe_beside(char path[static PATH_MAX])
{
    static const char *const places[] = {
        "../libexec", "../../libexec", "../libexec/memoir", "../../libexec/memoir", "../bin", "."};
    Dl_info info;
    char library[PATH_MAX];
    if (!dladdr((const void *)(uintptr_t)memoir_tracer_new, &info) || !info.dli_fname ||
        !realpath(info.dli_fname, library))
        return false;
    char *slash = strrchr(library, '/');
    *slash = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (snprintf(path, PATH_MAX, "%s/%s/memoir-observe", library, places[i]) < PATH_MAX &&
            access(path, X_OK) == 0)
            return true;
    return false;
}

static void child_set(struct memoir_tracer *t, pid_t child)
{
    pthread_mutex_lock(&t->lock);
    t->child = child;
    pthread_mutex_unlock(&t->lock);
}

static int spawn(struct memoir_tracer *t, const char *path, int write_fd)
{
    pid_t child = 0;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, usual;
    char pid[16] = "all", fd[8];
    snprintf(fd, sizeof(fd), "%d", STREAM_FD);
    if (t->options.target != MEMOIR_TRACER_ALL)
        snprintf(pid, sizeof(pid), "%d",
                 t->options.target == MEMOIR_TRACER_SELF ? getpid() : t->options.pid);
    char *const arguments[] = {
        (char *)"memoir-observe", (char *)"--stream", fd, (char *)"--pid", pid, NULL};
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE);
    sigaddset(&usual, SIGTERM);
    int r = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (r == 0)
        r = posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    if (r == 0)
        r = posix_spawn_file_actions_adddup2(&actions, write_fd, STREAM_FD);
    if (r == 0)
        r = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (r == 0)
        r = posix_spawnattr_setsigmask(&attributes, &none);
    if (r == 0)
        r = posix_spawnattr_setsigdefault(&attributes, &usual);
    if (r == 0)
        r = posix_spawn(&child, path, &actions, &attributes, arguments, environ);
    if (r == 0)
        child_set(t, child);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return -r;
}

static void child_reap(struct memoir_tracer *t)
{
    if (t->child <= 0)
        return;
    /* The thread has waited for the stream's end. What still runs now will not end by itself. */
    for (int i = 0; i < DRAIN_MS / 10; i++) {
        pid_t r = waitpid(t->child, NULL, WNOHANG);
        if (r == t->child || (r < 0 && errno == ECHILD)) {
            child_set(t, 0);
            return;
        }
        if (i == KILL_MS / 10)
            kill(t->child, SIGKILL);
        poll(NULL, 0, 10);
    }
    child_set(t, 0);
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static int thread_start(struct memoir_tracer *t)
{
    sigset_t all, before;
    /* Signals of the program are not for our thread. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(&t->thread, NULL, stream_read, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    t->has_thread = r == 0;
    return -r;
}

int tracer_child_start(struct memoir_tracer *t)
{
    char found[PATH_MAX];
    const char *path = t->options.observe ? t->options.observe : secure_getenv("MEMOIR_OBSERVE");
    int ends[2] = {-1, -1};
    if (!path || !path[0])
        path = observe_beside(found) ? found : NULL;
    if (!path) {
        tracer_state_set(t, MEMOIR_TRACER_FAILED, ENOENT,
                         "memoir-observe not found: set MEMOIR_OBSERVE to its path");
        return -ENOENT;
    }
    t->stop_fd = eventfd(0, EFD_CLOEXEC);
    int r = t->stop_fd < 0 || pipe2(ends, O_CLOEXEC) < 0 ? -errno : 0;
    if (r == 0) {
        t->stream_fd = ends[0];
        r = spawn(t, path, ends[1]);
        close(ends[1]);
    }
    if (r == 0)
        r = thread_start(t);
    if (r < 0) {
        char text[256];
        snprintf(text, sizeof(text), "cannot start '%.180s': %s", path, strerror(-r));
        tracer_state_set(t, MEMOIR_TRACER_FAILED, -r, text);
        tracer_child_stop(t);
    }
    return r;
}

void tracer_child_stop(struct memoir_tracer *t)
{
    if (t->child > 0)
        kill(t->child, SIGTERM);
    if (t->has_thread) {
        uint64_t one = 1;
        ssize_t ignored = write(t->stop_fd, &one, sizeof(one));
        (void)ignored;
        pthread_join(t->thread, NULL);
        t->has_thread = false;
    }
    child_reap(t);
    close_fd(&t->stream_fd);
    close_fd(&t->stop_fd);
}

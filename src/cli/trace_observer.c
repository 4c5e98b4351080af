/* Observers of single processes. See trace_observer.h. */
#include "cli/trace_observer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "trace/ask.h"

#define PROGRAM  "memoir-observe"
#define CHILDREN "16" /* of a process that are attached with it */

enum { POLL_MS = 10, ARGUMENTS_MAX = 20 };

void trace_observer_socket(pid_t pid, char socket[static 108])
{
    snprintf(socket, 108, "%s/trace-%d.sock", TRACE_ASK_DIR, (int)pid);
}

bool trace_observer_program(char *path, size_t size)
{
    /* In the build tree, and in an installed one wherever that was moved to. */
    static const char *const places[] = {"/../observe/", "/../libexec/memoir/", "/../lib/memoir/"};
    char self[PATH_MAX];
    const char *named = secure_getenv("MEMOIR_OBSERVE");
    if (named && *named) {
        snprintf(path, size, "%s", named);
        return access(path, X_OK) == 0;
    }
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n < 0)
        return false;
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (snprintf(path, size, "%s%s" PROGRAM, self, places[i]) < (int)size &&
            access(path, X_OK) == 0)
            return true;
    return false;
}

/* ---- starting ---- */

struct starting {
    const char *program;
    char pid[16], ready[16], keep[16], socket[108];
    const char *arguments[ARGUMENTS_MAX];
    size_t n;
};

static void add(struct starting *s, const char *word)
{
    if (s->n + 1 < ARGUMENTS_MAX)
        s->arguments[s->n++] = word;
    s->arguments[s->n] = NULL;
}

static void add_option(struct starting *s, const char *option, const char *value)
{
    if (!value || !*value)
        return;
    add(s, option);
    add(s, value);
}

/* In the child: an own session, so that signals of the terminal do not end it; nothing inherited but `ready` and `said`. */
static void become(const struct starting *s, int ready, int said)
{
    sigset_t none;
    sigemptyset(&none);
    setsid();
    signal(SIGPIPE, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null = open("/dev/null", O_RDWR);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
        dup2(said, STDERR_FILENO) < 0 || fcntl(ready, F_SETFD, 0) < 0)
        _exit(127);
    unsetenv("LD_PRELOAD"); /* of the program that is traced */
    unsetenv("LD_LIBRARY_PATH");
    execv(s->program, (char *const *)s->arguments);
    _exit(127);
}

/* The last error that it logged, without what stands before it in a log. */
static void why_take(int said, int status, char why[static TRACE_OBSERVER_WHY_MAX])
{
    char text[8192];
    ssize_t n = read(said, text, sizeof(text) - 1);
    char *best = NULL;
    text[n > 0 ? n : 0] = '\0';
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        char *mark = strstr(line, " error: ");
        if (mark)
            best = mark + 8;
        else if (!best && strncmp(line, PROGRAM ": ", strlen(PROGRAM ": ")) == 0)
            best = line + strlen(PROGRAM ": ");
    }
    while (best && *best == ' ')
        best++;
    if (best)
        snprintf(why, TRACE_OBSERVER_WHY_MAX, "%s", best);
    else
        snprintf(why, TRACE_OBSERVER_WHY_MAX, PROGRAM " ended with status %d",
                 WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* Until it says that it is ready. */
static int ready_wait(struct trace_observer *o, int ready, int said, char *why)
{
    char word[8];
    struct pollfd wait = {.fd = ready, .events = POLLIN};
    int n;
    do
        n = poll(&wait, 1, TRACE_OBSERVER_READY_MS);
    while (n < 0 && errno == EINTR);
    if (n > 0 && read(ready, word, sizeof(word)) > 0 && word[0] == 'r')
        return 0;
    int status = 0;
    if (n == 0) {
        kill(o->child, SIGKILL);
        snprintf(why, TRACE_OBSERVER_WHY_MAX, PROGRAM " was not ready within %d s",
                 TRACE_OBSERVER_READY_MS / 1000);
    }
    waitpid(o->child, &status, 0);
    o->child = 0;
    if (n != 0)
        why_take(said, status, why);
    return n == 0 ? -ETIMEDOUT : -EREMOTEIO;
}

static int spawn(struct trace_observer *o, struct starting *s, char *why)
{
    int ready[2], said[2];
    if (pipe2(ready, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(said, O_CLOEXEC | O_NONBLOCK) < 0) {
        int r = -errno;
        close(ready[0]);
        close(ready[1]);
        return r;
    }
    snprintf(s->ready, sizeof(s->ready), "%d", ready[1]);
    o->child = fork();
    if (o->child == 0)
        become(s, ready[1], said[1]);
    int r = o->child < 0 ? -errno : 0;
    close(ready[1]);
    close(said[1]);
    if (r == 0)
        r = ready_wait(o, ready[0], said[0], why);
    else
        o->child = 0;
    close(ready[0]);
    close(said[0]);
    return r;
}

/* What every start needs: the program, the rights, the directory of sockets. */
static int prepare(const char *what, char *path, size_t size,
                   char why[static TRACE_OBSERVER_WHY_MAX])
{
    if (!trace_observer_program(path, size)) {
        snprintf(why, TRACE_OBSERVER_WHY_MAX,
                 PROGRAM " is not installed: this build of Memoir has no BPF");
        return -ENOENT;
    }
    if (geteuid() != 0) {
        snprintf(why, TRACE_OBSERVER_WHY_MAX, "%s needs root: try sudo", what);
        return -EPERM;
    }
    int made = trace_ask_dir_make();
    if (made < 0)
        snprintf(why, TRACE_OBSERVER_WHY_MAX, "cannot use '%s': %s", TRACE_ASK_DIR,
                 made == -EPERM ? "users other than root can write to it" : strerror(-made));
    return made;
}

int trace_observer_heap_start(pid_t pid, const struct trace_heap_options *options,
                              char why[static TRACE_OBSERVER_WHY_MAX])
{
    char path[PATH_MAX], sample[24], blocks[24];
    struct starting s = {.program = path};
    struct trace_observer o = {.hold = -1};
    int r = prepare("attaching without memoird", path, sizeof(path), why);
    if (r < 0)
        return r;
    snprintf(s.pid, sizeof(s.pid), "%d", (int)pid);
    char others[TRACE_ASK_PATH_MAX];
    trace_ask_heap_socket(pid, options->dir, s.socket);
    if (trace_ask_heap_find(pid, s.socket, others)) {
        snprintf(why, TRACE_OBSERVER_WHY_MAX,
                 "it is attached already, with another directory of books");
        return -EALREADY;
    }
    snprintf(sample, sizeof(sample), "%llu", (unsigned long long)options->sample_bytes);
    snprintf(blocks, sizeof(blocks), "%llu", (unsigned long long)options->blocks_max);
    add(&s, PROGRAM);
    add(&s, "--heap");
    add_option(&s, "--pid", s.pid);
    add_option(&s, "--socket", s.socket);
    add_option(&s, "--dir", options->dir);
    add_option(&s, "--sample-bytes", options->sample_bytes ? sample : NULL);
    add_option(&s, "--blocks-max", options->blocks_max ? blocks : NULL);
    add_option(&s, "--budget", options->budget);
    add_option(&s, "--children", options->children ? CHILDREN : NULL);
    add(&s, "--ready");
    add(&s, s.ready);
    return spawn(&o, &s, why);
}

int trace_observer_start(struct trace_observer *o, pid_t pid, bool detached, const char *search,
                         const char *dir, char why[static TRACE_OBSERVER_WHY_MAX])
{
    char path[PATH_MAX], refused[TRACE_ASK_WHY_MAX];
    struct starting s = {.program = path};
    *o = (struct trace_observer){.hold = -1};
    int r = prepare("tracing", path, sizeof(path), why);
    if (r < 0)
        return r;
    snprintf(s.pid, sizeof(s.pid), "%d", (int)pid);
    trace_observer_socket(pid, s.socket);
    strcpy(o->socket, s.socket);
    add(&s, PROGRAM);
    add_option(&s, "--pid", s.pid);
    add_option(&s, "--socket", s.socket);
    add_option(&s, "--search", search);
    add_option(&s, "--dir", dir);
    snprintf(s.keep, sizeof(s.keep), "%d", TRACE_OBSERVER_KEEP_S);
    add_option(&s, detached ? "--keep" : "--linger", detached ? s.keep : "1");
    add(&s, "--system-calls"); /* who traces one program wants to know all of it */
    add(&s, "--ready");
    add(&s, s.ready);
    r = spawn(o, &s, why);
    if (r < 0)
        return r;
    if (detached) {
        o->child = 0; /* no longer ours */
        return 0;
    }
    o->hold = trace_ask_open(o->socket);
    r = o->hold < 0 ? o->hold : trace_ask(o->hold, "hold", NULL, refused);
    if (r < 0) {
        snprintf(why, TRACE_OBSERVER_WHY_MAX, "the observer does not answer: %s", strerror(-r));
        trace_observer_end(o);
    }
    return r;
}

/* ---- ending ---- */

void trace_observer_end(struct trace_observer *o)
{
    closep(&o->hold);
    o->hold = -1;
    if (o->child <= 0)
        return;
    kill(o->child, SIGTERM);
    for (int waited = 0; waitpid(o->child, NULL, WNOHANG) == 0; waited += POLL_MS) {
        if (waited >= TRACE_OBSERVER_STOP_MS)
            kill(o->child, SIGKILL);
        poll(NULL, 0, POLL_MS);
    }
    o->child = 0;
}

int trace_observer_stop(const char *socket)
{
    char why[TRACE_ASK_WHY_MAX];
    MEMOIR_CLEANUP(closep)
    int fd = trace_ask_open(socket);
    if (fd < 0)
        return fd;
    int r = trace_ask(fd, "stop", NULL, why);
    if (r < 0)
        return r;
    /* It closes the connection at its end. */
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    uint64_t deadline = clock_monotonic_ns() + TRACE_OBSERVER_STOP_MS * NS_PER_MS;
    char byte;
    while (clock_monotonic_ns() < deadline)
        if (poll(&wait, 1, POLL_MS) > 0 && read(fd, &byte, 1) <= 0)
            break;
    while (access(socket, F_OK) == 0 && clock_monotonic_ns() < deadline)
        poll(NULL, 0, POLL_MS);
    return access(socket, F_OK) == 0 ? -ETIMEDOUT : 0;
}

/* ---- finding ---- */

size_t trace_observer_each(void (*each)(void *context, const char *socket, pid_t pid),
                           void *context)
{
    size_t n = 0;
    DIR *dir = opendir(TRACE_ASK_DIR);
    if (access(TRACE_ASK_SOCKET, F_OK) == 0) {
        each(context, TRACE_ASK_SOCKET, 0);
        n++;
    }
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        int pid, end = 0;
        char socket[108];
        if (sscanf(entry->d_name, "trace-%d.sock%n", &pid, &end) != 1 || !end || entry->d_name[end])
            continue;
        trace_observer_socket(pid, socket);
        each(context, socket, pid);
        n++;
    }
    if (dir)
        closedir(dir);
    return n;
}

/* Its exit status, or -errno. */
static int observer_run(const char *option, bool quiet)
{
    char path[PATH_MAX];
    int status;
    if (!trace_observer_program(path, sizeof(path)))
        return -ENOENT;
    pid_t child = fork();
    if (child == 0) {
        int null = quiet ? open("/dev/null", O_RDWR | O_CLOEXEC) : -1;
        if (null >= 0)
            dup2(null, STDERR_FILENO);
        execl(path, PROGRAM, option, NULL);
        _exit(127);
    }
    if (child < 0)
        return -errno;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -ECHILD;
}

int trace_observer_orphans(void)
{
    return observer_run("--remove-orphans", false);
}

bool trace_observer_parser_works(void)
{
    return observer_run("--check-parser", true) == 0;
}

/* A directory of pins belongs to an observer that holds the lock of its name. */
size_t trace_observer_orphans_find(struct buffer *names)
{
    static const char *const places[] = {"/sys/fs/bpf", TRACE_ASK_DIR "/bpf"};
    size_t n = 0;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        DIR *dir = opendir(places[i]);
        for (struct dirent *entry; dir && (entry = readdir(dir));) {
            struct stat st;
            char path[PATH_MAX];
            if (strncmp(entry->d_name, "memoir-", 7) != 0 ||
                fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
                !S_ISDIR(st.st_mode) || st.st_uid != 0)
                continue; /* in a bpffs that is open to all, users can call theirs so, too */
            snprintf(path, sizeof(path), TRACE_ASK_DIR "/observe-%s.lock", entry->d_name + 7);
            MEMOIR_CLEANUP(closep)
            int lock = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
            if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) < 0)
                continue; /* its observer runs */
            buffer_printf(names, "%s%s", n++ ? " " : "", entry->d_name + 7);
        }
        if (dir)
            closedir(dir);
    }
    return n;
}

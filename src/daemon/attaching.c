/* See attaching.h. */
#include "daemon/attaching.h"

#include <dirent.h>
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
#include <unistd.h>

#include "base/accountable.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/helper.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/loop.h"
#include "daemon/reaper.h"
#include "daemon/tracing.h"
#include "ledger/ledger.h"
#include "trace/ask.h"

/* How many children of a process are attached with it, each with a quarter as many: a user's come to ATTACHING_USER_MAX. */
#define CHILDREN_ROOT "16"
#define CHILDREN_USER "4"

enum { READY_FD = 3 /* in the observer */, COMMAND_MAX = 64 << 10 };

/* One process. */
struct attached {
    struct attaching *attaching;
    pid_t pid;   /* 0: unused */
    pid_t child; /* that we started; 0: another's */
    uint32_t uid;
    enum attaching_state state;
    bool children; /* those that it forks, too */
    bool ending;   /* it was told to */
    int ready;     /* the observer says there whether it works; -1 */
    int link;      /* the connection that holds it; -1 */
    struct loop_source *ready_source, *link_source;
    uint64_t since_ns;
    uint64_t counted, figures_ns; /* blocks ever allocated by its book, and when that changed */
    char why[ATTACHING_WHY_MAX];
};

struct attaching {
    struct daemon *daemon;
    struct attached all[ATTACHING_MAX];
    pid_t leaving[ATTACHING_MAX]; /* children that were told to end, and have not yet; 0: free */
    struct loop_source *timer;
    const char *why_not;
    char program[PATH_MAX];
};

extern char **environ;

static void socket_of(const struct attached *one, char path[static TRACE_ASK_PATH_MAX])
{
    trace_ask_heap_socket(one->pid, one->attaching->daemon->config.dir, path);
}

static struct attached *find(struct attaching *a, pid_t pid)
{
    for (size_t i = 0; a && i < ATTACHING_MAX; i++)
        if (a->all[i].pid == pid)
            return &a->all[i];
    return NULL;
}

static void ready_close(struct attached *one)
{
    loop_source_free(one->ready_source);
    one->ready_source = NULL;
    closep(&one->ready);
    one->ready = -1;
}

static void link_close(struct attached *one)
{
    loop_source_free(one->link_source);
    one->link_source = NULL;
    closep(&one->link);
    one->link = -1;
}

/* Its connection ends before it does: adopt() looks again. */
static void child_leave(struct attached *one)
{
    pid_t *leaving = one->attaching->leaving;
    size_t i = 0;
    pid_t child = one->child;
    one->child = 0;
    if (child <= 0 || waitpid(child, NULL, WNOHANG) != 0)
        return;
    while (i < ATTACHING_MAX && leaving[i])
        i++;
    if (i < ATTACHING_MAX)
        leaving[i] = child;
    else
        log_warn("memoir-observe (PID %d) does not end", (int)child);
}

static void children_reap(struct attaching *a)
{
    for (size_t i = 0; i < ATTACHING_MAX; i++)
        if (a->leaving[i] && waitpid(a->leaving[i], NULL, WNOHANG) != 0)
            a->leaving[i] = 0;
}

static void forget(struct attached *one)
{
    ready_close(one);
    link_close(one);
    child_leave(one);
    *one = (struct attached){.attaching = one->attaching, .ready = -1, .link = -1};
}

/* ---- an observer that ended ---- */

static struct ledger_book *book_of(const struct attached *one)
{
    const struct ledger *ledger = one->attaching->daemon->ledger;
    struct ledger_process *p = NULL;
    while ((p = ledger_process_next(ledger, one->pid, p)))
        for (size_t i = 0; i < p->n_books; i++)
            if (p->books[i]->identity->source == BOOK_SOURCE_ATTACH && p->books[i]->dirfd >= 0)
                return p->books[i];
    return NULL;
}

/* In order, it has removed its socket and its book; one that was killed has not. The book of a process that has ended is
 * retired. */
static void remains_remove(const struct attached *one)
{
    char socket[TRACE_ASK_PATH_MAX];
    struct daemon *daemon = one->attaching->daemon;
    struct ledger_book *book = book_of(one);
    socket_of(one, socket);
    unlink(socket);
    if (!book || (kill(one->pid, 0) < 0 && errno == ESRCH))
        return;
    if (ledger_book_check(book) == 0 && unlinkat(book->dirfd, book->name, 0) == 0)
        log_info("removed book '%s', whose observer was killed", book->path);
    if (book->process->n_books == 1)
        reaper_forget(daemon, book->process); /* its row goes with its last book */
    ledger_book_remove(daemon->ledger, book);
}

/* A book of an attach whose file is gone, though its process runs: its observer came and went between two looks. */
static struct ledger_book *stray_find(struct attaching *a)
{
    size_t n;
    struct ledger_process *const *all = ledger_processes(a->daemon->ledger, &n);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < all[i]->n_books; k++) {
            struct ledger_book *book = all[i]->books[k];
            if (book->identity->source == BOOK_SOURCE_ATTACH && book->dirfd >= 0 &&
                !find(a, all[i]->pid) && ledger_book_check(book) < 0 && kill(all[i]->pid, 0) == 0)
                return book;
        }
    return NULL;
}

static void strays_forget(struct attaching *a)
{
    for (struct ledger_book *book; (book = stray_find(a));) {
        if (book->process->n_books == 1)
            reaper_forget(a->daemon, book->process);
        ledger_book_remove(a->daemon->ledger, book);
    }
}

static void fail(struct attached *one, const char *why)
{
    ready_close(one);
    link_close(one);
    child_leave(one);
    remains_remove(one);
    one->state = ATTACHING_FAILED;
    snprintf(one->why, sizeof(one->why), "%s", why);
    log_info("process %d is not attached: %s", (int)one->pid, why);
}

/* The observer never speaks first: the connection was closed. */
static void on_link(void *context, uint32_t events)
{
    struct attached *one = context;
    char bytes[64];
    ssize_t n = recv(one->link, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return; /* "ok 0" */
    remains_remove(one);
    log_info("process %d is not attached any more", (int)one->pid);
    pid_t pid = one->ending ? one->pid : 0;
    forget(one);
    one->pid = pid;
    one->state = pid ? ATTACHING_ENDED : ATTACHING_NONE;
}

static bool link_open(struct attached *one)
{
    char socket[TRACE_ASK_PATH_MAX];
    socket_of(one, socket);
    one->link = trace_ask_open(socket);
    if (one->link < 0) {
        one->link = -1;
        return false;
    }
    if (send(one->link, "hold\n", 5, MSG_NOSIGNAL | MSG_DONTWAIT) != 5 ||
        loop_add_fd(one->attaching->daemon->loop, one->link, EPOLLIN | EPOLLRDHUP, on_link, one,
                    &one->link_source) < 0) {
        link_close(one);
        return false;
    }
    one->state = ATTACHING_ON;
    return true;
}

/* ---- beginning ---- */

/* One line: "ready", or "failed WHY". */
static void on_ready(void *context, uint32_t events)
{
    struct attached *one = context;
    char line[ATTACHING_WHY_MAX + 16];
    ssize_t n = read(one->ready, line, sizeof(line) - 1);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    line[n > 0 ? n : 0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    if (strncmp(line, "failed ", 7) == 0) {
        fail(one, line + 7);
    } else if (strcmp(line, "ready") != 0) {
        fail(one, "memoir-observe ended: its messages are in memoird's log");
    } else {
        ready_close(one);
        if (!link_open(one))
            fail(one, "memoir-observe does not answer");
        else
            log_info("attached to process %d", (int)one->pid);
    }
}

static int spawn(struct attaching *a, struct attached *one, int ready)
{
    const struct daemon *daemon = a->daemon;
    const char *dir = daemon->config.dir[0] ? daemon->config.dir : daemon->own_root;
    char pid[16], uid[16], linger[16], socket[TRACE_ASK_PATH_MAX], ready_fd[16];
    snprintf(pid, sizeof(pid), "%d", (int)one->pid);
    snprintf(uid, sizeof(uid), "%u", one->uid);
    snprintf(linger, sizeof(linger), "%d", ATTACHING_LINGER_S);
    snprintf(ready_fd, sizeof(ready_fd), "%d", READY_FD);
    socket_of(one, socket);
    const char *arguments[20] = {"memoir-observe", "--heap",   "--pid",       pid,       "--socket",
                                 socket,           "--linger", linger,        "--ready", ready_fd,
                                 "--for",          uid,        "--keep-ended"};
    size_t n = 13;
    if (one->children) {
        arguments[n++] = "--children";
        arguments[n++] = one->uid ? CHILDREN_USER : CHILDREN_ROOT;
    }
    if (dir) {
        arguments[n++] = "--dir";
        arguments[n++] = dir;
    }
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    helper_attributes_init(&attributes); /* Ctrl-C is memoird's */
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ready, READY_FD);
    int r = posix_spawn(&one->child, a->program, &actions, &attributes, (char *const *)arguments,
                        environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return -r;
}

static int start(struct attaching *a, struct attached *one)
{
    int ready[2];
    int r = trace_ask_dir_make();
    if (r < 0)
        return r;
    if (pipe2(ready, O_CLOEXEC | O_NONBLOCK) < 0)
        return -errno;
    r = spawn(a, one, ready[1]);
    close(ready[1]);
    if (r < 0) {
        close(ready[0]);
        return r;
    }
    one->ready = ready[0];
    r = loop_add_fd(a->daemon->loop, one->ready, EPOLLIN, on_ready, one, &one->ready_source);
    if (r < 0)
        kill(one->child, SIGTERM);
    return r;
}

/* A place for one more. NULL: too many. */
static struct attached *place(struct attaching *a, uint32_t uid)
{
    struct attached *free_one = NULL;
    size_t own = 0;
    for (size_t i = 0; i < ATTACHING_MAX; i++) {
        struct attached *one = &a->all[i];
        if (!one->pid || one->state == ATTACHING_FAILED || one->state == ATTACHING_ENDED)
            free_one = one;
        else if (accountable_uid(one->uid) == accountable_uid(uid))
            own++;
    }
    if (!free_one || (uid != 0 && own >= ATTACHING_USER_MAX))
        return NULL;
    forget(free_one);
    return free_one;
}

int attaching_begin(struct attaching *a, pid_t pid, uint32_t uid, bool children)
{
    struct attached *one = find(a, pid);
    if (!a || a->why_not)
        return -ENOTSUP;
    if (one && one->state != ATTACHING_FAILED && one->state != ATTACHING_ENDED)
        return 0;
    one = one ? one : place(a, uid);
    if (!one)
        return -EUSERS;
    forget(one);
    one->pid = pid;
    one->uid = uid;
    one->children = children;
    one->since_ns = clock_monotonic_ns();
    if (link_open(one)) /* `memoir attach` has begun it */
        return 0;
    char others[TRACE_ASK_PATH_MAX];
    if (trace_ask_heap_find(pid, NULL, others)) { /* a second one would slow it twice as much */
        fail(one, "another memoird or 'memoir attach' has attached to it, with another directory");
        return 0;
    }
    one->state = ATTACHING_STARTING;
    int r = start(a, one);
    if (r < 0)
        forget(one);
    return r;
}

/* Files of the process may be such that reading them never ends. */
static void start_limit(struct attached *one)
{
    if (one->state != ATTACHING_STARTING ||
        clock_monotonic_ns() - one->since_ns <= ATTACHING_START_S * NS_PER_S)
        return;
    kill(one->child, SIGKILL);
    fail(one, "memoir-observe was not ready in time");
}

enum attaching_state attaching_state(struct attaching *a, pid_t pid,
                                     char why[static ATTACHING_WHY_MAX])
{
    struct attached *one = find(a, pid);
    if (!one)
        return ATTACHING_NONE;
    start_limit(one);
    enum attaching_state state = one->state;
    if (state == ATTACHING_FAILED || state == ATTACHING_ENDED) {
        snprintf(why, ATTACHING_WHY_MAX, "%s", one->why);
        forget(one);
    }
    return state;
}

int attaching_end(struct attaching *a, pid_t pid)
{
    struct attached *one = find(a, pid);
    if (one && one->ending)
        return 0;
    if (one && one->state == ATTACHING_STARTING) {
        kill(one->child, SIGTERM);
        forget(one);
        return -ESRCH;
    }
    if (!one || one->link < 0) { /* the command has begun it, a moment ago */
        one = one ? one : place(a, 0);
        if (!one)
            return -EUSERS;
        one->pid = pid;
        if (!link_open(one)) {
            remains_remove(one);
            forget(one);
            return -ESRCH;
        }
    }
    one->ending = true;
    return send(one->link, "stop\n", 5, MSG_NOSIGNAL | MSG_DONTWAIT) == 5 ? 0 : -errno;
}

/* ---- life ---- */

/* The user that an observer works for, as it was started: memoird itself may have been another one then. The kernel tells
 * which process listens there; only root's processes and our own do (trace_ask_open()). */
static uint32_t observer_user(int link)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    char path[32];
    MEMOIR_CLEANUP(buffer_release)
    struct buffer command = BUFFER_INIT(COMMAND_MAX);
    if (getsockopt(link, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return 0;
    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)peer.pid);
    if (fs_read_file(path, &command) < 0)
        return 0;
    for (size_t at = 0; at < command.len; at += strlen(command.data + at) + 1) {
        const char *next = command.data + at + strlen(command.data + at) + 1;
        if (strcmp(command.data + at, "--for") == 0 && next < command.data + command.len)
            return (uint32_t)strtoul(next, NULL, 10);
    }
    return 0; /* root's command started it */
}

/* Has its book changed? */
static void figures_look(struct attached *one, uint64_t now_ns)
{
    const struct ledger_book *book = one->state == ATTACHING_ON ? book_of(one) : NULL;
    const struct ledger_process *p = book ? book->process : NULL;
    for (size_t i = 0; p && i < p->n_accounts; i++) {
        const struct ledger_account *a = &p->accounts[i];
        if (a->space != MEMOIR_SPACE_HEAP || a->source != BOOK_SOURCE_ATTACH ||
            a->totals.alloc_blocks == one->counted)
            continue;
        one->counted = a->totals.alloc_blocks;
        one->figures_ns = now_ns;
    }
}

uint64_t attaching_figures_ns(struct attaching *a, pid_t pid)
{
    const struct attached *one = find(a, pid);
    return one ? one->figures_ns : 0;
}

/* Those that a memoird before us, or the command, has begun. */
static void adopt(void *context)
{
    struct attaching *a = context;
    DIR *dir = opendir(TRACE_ASK_DIR);
    children_reap(a);
    strays_forget(a);
    for (size_t i = 0; i < ATTACHING_MAX; i++) {
        start_limit(&a->all[i]); /* whether or not a client still asks */
        figures_look(&a->all[i], clock_monotonic_ns());
    }
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        pid_t pid = trace_ask_heap_pid(entry->d_name, a->daemon->config.dir);
        if (!pid || find(a, pid))
            continue;
        struct attached *one = place(a, 0);
        if (!one)
            break;
        one->pid = pid;
        if (link_open(one))
            one->uid = observer_user(one->link);
        else
            forget(one);
    }
    if (dir)
        closedir(dir);
}

int attaching_new(struct daemon *daemon, struct attaching **ret_attaching)
{
    struct attaching *a = calloc(1, sizeof(*a));
    if (!a)
        return -ENOMEM;
    a->daemon = daemon;
    for (size_t i = 0; i < ATTACHING_MAX; i++)
        a->all[i] = (struct attached){.attaching = a, .ready = -1, .link = -1};
    if (daemon->config.trace == CONFIG_AUTO_NO)
        a->why_not = "tracing is switched off in the configuration";
    else if (geteuid() != 0)
        a->why_not = "memoird does not run as root";
    else if (!tracing_program_find(a->program, sizeof(a->program)))
        a->why_not = "memoir-observe is not installed";
    *ret_attaching = a;
    if (a->why_not)
        return 0;
    int r = loop_add_timer(daemon->loop, adopt, a, &a->timer);
    if (r == 0)
        loop_timer_set(a->timer, 1, ATTACHING_LOOK_S * NS_PER_S);
    return r;
}

void attaching_free(struct attaching *a)
{
    for (size_t i = 0; a && i < ATTACHING_MAX; i++)
        forget(&a->all[i]);
    if (a)
        loop_source_free(a->timer);
    free(a);
}

const char *attaching_why_not(const struct attaching *a)
{
    return a ? a->why_not : "memoird is out of memory";
}

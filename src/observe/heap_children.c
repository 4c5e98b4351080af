/* Children of an attached process (--children).
 *
 * Each child that the process forks gets an observer of its own, as if it had been attached to: its book counts what it allocates
 * from then on, and what it inherited is older than the attach. A child is attached once it has lived for CHILD_SETTLE_MS, so that a
 * program that forks a hundred times a second is not slowed down by a hundred observers, and only while it runs the same
 * program: what it executes is another one. The number of children is limited, and that of a child's children to a quarter of it, since each
 * observer takes memory of the kernel, and who forks may be hostile. Detaching from the process detaches from its children, too; if the process ends,
 * their observers go on by themselves. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/helper.h"
#include "base/log.h"
#include "observe/heap_internal.h"

enum {
    CHILDREN_QUARTER = 4,
    CHILD_SETTLE_MS = 300,
    STOP_WAIT_MS = 5000,
    STOP_POLL_MS = 10,
    NUMBER_MAX = 16
};

void heap_children_forked(struct heap *h, pid_t pid)
{
    struct heap_children *c = &h->children;
    for (size_t i = 0; i < h->options->children && i < HEAP_CHILDREN_MAX; i++) {
        struct heap_child *child = &c->all[i];
        if (child->pid)
            continue;
        *child = (struct heap_child){.pid = pid, .forked_ns = clock_monotonic_ns()};
        return;
    }
    c->missed++;
}

/* Does it still run the program of its parent? */
static bool same_program(pid_t parent, pid_t child)
{
    char path[64];
    struct stat own, other;
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)parent);
    if (stat(path, &own) < 0)
        return false;
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)child);
    return stat(path, &other) == 0 && own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

struct words {
    char numbers[8][NUMBER_MAX];
    size_t n_numbers;
    const char *all[32];
    size_t n;
};

static void word_add(struct words *w, const char *word)
{
    if (w->n + 1 < sizeof(w->all) / sizeof(w->all[0]))
        w->all[w->n++] = word;
}

static void number_add(struct words *w, const char *option, unsigned long value)
{
    char *text = w->numbers[w->n_numbers++];
    snprintf(text, NUMBER_MAX, "%lu", value);
    word_add(w, option);
    word_add(w, text);
}

/* Beside the socket of the parent's, by the name that every such observer has: "heap-PID" and what follows it there. */
static bool socket_name(const struct heap *h, pid_t pid, char socket[static 108])
{
    char parent[108];
    if (!h->options->socket)
        return false;
    snprintf(parent, sizeof(parent), "%s", h->options->socket);
    int of = 0, end = 0;
    const char *slash = strrchr(h->options->socket, '/');
    const char *name = slash ? slash + 1 : h->options->socket;
    bool usual = sscanf(name, "heap-%d%n", &of, &end) == 1 && end > 0;
    return snprintf(socket, 108, "%s/heap-%d%s", dirname(parent), (int)pid,
                    usual ? name + end : ".sock") < 108;
}

static int observer_spawn(const struct heap *h, struct heap_child *child)
{
    const struct heap_options *o = h->options;
    char socket[108];
    struct words w = {0};
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t files;
    word_add(&w, "memoir-observe");
    word_add(&w, "--heap");
    if (o->children / CHILDREN_QUARTER)
        number_add(&w, "--children", o->children / CHILDREN_QUARTER);
    number_add(&w, "--pid", (unsigned long)child->pid);
    number_add(&w, "--for", o->uid);
    number_add(&w, "--linger", o->linger_s);
    number_add(&w, "--blocks-max", o->blocks_max);
    number_add(&w, "--sample-bytes", o->sample_bytes);
    number_add(&w, "--budget", o->budget);
    if (o->keep_ended)
        word_add(&w, "--keep-ended");
    if (o->two_links)
        word_add(&w, "--two-links");
    if (o->dir) {
        word_add(&w, "--dir");
        word_add(&w, o->dir);
    }
    if (socket_name(h, child->pid, socket)) {
        word_add(&w, "--socket");
        word_add(&w, socket);
    }
    helper_attributes_init(&attributes);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addclosefrom_np(&files, 3);
    int r = posix_spawn(&child->observer, "/proc/self/exe", &files, &attributes,
                        (char *const *)w.all, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    return -r;
}

static void child_look(struct heap *h, struct heap_child *child, uint64_t now)
{
    if (child->observer) {
        /* It ended, or was refused: its log says why. Its PID may be another process's from now on. */
        if (waitpid(child->observer, NULL, WNOHANG) != 0)
            *child = (struct heap_child){0};
        return;
    }
    if (now - child->forked_ns < CHILD_SETTLE_MS * NS_PER_MS)
        return;
    if (!same_program(h->options->pid, child->pid)) {
        child->pid = 0;
        return;
    }
    int r = observer_spawn(h, child);
    if (r == 0)
        return;
    log_error("cannot follow child %d of process %d: %s", (int)child->pid, (int)h->options->pid,
              strerror(-r));
    h->children.missed++;
    child->pid = 0;
}

void heap_children_look(struct heap *h)
{
    uint64_t now = clock_monotonic_ns();
    for (size_t i = 0; i < HEAP_CHILDREN_MAX; i++)
        if (h->children.all[i].pid)
            child_look(h, &h->children.all[i], now);
}

void heap_children_stop(struct heap *h)
{
    uint64_t end = clock_monotonic_ns() + STOP_WAIT_MS * NS_PER_MS;
    struct heap_child *all = h->children.all;
    for (size_t i = 0; i < HEAP_CHILDREN_MAX; i++)
        if (all[i].observer)
            kill(all[i].observer, SIGTERM);
    for (size_t i = 0; i < HEAP_CHILDREN_MAX; i++)
        while (all[i].observer && waitpid(all[i].observer, NULL, WNOHANG) == 0 &&
               clock_monotonic_ns() < end)
            nanosleep(&(struct timespec){.tv_nsec = STOP_POLL_MS * (long)NS_PER_MS}, NULL);
}

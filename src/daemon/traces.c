/* Questions to the observer. See traces.h. */
#include "daemon/traces.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/asking.h"
#include "daemon/daemon.h"
#include "daemon/loop.h"
#include "daemon/symbol_pool.h"
#include "site/symbols.h"
#include "trace/dump.h"

struct traces {
    struct daemon *daemon;
    struct chores *chores;
    struct loop_source *sweeper;

    struct symbol_pool *symbols;

    /* The connection of the question at hand, for traces_stop(). */
    pthread_mutex_t link_lock;
    int fd; /* -1: none */
    bool stopping;

    /* What the observer said last. Held while it is asked: one question at a time. */
    pthread_mutex_t lock;
    struct traces_dump *kept[TRACES_KEPT]; /* NULL: none */
    struct buffer list;
    uint64_t list_ns; /* when it was taken; 0: never */
};

const char *traces_error(int error)
{
    switch (error) {
    case -ENOTCONN:
        return "CUDA programs are not traced at the moment: the observer does not run";
    case -ETIMEDOUT:
        return "the observer does not answer";
    case -ESRCH:
        return "the process is not traced: it has not used a CUDA driver since tracing began";
    case -EPERM:
        return "only root may do that: the process has other rights than its user (set-uid, "
               "set-gid, capabilities), or cannot be dumped";
    case -E2BIG:
        return "the trace is too large for memoird: use 'memoir trace dump' as root";
    case -ENOMEM:
        return "memoird is out of memory";
    default:
        return "the observer's answer cannot be read";
    }
}

/* ---- asking ---- */

static int link_open(struct traces *t, const char *path)
{
    if (!path[0])
        return -ENOTCONN;
    int fd = trace_ask_open(path);
    if (fd < 0)
        return fd == -EAGAIN ? -ETIMEDOUT : -ENOTCONN;
    pthread_mutex_lock(&t->link_lock);
    bool stopping = t->stopping;
    if (!stopping)
        t->fd = fd;
    pthread_mutex_unlock(&t->link_lock);
    if (!stopping)
        return 0;
    close(fd);
    return -ENOTCONN;
}

static void link_close(struct traces *t)
{
    pthread_mutex_lock(&t->link_lock);
    closep(&t->fd);
    t->fd = -1;
    pthread_mutex_unlock(&t->link_lock);
}

static int ask(struct traces *t, const char *path, const char *request, struct buffer *out)
{
    char why[TRACE_ASK_WHY_MAX] = "";
    int r = link_open(t, path);
    if (r < 0)
        return r;
    r = trace_ask_until(t->fd, request, clock_monotonic_ns() + TRACES_WAIT_MS * NS_PER_MS, out,
                        why);
    link_close(t);
    switch (r) {
    case -EREMOTEIO:
        return strstr(why, "no such process") ? -ESRCH
               : strstr(why, "not allowed")   ? -EPERM
                                              : -EBADMSG;
    case -ECONNRESET:
    case -EPIPE:
        return -ENOTCONN;
    case -ENOBUFS:
        return -E2BIG;
    default:
        return r;
    }
}

/* The lock is held. */
static int switch_to(struct traces *t, const char *socket, pid_t pid, bool on,
                     const struct asking_viewer *viewer)
{
    char request[48], user[16] = "";
    t->list_ns = 0; /* the list says otherwise now */
    if (on) {
        snprintf(request, sizeof(request), "trace %d", (int)pid);
        int r = ask(t, socket, request, NULL);
        if (r < 0)
            return r;
    }
    if (!viewer->sees_all)
        snprintf(user, sizeof(user), " %u", viewer->uid);
    snprintf(request, sizeof(request), "%s %d%s", on ? "on" : "off", (int)pid, user);
    int r = ask(t, socket, request, NULL);
    return on && r == -ESRCH ? 0 : r; /* it has called nothing yet, so it is not off either */
}

int traces_switch(struct traces *t, const char *socket, pid_t pid, bool on,
                  const struct asking_viewer *viewer)
{
    pthread_mutex_lock(&t->lock);
    int r = switch_to(t, socket, pid, on, viewer);
    pthread_mutex_unlock(&t->lock);
    return r;
}

/* ---- dumps ---- */

void traces_dump_unref(struct traces_dump **dump)
{
    struct traces_dump *d = *dump;
    *dump = NULL;
    if (!d || atomic_fetch_sub(&d->refs, 1) > 1)
        return;
    buffer_release(&d->bytes);
    trace_history_free(d->history);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

static bool is_fresh(uint64_t taken_ns, uint64_t now_ns)
{
    return taken_ns && now_ns - taken_ns < TRACES_FRESH_MS * NS_PER_MS;
}

static int dump_load(struct traces *t, const char *socket, pid_t pid, struct traces_dump *dump)
{
    char request[32];
    snprintf(request, sizeof(request), "dump %d", (int)pid);
    int r = ask(t, socket, request, &dump->bytes);
    if (r < 0)
        return r;
    if (trace_dump_plain_bytes(dump->bytes.data, dump->bytes.len) > TRACES_PLAIN_MAX)
        return -E2BIG;
    r = trace_dump_decode(dump->bytes.data, dump->bytes.len, &dump->history);
    if (r < 0)
        return r == -ENOMEM || r == -E2BIG ? r : -EBADMSG;
    dump->identity = trace_history_identity(dump->history);
    dump->pid = pid;
    dump->taken_ns = clock_monotonic_ns();
    return dump->identity.pid == pid ? 0 : -EBADMSG;
}

static int dump_take(struct traces *t, const char *socket, pid_t pid, struct traces_dump **ret_dump)
{
    struct traces_dump *dump = calloc(1, sizeof(*dump));
    if (!dump)
        return -ENOMEM;
    atomic_init(&dump->refs, 1);
    pthread_mutex_init(&dump->lock, NULL);
    buffer_init(&dump->bytes, TRACES_DUMP_MAX);
    int r = dump_load(t, socket, pid, dump);
    if (r < 0)
        traces_dump_unref(&dump);
    else
        *ret_dump = dump;
    return r;
}

/* The place of a fresh dump of that process, or else one that is empty or has the oldest. The lock is held. */
static struct traces_dump **place_of(struct traces *t, pid_t pid, uint64_t now)
{
    struct traces_dump **place = &t->kept[0];
    for (size_t i = 0; i < TRACES_KEPT; i++) {
        struct traces_dump **kept = &t->kept[i];
        if (*kept && !is_fresh((*kept)->taken_ns, now))
            traces_dump_unref(kept);
        if (*kept && (*kept)->pid == pid)
            return kept;
        if (*place && (!*kept || (*kept)->taken_ns < (*place)->taken_ns))
            place = kept;
    }
    return place;
}

int traces_dump(struct traces *t, const char *socket, pid_t pid, struct traces_dump **ret_dump)
{
    int r = 0;
    pthread_mutex_lock(&t->lock);
    struct traces_dump **place = place_of(t, pid, clock_monotonic_ns());
    if (!*place || (*place)->pid != pid) {
        traces_dump_unref(place);
        r = dump_take(t, socket, pid, place);
    }
    if (r == 0) {
        atomic_fetch_add(&(*place)->refs, 1);
        *ret_dump = *place;
    }
    pthread_mutex_unlock(&t->lock);
    return r;
}

/* ---- the list ---- */

/* The lock is held. */
static int list_take(struct traces *t, const char *socket)
{
    if (is_fresh(t->list_ns, clock_monotonic_ns()))
        return 0;
    t->list_ns = 0;
    buffer_reset(&t->list);
    int r = ask(t, socket, "list", &t->list);
    if (r == 0)
        t->list_ns = clock_monotonic_ns();
    return r;
}

int traces_list(struct traces *t, const char *socket, const struct asking_viewer *viewer,
                struct traces_row **ret_rows, size_t *ret_n)
{
    pthread_mutex_lock(&t->lock);
    int r = list_take(t, socket);
    if (r == 0)
        r = traces_rows(&t->list, viewer, ret_rows, ret_n);
    pthread_mutex_unlock(&t->lock);
    return r;
}

/* ---- names ---- */

struct symbolizer *traces_symbols(struct traces *t, uint32_t uid)
{
    return symbol_pool_get(t->symbols, uid);
}

void traces_rest(struct traces *t)
{
    if (t)
        symbol_pool_rest(t->symbols);
}

/* ---- life ---- */

static void sweep(void *context)
{
    struct traces *t = context;
    uint64_t now = clock_monotonic_ns();
    pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < TRACES_KEPT; i++)
        if (t->kept[i] && !is_fresh(t->kept[i]->taken_ns, now))
            traces_dump_unref(&t->kept[i]);
    if (!is_fresh(t->list_ns, now)) {
        t->list_ns = 0;
        buffer_release(&t->list);
    }
    pthread_mutex_unlock(&t->lock);
}

static void sweep_drop(void *context)
{
}

static void on_sweeper(void *context)
{
    struct traces *t = context;
    if (t->chores)
        (void)chores_add(t->chores, CHORES_ROOT, sweep, sweep_drop, t);
}

int traces_add(struct traces *t, uint32_t user, chore_fn *run, chore_fn *drop, void *context)
{
    int r = t->chores ? chores_add(t->chores, user, run, drop, context) : -EBUSY;
    if (r == 0)
        (void)loop_timer_set(t->sweeper, TRACES_IDLE_S * NS_PER_S, 0);
    return r;
}

int traces_new(struct daemon *daemon, struct traces **ret_traces)
{
    struct traces *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    t->daemon = daemon;
    t->fd = -1;
    pthread_mutex_init(&t->link_lock, NULL);
    pthread_mutex_init(&t->lock, NULL);
    buffer_init(&t->list, TRACES_LIST_MAX);
    int r = symbol_pool_new(daemon, TRACES_SYMBOLS_MS, TRACES_SYMBOLS_BYTES, &t->symbols);
    if (r >= 0)
        r = loop_add_timer(daemon->loop, on_sweeper, t, &t->sweeper);
    if (r >= 0)
        r = chores_new("memoird-traces", TRACES_LANES, &t->chores);
    if (r < 0) {
        traces_free(t);
        return r;
    }
    *ret_traces = t;
    return 0;
}

void traces_stop(struct traces *t)
{
    if (!t || !t->chores)
        return;
    pthread_mutex_lock(&t->link_lock);
    t->stopping = true;
    if (t->fd >= 0)
        shutdown(t->fd, SHUT_RDWR); /* ends the wait for its answer */
    pthread_mutex_unlock(&t->link_lock);
    chores_free(t->chores);
    t->chores = NULL;
}

void traces_free(struct traces *t)
{
    if (!t)
        return;
    traces_stop(t);
    loop_source_free(t->sweeper);
    for (size_t i = 0; i < TRACES_KEPT; i++)
        traces_dump_unref(&t->kept[i]);
    buffer_release(&t->list);
    symbol_pool_free(t->symbols);
    pthread_mutex_destroy(&t->link_lock);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

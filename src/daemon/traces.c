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
#include "base/log.h"
#include "daemon/asking.h"
#include "daemon/daemon.h"
#include "daemon/loop.h"
#include "daemon/symbol_hosting.h"
#include "site/symbols.h"
#include "trace/dump.h"

struct traces {
    struct daemon *daemon;
    struct chores *chores;
    struct loop_source *sweeper;

    /* The connection of the question at hand, for traces_stop(). */
    pthread_mutex_t lock;
    int fd; /* -1: none */
    bool stopping;

    /* The thread's own. */
    struct traces_dump kept[TRACES_KEPT]; /* pid 0: none */
    struct buffer list;
    uint64_t list_ns; /* when it was taken; 0: never */
    struct symbolizer *symbols;
    struct symbol_host symbol_host; /* its */
    bool symbols_tried;
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
    pthread_mutex_lock(&t->lock);
    bool stopping = t->stopping;
    if (!stopping)
        t->fd = fd;
    pthread_mutex_unlock(&t->lock);
    if (!stopping)
        return 0;
    close(fd);
    return -ENOTCONN;
}

static void link_close(struct traces *t)
{
    pthread_mutex_lock(&t->lock);
    closep(&t->fd);
    t->fd = -1;
    pthread_mutex_unlock(&t->lock);
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
        return strstr(why, "no such process") ? -ESRCH : -EBADMSG;
    case -ECONNRESET:
    case -EPIPE:
        return -ENOTCONN;
    case -ENOBUFS:
        return -E2BIG;
    default:
        return r;
    }
}

int traces_switch(struct traces *t, const char *socket, pid_t pid, bool on)
{
    char request[32];
    t->list_ns = 0; /* the list says otherwise now */
    if (on) {
        snprintf(request, sizeof(request), "trace %d", (int)pid);
        int r = ask(t, socket, request, NULL);
        if (r < 0)
            return r;
    }
    snprintf(request, sizeof(request), "%s %d", on ? "on" : "off", (int)pid);
    int r = ask(t, socket, request, NULL);
    return on && r == -ESRCH ? 0 : r; /* it has called nothing yet, so it is not off either */
}

/* ---- dumps ---- */

static void dump_release(struct traces_dump *dump)
{
    if (dump->bytes)
        buffer_release(dump->bytes);
    free(dump->bytes);
    trace_history_free(dump->history);
    *dump = (struct traces_dump){0};
}

static bool is_fresh(uint64_t taken_ns, uint64_t now_ns)
{
    return taken_ns && now_ns - taken_ns < TRACES_FRESH_MS * NS_PER_MS;
}

static int dump_take(struct traces *t, const char *socket, pid_t pid, struct traces_dump *dump)
{
    char request[32];
    snprintf(request, sizeof(request), "dump %d", (int)pid);
    dump->bytes = malloc(sizeof(*dump->bytes));
    if (!dump->bytes)
        return -ENOMEM;
    buffer_init(dump->bytes, TRACES_DUMP_MAX);
    int r = ask(t, socket, request, dump->bytes);
    if (r < 0)
        return r;
    if (trace_dump_plain_bytes(dump->bytes->data, dump->bytes->len) > TRACES_PLAIN_MAX)
        return -E2BIG;
    r = trace_dump_decode(dump->bytes->data, dump->bytes->len, &dump->history);
    if (r < 0)
        return r == -ENOMEM || r == -E2BIG ? r : -EBADMSG;
    dump->identity = trace_history_identity(dump->history);
    dump->pid = pid;
    dump->taken_ns = clock_monotonic_ns();
    return dump->identity.pid == pid ? 0 : -EBADMSG;
}

int traces_dump(struct traces *t, const char *socket, pid_t pid,
                const struct traces_dump **ret_dump)
{
    uint64_t now = clock_monotonic_ns();
    struct traces_dump *place = &t->kept[0];
    for (size_t i = 0; i < TRACES_KEPT; i++) {
        struct traces_dump *kept = &t->kept[i];
        if (kept->pid == pid && is_fresh(kept->taken_ns, now)) {
            *ret_dump = kept;
            return 0;
        }
        if (!is_fresh(kept->taken_ns, now))
            dump_release(kept);
        if (kept->taken_ns < place->taken_ns)
            place = kept;
    }
    dump_release(place);
    int r = dump_take(t, socket, pid, place);
    if (r < 0) {
        dump_release(place);
        return r;
    }
    *ret_dump = place;
    return 0;
}

int traces_list(struct traces *t, const char *socket, const struct buffer **ret_json)
{
    if (!is_fresh(t->list_ns, clock_monotonic_ns())) {
        t->list_ns = 0;
        buffer_reset(&t->list);
        int r = ask(t, socket, "list", &t->list);
        if (r < 0)
            return r;
        t->list_ns = clock_monotonic_ns();
    }
    *ret_json = &t->list;
    return 0;
}

static struct symbolizer *symbols_get(struct traces *t)
{
    struct symbolizer_options options = {
        .timeout_ms = TRACES_SYMBOLS_MS,
        .results_bytes_max = TRACES_SYMBOLS_BYTES,
        .host = geteuid() == 0 ? &t->symbol_host : NULL,
    };
    if (t->symbols_tried)
        return t->symbols;
    t->symbols_tried = true;
    t->symbol_host = symbol_hosting(t->daemon);
    int r = symbolizer_new(&options, &t->symbols);
    if (r < 0) {
        t->symbols = NULL;
        log_warn(
            "cannot start the helper that reads debug information: %s, call sites of traces stay "
            "without names",
            strerror(-r));
    }
    return t->symbols;
}

struct symbolizer *traces_symbols(struct traces *t, uint32_t uid)
{
    struct symbolizer *symbols = symbols_get(t);
    if (symbols)
        symbolizer_act_as(symbols, uid);
    return symbols;
}

/* ---- life ---- */

static void sweep(void *context)
{
    struct traces *t = context;
    uint64_t now = clock_monotonic_ns();
    for (size_t i = 0; i < TRACES_KEPT; i++)
        if (!is_fresh(t->kept[i].taken_ns, now))
            dump_release(&t->kept[i]);
    if (!is_fresh(t->list_ns, now)) {
        t->list_ns = 0;
        buffer_release(&t->list);
    }
}

static void sweep_drop(void *context)
{
}

static void on_sweeper(void *context)
{
    struct traces *t = context;
    if (t->chores)
        (void)chores_add(t->chores, 0, sweep, sweep_drop, t);
}

int traces_add(struct traces *t, unsigned user, chore_fn *run, chore_fn *drop, void *context)
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
    pthread_mutex_init(&t->lock, NULL);
    buffer_init(&t->list, TRACES_LIST_MAX);
    int r = loop_add_timer(daemon->loop, on_sweeper, t, &t->sweeper);
    if (r >= 0)
        r = chores_new("memoird-traces", &t->chores);
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
    pthread_mutex_lock(&t->lock);
    t->stopping = true;
    if (t->fd >= 0)
        shutdown(t->fd, SHUT_RDWR); /* ends the wait for its answer */
    pthread_mutex_unlock(&t->lock);
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
        dump_release(&t->kept[i]);
    buffer_release(&t->list);
    symbolizer_free(t->symbols);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

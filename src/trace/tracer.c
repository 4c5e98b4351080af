/* Tracers: their life, and the traces that they keep. See <memoir/tracer.h>. */
#include "trace/tracer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "trace/tracer_public.h"

enum { READY_MS = 10000 };

int memoir_tracer_new(const struct memoir_tracer_options *options,
                      struct memoir_tracer **ret_tracer)
{
    struct memoir_tracer_options o;
    if (!ret_tracer || !public_take(&o, sizeof(o), options))
        return -EINVAL;
    if (o.target < MEMOIR_TRACER_SELF || o.target > MEMOIR_TRACER_INJECTED ||
        (o.target == MEMOIR_TRACER_PID && o.pid <= 0))
        return -EINVAL;
    struct memoir_tracer *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    t->options = o;
    t->stream_fd = t->stop_fd = -1;
    pthread_mutex_init(&t->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&t->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    if (o.observe) {
        t->options.observe = strdup(o.observe);
        if (!t->options.observe) {
            memoir_tracer_free(t);
            return -ENOMEM;
        }
    }
    *ret_tracer = t;
    return 0;
}

void memoir_tracer_free(struct memoir_tracer *t)
{
    if (!t)
        return;
    tracer_child_stop(t);
    for (size_t i = 0; i < t->n_traces; i++) {
        trace_history_free(t->traces[i]->history);
        free(t->traces[i]);
    }
    free(t->traces);
    free((char *)t->options.observe);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* ---- traces ---- */

/* Caller has the lock. */
static struct memoir_trace *find_locked(struct memoir_tracer *t, int pid)
{
    for (size_t i = t->n_traces; i-- > 0;)
        if (t->traces[i]->pid == pid && !t->traces[i]->retired)
            return t->traces[i];
    return NULL;
}

struct memoir_trace *tracer_trace_find(struct memoir_tracer *t, int pid)
{
    pthread_mutex_lock(&t->lock);
    struct memoir_trace *trace = find_locked(t, pid);
    pthread_mutex_unlock(&t->lock);
    return trace;
}

static struct memoir_trace *trace_new(const struct memoir_tracer *t,
                                      const struct trace_identity *identity)
{
    struct trace_limits limits = {.ended = t->options.ended_max, .moments = t->options.moments_max};
    struct memoir_trace *trace = calloc(1, sizeof(*trace));
    if (trace && trace_history_new(identity, &limits, &trace->history) == 0) {
        trace->pid = identity->pid;
        trace->start_ticks = identity->start_ticks;
        return trace;
    }
    free(trace);
    return NULL;
}

static bool room_for_trace(struct memoir_tracer *t)
{
    if (t->n_traces < t->cap_traces)
        return true;
    size_t cap = t->cap_traces ? 2 * t->cap_traces : 8;
    struct memoir_trace **traces =
        cap > TRACER_PROCESSES_MAX ? NULL : realloc(t->traces, cap * sizeof(*traces));
    if (!traces)
        return false;
    t->traces = traces;
    t->cap_traces = cap;
    return true;
}

struct memoir_trace *tracer_trace_for(struct memoir_tracer *t,
                                      const struct trace_identity *identity)
{
    pthread_mutex_lock(&t->lock);
    struct memoir_trace *trace = find_locked(t, identity->pid);
    if (trace && trace->start_ticks != identity->start_ticks) {
        trace->retired = true; /* the PID has been used again */
        trace = NULL;
    }
    if (!trace && room_for_trace(t)) {
        trace = trace_new(t, identity);
        if (trace)
            t->traces[t->n_traces++] = trace;
    }
    pthread_mutex_unlock(&t->lock);
    return trace;
}

struct memoir_trace *memoir_tracer_trace(struct memoir_tracer *t, int pid)
{
    struct memoir_trace *trace = NULL;
    pthread_mutex_lock(&t->lock);
    if (pid != 0)
        trace = find_locked(t, pid);
    for (size_t i = 0; pid == 0 && !trace && i < t->n_traces; i++)
        trace = t->traces[i]->retired ? NULL : t->traces[i];
    pthread_mutex_unlock(&t->lock);
    return trace;
}

size_t memoir_tracer_processes(struct memoir_tracer *t, int *pids, size_t n)
{
    size_t count = 0;
    pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < t->n_traces; i++)
        if (!t->traces[i]->retired) {
            if (count < n)
                pids[count] = t->traces[i]->pid;
            count++;
        }
    pthread_mutex_unlock(&t->lock);
    return count;
}

/* ---- states ---- */

void tracer_state_set(struct memoir_tracer *t, int state, int error, const char *reason)
{
    pthread_mutex_lock(&t->lock);
    /* The first thing that went wrong explains the others; a process that ended explains why its observer did. */
    if (!(state == MEMOIR_TRACER_FAILED &&
          (t->state == MEMOIR_TRACER_FAILED || t->state == MEMOIR_TRACER_ENDED))) {
        t->state = state;
        t->error = error;
        snprintf(t->reason, sizeof(t->reason), "%s", reason);
    }
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

/* Wait until the observer observes or says that it cannot. */
static int wait_ready(struct memoir_tracer *t)
{
    struct timespec until;
    int r = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t wait_ms = t->options.ready_ms ? t->options.ready_ms : READY_MS;
    uint64_t ns = (uint64_t)until.tv_nsec + wait_ms % 1000 * NS_PER_MS;
    until.tv_sec += (time_t)(wait_ms / 1000 + ns / NS_PER_S);
    until.tv_nsec = (long)(ns % NS_PER_S);
    pthread_mutex_lock(&t->lock);
    while (!t->ready && t->state == MEMOIR_TRACER_RUNNING && r == 0)
        r = pthread_cond_timedwait(&t->changed, &t->lock, &until);
    r = t->state == MEMOIR_TRACER_FAILED              ? -t->error
        : t->ready || t->state == MEMOIR_TRACER_ENDED ? 0
                                                      : -ETIMEDOUT;
    pthread_mutex_unlock(&t->lock);
    return r;
}

/* One start or stop at a time. False: another is under way. */
static bool busy_begin(struct memoir_tracer *t)
{
    pthread_mutex_lock(&t->lock);
    bool free_now = !t->busy;
    t->busy = true;
    pthread_mutex_unlock(&t->lock);
    return free_now;
}

static void busy_end(struct memoir_tracer *t)
{
    pthread_mutex_lock(&t->lock);
    t->busy = false;
    pthread_mutex_unlock(&t->lock);
}

static int state_now(struct memoir_tracer *t)
{
    pthread_mutex_lock(&t->lock);
    int state = t->state;
    pthread_mutex_unlock(&t->lock);
    return state;
}

static int start(struct memoir_tracer *t)
{
    if (state_now(t) == MEMOIR_TRACER_RUNNING)
        return -EALREADY;
    tracer_child_stop(t); /* what a failed run left */
    pthread_mutex_lock(&t->lock);
    t->ready = false;
    t->resumed = t->n_traces > 0;
    pthread_mutex_unlock(&t->lock);
    tracer_state_set(t, MEMOIR_TRACER_RUNNING, 0, "");
    if (t->options.target == MEMOIR_TRACER_INJECTED)
        return 0;
    int r = tracer_child_start(t);
    if (r == 0)
        r = wait_ready(t);
    if (r < 0) {
        tracer_child_stop(t);
        tracer_state_set(t, MEMOIR_TRACER_FAILED, -r,
                         r == -ETIMEDOUT ? "memoir-observe did not answer" : strerror(-r));
    }
    return r;
}

static int stop(struct memoir_tracer *t)
{
    int state = state_now(t);
    if (state == MEMOIR_TRACER_IDLE || state == MEMOIR_TRACER_STOPPED)
        return -EALREADY;
    tracer_child_stop(t);
    if (state == MEMOIR_TRACER_RUNNING)
        tracer_state_set(t, MEMOIR_TRACER_STOPPED, 0, "");
    return 0;
}

int memoir_tracer_start(struct memoir_tracer *t)
{
    if (!busy_begin(t))
        return -EBUSY;
    int r = start(t);
    busy_end(t);
    return r;
}

int memoir_tracer_stop(struct memoir_tracer *t)
{
    if (!busy_begin(t))
        return -EBUSY;
    int r = stop(t);
    busy_end(t);
    return r;
}

int memoir_tracer_restart(struct memoir_tracer *t)
{
    if (!busy_begin(t))
        return -EBUSY;
    stop(t);
    pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < t->n_traces; i++)
        t->traces[i]->retired = true;
    t->state = MEMOIR_TRACER_IDLE;
    pthread_mutex_unlock(&t->lock);
    int r = start(t);
    busy_end(t);
    return r;
}

int memoir_tracer_status(struct memoir_tracer *t, struct memoir_tracer_status *ret_status)
{
    struct memoir_tracer_status s = {.processes = memoir_tracer_processes(t, NULL, 0)};
    pthread_mutex_lock(&t->lock);
    s.state = t->state;
    s.error = t->error;
    s.events = t->events;
    s.observer_pid = t->child;
    memcpy(s.reason, t->reason, sizeof(s.reason));
    pthread_mutex_unlock(&t->lock);
    return public_give(ret_status, &s, sizeof(s));
}

/* ---- injected events ---- */

static bool event_of(const struct memoir_trace_event *from, struct trace_event *to)
{
    if (from->kind < TRACE_ALLOC || from->kind > TRACE_FOUND || from->direction < 0 ||
        from->direction >= TRACE_DIRECTIONS || from->space < 0 || from->space > UINT8_MAX ||
        from->detail < 0 || from->detail >= TRACE_SYSTEM_KINDS)
        return false;
    *to = (struct trace_event){
        .time_ns = from->time_ns ? from->time_ns : clock_monotonic_ns(),
        .address = from->address,
        .size = from->size,
        .source = from->source,
        .call = from->call,
        .context = from->context,
        .pid = from->pid,
        .tid = from->tid,
        .site = from->site,
        .kind = (uint16_t)from->kind,
        .result = from->result,
        .device = from->device,
        .flags = from->flags,
        .space = (uint8_t)from->space,
        .direction = (uint8_t)from->direction,
        .detail = (uint8_t)from->detail,
    };
    return true;
}

int memoir_tracer_inject(struct memoir_tracer *t, const struct memoir_trace_event *events, size_t n)
{
    if (t->options.target != MEMOIR_TRACER_INJECTED || (n > 0 && !public_size(events)))
        return -EINVAL;
    if (state_now(t) != MEMOIR_TRACER_RUNNING)
        return -ENOTCONN;
    int r = 0;
    for (size_t i = 0; i < n && r == 0; i++) {
        struct memoir_trace_event copy = {0};
        struct trace_event e;
        size_t size = public_size(events);
        memcpy(&copy, (const char *)events + i * size, size < sizeof(copy) ? size : sizeof(copy));
        struct trace_identity identity = {
            .pid = copy.pid, .start_ns = clock_monotonic_ns(), .start_real_ns = clock_real_ns()};
        struct memoir_trace *trace = event_of(&copy, &e) ? tracer_trace_for(t, &identity) : NULL;
        if (!trace) {
            r = event_of(&copy, &e) ? -ENOMEM : -EINVAL;
            break;
        }
        pthread_mutex_lock(&t->lock); /* one feeder at a time */
        trace_history_event(trace->history, &e);
        t->events++;
        pthread_mutex_unlock(&t->lock);
    }
    return r;
}

/* CUDA programs over HTTP: which are traced, and the trace of one. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/api_internal.h"
#include "daemon/api_trace_json.h"
#include "daemon/daemon.h"
#include "daemon/driver_facts.h"
#include "daemon/traces.h"
#include "daemon/tracing.h"
#include "ledger/driver.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"
#include "query/document.h"

/* What was asked for; read on the loop's thread. */
struct wish {
    pid_t pid;
    enum trace_by by;
    size_t k;
    bool on; /* of the switch */
    struct asking_viewer viewer;
    char socket[TRACES_SOCKET_MAX];
    enum tracing_state state;
    struct ledger_driver_use driver;
    char why[256]; /* why it is not traced, where it is not */
};

static void wish_release(struct job *job)
{
    free(job->more);
}

/* NULL: the call has its problem. */
static struct wish *wish_make(struct http_call *call, const struct daemon *daemon)
{
    struct wish *wish = calloc(1, sizeof(*wish));
    if (!wish) {
        api_failed(call, "there is no room for the question", -ENOMEM);
        return NULL;
    }
    wish->k = TRACE_JSON_K;
    wish->viewer = api_viewer(call);
    wish->state = tracing_state(daemon->tracing);
    snprintf(wish->socket, sizeof(wish->socket), "%s", tracing_socket(daemon->tracing));
    snprintf(wish->why, sizeof(wish->why), "%s", tracing_why(daemon->tracing));
    return wish;
}

static void refuse(struct http_call *call, const struct wish *wish, int error)
{
    switch (error) {
    case -ENOTCONN:
        http_problem(call, 503, "not-tracing", "%s%s%s", traces_error(error),
                     wish->why[0] ? ": " : "", wish->why);
        break;
    case -ETIMEDOUT:
        http_problem(call, 504, "no-answer", "%s", traces_error(error));
        break;
    case -ESRCH:
        http_problem(call, 404, "not-traced", "%s", traces_error(error));
        break;
    case -EPERM:
        http_problem(call, 403, "not-yours", "%s", traces_error(error));
        break;
    case -E2BIG:
        http_problem(call, 500, "too-large", "%s", traces_error(error));
        break;
    default:
        api_failed(call, traces_error(error), error);
    }
}

/* ---- all ---- */

static void row_json(const struct traces_row *row, struct json *json)
{
    json_object_begin(json);
    json_field_i64(json, "pid", row->pid);
    json_field_u64(json, "uid", row->uid);
    json_field_string(json, "program", row->program);
    traces_row_json(row, json);
    json_object_end(json);
}

/* Where nothing is traced there are no rows, and the answer says why: that is no error. */
static void run_traced(struct job *job)
{
    struct wish *wish = job->more;
    MEMOIR_CLEANUP(freep)
    struct traces_row *rows = NULL;
    size_t n = 0;
    int r = traces_list(job->api->daemon->traces, wish->socket, &wish->viewer, &rows, &n);
    if (r < 0 && r != -ENOTCONN) {
        refuse(job->call, wish, r);
        return;
    }
    const char *state = r == 0                           ? "running"
                        : wish->state == TRACING_RUNNING ? "starting" /* it has just ended */
                                                         : tracing_state_name(wish->state);
    struct json *json = http_json(job->call);
    api_json_begin(json, "memoir.traced/2");
    json_field_string(json, "state", state);
    json_field_string(json, "problem", wish->why);
    json_key(json, "processes");
    json_array_begin(json);
    for (size_t i = 0; i < n; i++)
        row_json(&rows[i], json);
    json_array_end(json);
    query_document_end(json);
}

void api_answer_traced(struct http_call *call, void *context)
{
    struct daemon *daemon = context;
    struct wish *wish = wish_make(call, daemon);
    if (wish)
        api_job_trace(call, daemon->api, run_traced, wish_release, wish);
}

/* ---- one ---- */

/* The dump, if the viewer may see it; else NULL, and the call has its problem. For traces_dump_unref(). */
static struct traces_dump *dump_of(struct job *job)
{
    const struct wish *wish = job->more;
    struct traces_dump *dump;
    int r = traces_dump(job->api->daemon->traces, wish->socket, wish->pid, &dump);
    if (r < 0) {
        refuse(job->call, wish, r);
        return NULL;
    }
    if (asking_may_see(&wish->viewer, dump->identity.uid))
        return dump;
    traces_dump_unref(&dump);
    http_problem(job->call, 403, "not-yours",
                 "process %d belongs to another user: only its user and root see its trace",
                 (int)wish->pid);
    return NULL;
}

static bool goes_on(void *context)
{
    return api_goes_on(0, 0, context);
}

/* What the driver's figure of the process has beyond blocks, as the observer knows it. */
static void rest_find(struct job *job, pid_t pid, struct trace_view *view)
{
    const struct wish *wish = job->more;
    MEMOIR_CLEANUP(freep)
    struct traces_row *rows = NULL;
    size_t n = 0;
    if (traces_list(job->api->daemon->traces, wish->socket, &wish->viewer, &rows, &n) < 0)
        return;
    for (size_t i = 0; i < n; i++)
        if (rows[i].pid == pid) {
            view->has_context = rows[i].has_context;
            view->has_before = rows[i].has_before;
            view->context_estimate = rows[i].estimate;
            view->context_bytes = rows[i].context_bytes;
            view->before_bytes = rows[i].before_bytes;
        }
}

static void run_trace(struct job *job)
{
    const struct wish *wish = job->more;
    MEMOIR_CLEANUP(traces_dump_unref)
    struct traces_dump *dump = dump_of(job);
    struct proc_stat stat;
    if (!dump)
        return;
    bool lives =
        proc_stat_read(dump->pid, &stat) == 0 && stat.start_ticks == dump->identity.start_ticks;
    char path[32], program[PATH_MAX] = "";
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)dump->pid);
    ssize_t len = lives ? readlink(path, program, sizeof(program) - 1) : -1;
    program[len > 0 ? len : 0] = '\0';
    struct trace_view view = {
        .history = dump->history,
        .identity = dump->identity,
        .names = {.symbols = traces_symbols(job->api->daemon->traces, dump->identity.uid),
                  .sites = trace_history_sites(dump->history),
                  .pid = lives ? dump->pid : 0,
                  .goes_on = goes_on,
                  .context = job},
        .by = wish->by,
        .k = wish->k,
        .now_ns = dump->taken_ns,
        .has_driver = lives && wish->driver.known && !wish->driver.partly,
        .driver_bytes = wish->driver.bytes,
        .program = program,
    };
    if (view.has_driver)
        rest_find(job, dump->pid, &view);
    struct json *json = http_json(job->call);
    api_json_begin(json, "memoir.trace/2");
    pthread_mutex_lock(&dump->lock);
    int r = trace_view_json(&view, json);
    pthread_mutex_unlock(&dump->lock);
    query_document_end(json);
    if (r < 0)
        api_failed(job->call, "the trace could not be told", r);
}

static void run_dump(struct job *job)
{
    MEMOIR_CLEANUP(traces_dump_unref)
    struct traces_dump *dump = dump_of(job);
    char name[64];
    if (!dump)
        return;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer copy = BUFFER_INIT(HTTP_ANSWER_MAX);
    buffer_append(&copy, dump->bytes.data, dump->bytes.len);
    snprintf(name, sizeof(name), "memoir-%d.trace", (int)dump->pid);
    http_body(job->call, "application/octet-stream", name, &copy);
}

static bool has_param(const struct http_call *call, const char *name)
{
    for (const struct http_param *p = http_route(call)->params; p->name; p++)
        if (strcmp(p->name, name) == 0)
            return true;
    return false;
}

/* Of a process with a book the owner is known here; the dump's own is looked at in any case. */
static void start(struct http_call *call, struct daemon *daemon, void (*run)(struct job *job))
{
    uint64_t number = 0;
    (void)http_number(call, "pid", &number);
    const struct ledger_process *p = ledger_process_find(daemon->ledger, (pid_t)number);
    if (p && !api_own_process(call, daemon))
        return;
    if (run == run_trace && !driver_facts_ready(daemon->driver)) {
        http_again(call);
        return;
    }
    struct wish *wish = wish_make(call, daemon);
    if (!wish)
        return;
    wish->pid = (pid_t)number;
    wish->driver = ledger_driver_use(daemon->ledger, wish->pid, NULL);
    if (has_param(call, "k")) {
        const char *by = http_argument(call, "by");
        uint64_t k = TRACE_JSON_K;
        (void)http_number(call, "k", &k);
        wish->k = (size_t)k;
        wish->by = by && strcmp(by, "count") == 0 ? TRACE_BY_COUNT : TRACE_BY_BYTES;
    }
    api_job_trace(call, daemon->api, run, wish_release, wish);
}

void api_answer_trace(struct http_call *call, void *context)
{
    start(call, context, run_trace);
}

void api_answer_trace_dump(struct http_call *call, void *context)
{
    start(call, context, run_dump);
}

/* ---- the switch ---- */

static void run_switch(struct job *job)
{
    const struct wish *wish = job->more;
    int r =
        traces_switch(job->api->daemon->traces, wish->socket, wish->pid, wish->on, &wish->viewer);
    if (r < 0) {
        refuse(job->call, wish, r);
        return;
    }
    struct json *json = http_json(job->call);
    json_object_begin(json);
    json_field_i64(json, "pid", wish->pid);
    json_field_string(json, "state", wish->on ? "on" : "off");
    json_object_end(json);
}

void api_answer_tracing(struct http_call *call, void *context)
{
    struct daemon *daemon = context;
    struct ledger_process *process;
    uint64_t number = 0;
    uint32_t uid;
    pid_t pid;
    bool on = false;
    (void)http_number(call, "pid", &number);
    if (!api_wish_on(call, &on, NULL))
        return;
    http_audit(call, "tracing of PID %llu %s", (unsigned long long)number, on ? "on" : "off");
    if (!api_own_pid(call, daemon, &pid, &uid, &process))
        return;
    struct wish *wish = wish_make(call, daemon);
    if (!wish)
        return;
    wish->pid = pid;
    wish->on = on;
    api_job_trace(call, daemon->api, run_switch, wish_release, wish);
}

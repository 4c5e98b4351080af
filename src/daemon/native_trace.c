/* {"trace":PID} and {"trace":"list"}: what the observer knows, for clients with rights.
 *
 * The observer may hang, so the thread of traces.h asks it, and the request's line waits at the connection meanwhile: it is
 * handed over again every few milliseconds, as a query is that waits for its turn. So answers keep their order and nothing has
 * to find the connection again. A dump follows its line as bytes, in pieces as the client takes them. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "daemon/api_internal.h"
#include "daemon/asking.h"
#include "daemon/daemon.h"
#include "daemon/native_internal.h"
#include "daemon/server.h"
#include "daemon/traces.h"
#include "daemon/tracing.h"
#include "ledger/ledger.h"

enum { LOOK_MS = 2, PIECE_MS = 1 };

/* Of the client and of the thread; the last of them frees it. */
struct native_trace {
    atomic_int owners;
    atomic_bool done; /* what follows is the thread's before, the client's after */
    struct traces *traces;
    struct asking_viewer viewer;
    pid_t pid; /* 0: the list */
    char socket[TRACES_SOCKET_MAX];
    int error;
    struct buffer bytes; /* the dump */
    struct traces_row *rows;
    size_t n_rows;

    /* The client's. */
    bool answering;
    size_t sent;
};

static void trace_unref(struct native_trace *t)
{
    if (atomic_fetch_sub(&t->owners, 1) > 1)
        return;
    buffer_release(&t->bytes);
    free(t->rows);
    free(t);
}

void native_trace_drop(struct native_client *client)
{
    if (client->trace)
        trace_unref(client->trace);
    client->trace = NULL;
}

/* ---- on the thread ---- */

static int dump_take(struct native_trace *t)
{
    MEMOIR_CLEANUP(traces_dump_unref)
    struct traces_dump *dump = NULL;
    int r = traces_dump(t->traces, t->socket, t->pid, &dump);
    if (r < 0)
        return r;
    if (!asking_may_see(&t->viewer, dump->identity.uid))
        return -EPERM;
    return buffer_append(&t->bytes, dump->bytes.data, dump->bytes.len);
}

static int list_take(struct native_trace *t)
{
    return traces_list(t->traces, t->socket, &t->viewer, &t->rows, &t->n_rows);
}

static void on_thread(void *context)
{
    struct native_trace *t = context;
    if (atomic_load(&t->owners) > 1) /* else the client went */
        t->error = t->pid ? dump_take(t) : list_take(t);
    atomic_store(&t->done, true);
    trace_unref(t);
}

static void on_drop(void *context)
{
    struct native_trace *t = context;
    t->error = -ENOTCONN;
    atomic_store(&t->done, true);
    trace_unref(t);
}

/* ---- on the loop ---- */

static void refuse(struct native_client *client, int error)
{
    struct native_error e;
    const struct tracing *tracing = client->native->daemon->tracing;
    const char *why = tracing_why(tracing);
    const char *code = error == -EPERM       ? "forbidden"
                       : error == -E2BIG     ? "limit"
                       : error == -ESRCH     ? "not-traced"
                       : error == -ENOTCONN  ? "not-tracing"
                       : error == -ETIMEDOUT ? "no-answer"
                                             : "internal";
    if (error == -EPERM)
        native_error_set(
            &e, code, "the process belongs to another user: only its user and root see its trace");
    else if (error == -ENOTCONN && *why)
        native_error_set(&e, code, "%s: %s", traces_error(error), why);
    else
        native_error_set(&e, code, "%s", traces_error(error));
    native_refuse(client, &e);
}

static int begin(struct native_client *client)
{
    struct daemon *daemon = client->native->daemon;
    const struct native_request *request = &client->native->parser.request;
    struct asking_viewer viewer = {.sees_all = client->sees_all, .uid = client->viewer_uid};
    const struct ledger_process *p =
        request->pid ? ledger_process_find(daemon->ledger, (pid_t)request->pid) : NULL;
    if (p && !asking_may_see(&viewer, p->uid))
        return -EPERM;
    if (!tracing_socket(daemon->tracing)[0])
        return -ENOTCONN;
    struct native_trace *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    atomic_init(&t->owners, 2);
    t->traces = daemon->traces;
    t->viewer = viewer;
    t->pid = (pid_t)request->pid;
    buffer_init(&t->bytes, TRACES_DUMP_MAX);
    snprintf(t->socket, sizeof(t->socket), "%s", tracing_socket(daemon->tracing));
    int r = traces_add(daemon->traces, asking_user(&viewer), on_thread, on_drop, t);
    if (r < 0) {
        free(t);
        return r;
    }
    client->trace = t;
    return 0;
}

static void row_json(const struct traces_row *row, struct json *json)
{
    json_object_begin(json);
    json_field_i64(json, "pid", row->pid);
    json_field_u64(json, "uid", row->uid);
    json_field_string(json, "program", row->program);
    traces_row_json(row, json);
    json_object_end(json);
}

static void answer_list(struct native_client *client, const struct native_trace *t)
{
    struct json json;
    native_answer_begin(client->native, &json);
    json_key(&json, "traced");
    json_array_begin(&json);
    for (size_t i = 0; i < t->n_rows; i++)
        row_json(&t->rows[i], &json);
    json_array_end(&json);
    native_answer_end(client, &json);
}

/* True: all of it is queued. */
static bool answer_dump(struct native_client *client, struct native_trace *t)
{
    struct json json;
    if (!t->answering) {
        native_answer_begin(client->native, &json);
        json_field_i64(&json, "trace", t->pid);
        json_field_u64(&json, "bytes", t->bytes.len);
        native_answer_end(client, &json);
        t->answering = true;
    }
    size_t queued = conn_queued(client->conn);
    size_t room = queued < CONN_OUT_HIGH ? CONN_OUT_HIGH - queued : 0;
    size_t n = t->bytes.len - t->sent < room ? t->bytes.len - t->sent : room;
    if (client->closing || (n > 0 && conn_send(client->conn, t->bytes.data + t->sent, n) < 0)) {
        client->closing = true;
        return true;
    }
    t->sent += n;
    return t->sent == t->bytes.len;
}

bool native_trace(struct native_client *client)
{
    if (!client->trace) {
        int r = begin(client);
        if (r == -EBUSY)
            conn_hold(client->conn, 50 * NS_PER_MS);
        else if (r < 0)
            refuse(client, r);
        if (r < 0)
            return r != -EBUSY;
    }
    struct native_trace *t = client->trace;
    if (!atomic_load(&t->done)) {
        conn_hold(client->conn, LOOK_MS * NS_PER_MS);
        return false;
    }
    if (t->error < 0) {
        refuse(client, t->error);
    } else if (!t->pid) {
        answer_list(client, t);
    } else if (!answer_dump(client, t)) {
        conn_hold(client->conn, PIECE_MS * NS_PER_MS);
        return false;
    }
    native_trace_drop(client);
    return true;
}

/* One process over HTTP: all that is known of it, and the switch of its tracking. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json_read.h"
#include "base/log.h"
#include "book/control.h"
#include "daemon/api_internal.h"
#include "daemon/attaching.h"
#include "daemon/daemon.h"
#include "daemon/events.h"
#include "daemon/hosts.h"
#include "ledger/host.h"
#include "ledger/ledger.h"
#include "query/query.h"
#include "trace/ask.h"

enum {
    COLUMNS_AT_ONCE = 40,
    SHOW_MAX = COLUMNS_AT_ONCE * (QUERY_NAME_MAX + 1),
};

/* ---- whose it is ---- */

static bool may_see(const struct http_call *call, uint32_t uid)
{
    const struct http_viewer *viewer = http_viewer(call);
    return query_may_see(viewer->sees_all, viewer->uid, uid);
}

static void no_process(struct http_call *call, unsigned long long pid)
{
    http_problem(call, 404, "no-process",
                 "there is no process %llu; /api/v1/exited has those that ended", pid);
}

bool api_pid_gone(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd >= 0)
        close(fd);
    return fd < 0 && (errno == ESRCH || errno == EINVAL || errno == ENOENT);
}

/* What is wanted of its row in the table of processes. */
struct facts {
    bool listed;
    uint32_t uid; /* HTTP_VIEWER_NOBODY: not known */
    enum host_tracked tracked;
    bool limited;
    struct host_cgroup cgroup; /* with `limited` */
};

/* False: the table is being refreshed, which the loop does not wait for; the handler runs again. */
static bool facts_take(struct http_call *call, struct daemon *daemon, pid_t pid,
                       struct facts *ret_facts)
{
    *ret_facts = (struct facts){.uid = HTTP_VIEWER_NOBODY};
    if (!daemon->hosts)
        return true;
    const struct host *host = hosts_ready(daemon->hosts) ? hosts_peek(daemon->hosts) : NULL;
    if (!host) {
        http_again(call);
        return false;
    }
    const struct host_process *p = host_process_find(host, pid);
    if (p) {
        ret_facts->listed = true;
        ret_facts->uid = p->valid & HOST_HAS_STATUS ? p->uid : HTTP_VIEWER_NOBODY;
        ret_facts->tracked = p->valid & HOST_HAS_TRACKED ? p->tracked : HOST_TRACKED_UNKNOWN;
        ret_facts->limited = p->cgroup && p->cgroup->known && p->cgroup->limited;
        if (ret_facts->limited)
            ret_facts->cgroup = *p->cgroup;
    }
    hosts_unlock(daemon->hosts);
    return true;
}

/* The table is refreshed each second while there are questions: one that was just started is in it soon. */
static bool wait_for_table(struct http_call *call, struct daemon *daemon, pid_t pid)
{
    if (!daemon->hosts || http_tries(call) >= API_TABLE_TRIES || api_pid_gone(pid))
        return false;
    http_again(call);
    return true;
}

struct ledger_process *api_process_proved(struct daemon *daemon, pid_t pid)
{
    enum { TRIES = 8 }; /* rows that lose the PID */
    struct ledger_process *p = NULL;
    for (int i = 0; i < TRIES && (p = ledger_process_find(daemon->ledger, pid)); i++) {
        ledger_update_state(daemon->ledger, p);
        if (p->valid & LEDGER_HAS_PID && p->pid == pid)
            return p;
    }
    return NULL;
}

struct ledger_process *api_own_process(struct http_call *call, struct daemon *daemon)
{
    uint64_t pid = 0;
    (void)http_number(call, "pid", &pid);
    struct ledger_process *p = api_process_proved(daemon, (pid_t)pid);
    if (p && may_see(call, p->uid))
        return p;
    if (p) {
        http_problem(
            call, 403, "not-yours",
            "process %llu belongs to another user: only that user and root see its call sites, "
            "blocks and stacks",
            (unsigned long long)pid);
        return NULL;
    }
    if (!api_pid_gone((pid_t)pid))
        http_problem(call, 404, "no-book",
                     "process %llu keeps no book, so nothing counts its memory by call site: start "
                     "it by 'memoir run COMMAND', or link it with -lmemoir",
                     (unsigned long long)pid);
    else
        no_process(call, (unsigned long long)pid);
    return NULL;
}

bool api_own_pid(struct http_call *call, struct daemon *daemon, pid_t *ret_pid, uint32_t *ret_uid,
                 struct ledger_process **ret_process)
{
    uint64_t pid = 0;
    struct facts facts;
    (void)http_number(call, "pid", &pid);
    struct ledger_process *p = api_process_proved(daemon, (pid_t)pid);
    if (!p && !facts_take(call, daemon, (pid_t)pid, &facts))
        return false;
    if (!p && !facts.listed && wait_for_table(call, daemon, (pid_t)pid))
        return false;
    if (!p && !facts.listed) {
        no_process(call, (unsigned long long)pid);
        return false;
    }
    uint32_t uid = p ? p->uid : facts.uid;
    if (!may_see(call, uid)) {
        http_problem(call, 403, "not-yours",
                     "process %llu belongs to another user: only that user and root see its "
                     "mappings and call sites",
                     (unsigned long long)pid);
        return false;
    }
    *ret_pid = (pid_t)pid;
    *ret_uid = uid;
    *ret_process = p;
    return true;
}

/* ---- rows ---- */

/* Names of columns whose values carry a mark. */
struct marked {
    const char *names[2 * COLUMNS_AT_ONCE];
    size_t n;
};

static void marked_json(struct json *json, const char *key, const struct marked *marked)
{
    if (!marked->n)
        return;
    json_key(json, key);
    json_array_begin(json);
    for (size_t i = 0; i < marked->n; i++)
        json_string(json, marked->names[i]);
    json_array_end(json);
}

static void mark(struct marked *marked, const char *name)
{
    if (marked->n < sizeof(marked->names) / sizeof(*marked->names))
        marked->names[marked->n++] = name;
}

/* All columns of the only row of a table that matches, as an object: 1; 0 and nothing where there is none; -EAGAIN when it
 * has to be asked for again. A question takes so many columns at most, so there are several. */
static int row_json(struct http_call *call, struct daemon *daemon, const char *table,
                    const char *where, struct json *json)
{
    struct asking_viewer viewer = api_viewer(call);
    const struct query_column *column = query_table_find(table)->columns;
    struct marked at_least = {0}, estimate = {0};
    bool found = false;
    while (column->name) {
        const struct query_column *first = column;
        char show[SHOW_MAX];
        size_t len = 0;
        for (int i = 0; i < COLUMNS_AT_ONCE && column->name; i++, column++)
            len += (size_t)snprintf(show + len, sizeof(show) - len, "%s%s", i ? "," : "",
                                    column->name);
        struct query_spec spec = {.table = table, .where = where, .show = show, .limit = 1};
        struct query_error error;
        struct asked *asked;
        int r = asking_prepare(daemon->asking, &spec, &asked, &error);
        if (r >= 0)
            r = asking_run(daemon->asking, asked, &viewer);
        if (r == -EAGAIN)
            return r;
        if (r < 0 || query_result_rows(asked->result) == 0)
            break; /* it may have ended in between: what is there is right */
        if (!found)
            json_object_begin(json);
        found = true;
        for (size_t i = 0; i < query_outputs(asked->query); i++) {
            struct query_value value = query_result_value(asked->result, 0, i);
            json_key(json, first[i].name);
            query_value_json(json, first[i].kind, &value);
            if (value.marks & QUERY_AT_LEAST)
                mark(&at_least, first[i].name);
            if (value.marks & QUERY_ESTIMATE)
                mark(&estimate, first[i].name);
        }
    }
    if (!found)
        return 0;
    marked_json(json, "at_least", &at_least);
    marked_json(json, "estimate", &estimate);
    json_object_end(json);
    return 1;
}

static void rows_json(struct http_call *call, struct daemon *daemon, const char *table,
                      const char *where, struct json *json)
{
    struct asking_viewer viewer = api_viewer(call);
    struct query_error error;
    struct asked *asked;
    int r = asking_prepare(
        daemon->asking,
        &(struct query_spec){.table = table,
                             .where = where,
                             .show = "device,device_id,ordinal,device_name,space,bytes,"
                                     "blocks,peak,allocated,freed,capacity,"
                                     "percent,inherited,source"},
        &asked, &error);
    if (r >= 0)
        r = asking_run(daemon->asking, asked, &viewer);
    json_array_begin(json);
    if (r >= 0) {
        MEMOIR_CLEANUP(buffer_release)
        struct buffer lines = BUFFER_INIT(4 << 20);
        if (query_result_lines(asked->result, &lines) >= 0)
            for (char *line = lines.data, *end; line && *line; line = end + 1) {
                end = strchr(line, '\n');
                json_raw(json, line, (size_t)(end - line));
            }
        asking_done(asked);
    }
    json_array_end(json);
}

/* ---- tracking ---- */

enum tracking { TRACKING_NONE, TRACKING_OFF, TRACKING_SUSPENDED, TRACKING_ON };
static const char *const tracking_words[] = {"none", "off", "suspended", "on"};

/* The book that counts every allocation of the process, or NULL. */
static struct ledger_book *tracker_book(const struct ledger_process *p)
{
    for (size_t i = 0; p && i < p->n_books; i++)
        if (book_source_counts_heap(p->books[i]->identity->source))
            return p->books[i];
    return NULL;
}

static enum tracking tracking_of(const struct ledger_process *p, const struct ledger_book *book)
{
    struct book_control control;
    if (!book)
        return TRACKING_NONE;
    if (ledger_process_stopped(p))
        return TRACKING_OFF;
    if (book->identity->source == BOOK_SOURCE_ATTACH)
        return TRACKING_ON;
    MEMOIR_CLEANUP(closep)
    int fd = ledger_book_open(book);
    if (fd < 0 || book_control_read(book->reader, fd, &control) < 0)
        return TRACKING_OFF;
    return control.flags & BOOK_CONTROL_SUSPENDED ? TRACKING_SUSPENDED : TRACKING_ON;
}

static enum host_tracked tracked_of(const struct ledger_process *p, const struct facts *facts)
{
    return tracker_book(p) ? HOST_TRACKED_YES : facts->tracked;
}

/* Can probes account it? Those that have no malloc, or another processor's, are left out; the rest is found out by trying. */
static bool can_attach(const struct daemon *daemon, enum host_tracked tracked)
{
    return !attaching_why_not(daemon->attaching) && tracked != HOST_TRACKED_KERNEL &&
           tracked != HOST_TRACKED_GO && tracked != HOST_TRACKED_32BIT &&
           tracked != HOST_TRACKED_MACHINE;
}

/* Of estimates: when they were made. */
static void as_of_json(const struct daemon *daemon, const struct ledger_process *p,
                       struct json *json)
{
    char time[QUERY_TIME_TEXT_MAX];
    bool estimate = false;
    for (size_t i = 0; p && i < p->n_accounts; i++)
        estimate |= p->accounts[i].sampled && p->accounts[i].source == BOOK_SOURCE_ATTACH;
    uint64_t then_ns = estimate ? attaching_figures_ns(daemon->attaching, p->pid) : 0;
    uint64_t age_ns = then_ns ? clock_monotonic_ns() - then_ns : 0;
    json_field_string(json, "as_of",
                      then_ns ? query_time_text(time, clock_real_ns() - age_ns) : NULL);
}

static void tracking_json(struct http_call *call, const struct daemon *daemon,
                          const struct ledger_process *p, const struct facts *facts, uint32_t uid,
                          struct json *json)
{
    const struct ledger_book *book = tracker_book(p);
    enum tracking state = tracking_of(p, book);
    bool own = may_see(call, uid);
    bool attach = state == TRACKING_NONE && can_attach(daemon, tracked_of(p, facts));
    json_object_begin(json);
    json_field_string(json, "state", tracking_words[state]);
    json_field_string(json, "source",
                      book              ? ledger_source_name(book->identity->source)
                      : p && p->n_books ? ledger_source_name(p->books[0]->identity->source)
                                        : NULL);
    json_field_string(json, "why",
                      own && state == TRACKING_NONE ? host_tracked_name(tracked_of(p, facts))
                                                    : NULL);
    json_field_bool(json, "can",
                    own && http_viewer(call)->role == HTTP_CONTROL &&
                        (state == TRACKING_ON || state == TRACKING_SUSPENDED || attach));
    json_field_bool(json, "attach", attach);
    as_of_json(daemon, p, json);
    json_field_string(json, "command", state == TRACKING_NONE ? "memoir run COMMAND" : NULL);
    json_object_end(json);
}

static void limit_json(const struct facts *facts, struct json *json)
{
    json_key(json, "limit");
    if (!facts->limited) {
        json_null(json);
        return;
    }
    json_object_begin(json);
    json_field_u64(json, "bytes", facts->cgroup.limit_bytes);
    json_field_u64(json, "headroom", facts->cgroup.headroom_bytes);
    json_field_string(json, "where", facts->cgroup.path);
    json_object_end(json);
}

void api_answer_process(struct http_call *call, void *context)
{
    struct daemon *daemon = context;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer row = BUFFER_INIT(4 << 20);
    struct json row_writer;
    struct facts facts;
    char where[64], where_any[128];
    uint64_t number = 0;
    (void)http_number(call, "pid", &number);
    pid_t pid = (pid_t)number;
    const struct ledger_process *p = api_process_proved(daemon, pid);
    if (!p && api_pid_gone(pid)) {
        no_process(call, (unsigned long long)pid);
        return;
    }
    if (!facts_take(call, daemon, pid, &facts) ||
        (!facts.listed && wait_for_table(call, daemon, pid)))
        return;
    if (daemon->hosts)
        hosts_watch(daemon->hosts, pid);
    snprintf(where, sizeof(where), "pid=%d", (int)pid);
    /* Threads of the kernel, too. */
    snprintf(where_any, sizeof(where_any), "%s and (kernel_thread or not kernel_thread)", where);
    json_init(&row_writer, &row);
    int found = facts.listed ? row_json(call, daemon, "host", where_any, &row_writer) : 0;
    if (found == -EAGAIN) {
        http_again(call);
        return;
    }
    if (!found && !p) {
        no_process(call, (unsigned long long)pid);
        return;
    }
    struct json *json = http_json(call);
    api_json_begin(json, "memoir.process/1");
    json_field_i64(json, "pid", pid);
    json_key(json, "process");
    if (found)
        json_raw(json, row.data, row.len);
    else
        json_null(json);
    json_key(json, "accounts");
    rows_json(call, daemon, "accounts", where, json);
    uint32_t uid = p ? p->uid : facts.uid;
    json_field_bool(json, "own", may_see(call, uid));
    json_key(json, "tracking");
    tracking_json(call, daemon, p, &facts, uid, json);
    limit_json(&facts, json);
    json_object_end(json);
}

/* ---- the switch ---- */

bool api_wish_on(struct http_call *call, bool *ret_on, bool *ret_children)
{
    size_t len;
    const char *body = http_request_body(call, &len);
    struct json_read read;
    struct json_text key;
    bool known = false;
    json_read_init(&read, body, len);
    json_read_object(&read);
    while (json_read_key(&read, &key))
        if (json_text_is(&key, "on"))
            known = json_read_bool(&read, ret_on);
        else if (ret_children && json_text_is(&key, "children"))
            json_read_bool(&read, ret_children);
        else
            json_read_fail(&read, "unknown member");
    if (json_read_finish(&read) >= 0 && known)
        return true;
    http_problem(call, 400, "bad-body", "expected {\"on\": true} or {\"on\": false}");
    return false;
}

static void cannot_track(struct http_call *call, const struct daemon *daemon,
                         const struct ledger_process *p, const struct facts *facts)
{
    const char *why = host_tracked_name(facts->tracked);
    const char *off = attaching_why_not(daemon->attaching);
    if (p && p->n_books)
        http_problem(call, 409, "not-tracked",
                     "%s (PID %d) reports its memory by itself, which is not switched from here; "
                     "'memoir run COMMAND' counts every allocation",
                     p->name, (int)p->pid);
    else
        http_problem(
            call, 409, "not-tracked",
            "the process is not tracked (%s), and cannot be attached here while it runs%s%s: start it by "
            "'memoir run COMMAND', or by 'memoir run --suspended COMMAND' to switch "
            "tracking on later",
            why ? why : "it was not asked for", off ? ", since " : "", off ? off : "");
}

/* What is switched. */
struct tracked_process {
    pid_t pid;
    uint32_t uid;
    const struct ledger_process *p; /* NULL: it keeps no book */
};

static void tell(struct http_call *call, struct daemon *daemon, const struct tracked_process *t,
                 const char *what)
{
    const struct http_viewer *viewer = http_viewer(call);
    struct event event = {.kind = EVENT_TRACKING, .pid = t->pid, .uid = t->uid};
    snprintf(event.program, sizeof(event.program), "%s", t->p ? t->p->name : "");
    snprintf(event.text, sizeof(event.text), "tracking of %s (PID %d) was %s by %s",
             t->p ? t->p->name : "a process", (int)t->pid, what, viewer->name);
    events_add(daemon->events, &event);
}

static void switched(struct http_call *call, pid_t pid, enum tracking now, bool changed)
{
    struct json *json = http_json(call);
    json_object_begin(json);
    json_field_i64(json, "pid", pid);
    json_field_string(json, "state", tracking_words[now]);
    json_field_bool(json, "changed", changed);
    json_object_end(json);
}

static void cannot_attach(struct http_call *call, const char *why)
{
    http_problem(call, 409, "cannot-attach", "%s", why);
}

/* Probes on a process that runs, by an observer that begins meanwhile: the handler runs again until it has. */
static void attach(struct http_call *call, struct daemon *daemon, const struct tracked_process *t,
                   bool children)
{
    const struct http_viewer *viewer = http_viewer(call);
    char why[ATTACHING_WHY_MAX] = "";
    enum attaching_state state = attaching_state(daemon->attaching, t->pid, why);
    bool was = state == ATTACHING_ON && http_tries(call) == 0;
    if (state == ATTACHING_NONE) {
        int r = attaching_begin(daemon->attaching, t->pid, viewer->sees_all ? 0 : viewer->uid,
                                children);
        if (r < 0) {
            cannot_attach(call, r == -EUSERS  ? "too many processes are attached"
                                : r == -EPERM ? "users other than root can write to " TRACE_ASK_DIR
                                              : strerror(-r));
            return;
        }
        state = attaching_state(daemon->attaching, t->pid, why);
    }
    if (state == ATTACHING_STARTING) {
        http_again(call);
    } else if (state == ATTACHING_ON) {
        if (!was)
            tell(call, daemon, t, "begun by probes");
        switched(call, t->pid, TRACKING_ON, !was);
    } else {
        cannot_attach(call, why);
    }
}

/* The handler runs again until the observer has removed its probes and its book. */
static void detach(struct http_call *call, struct daemon *daemon, const struct tracked_process *t)
{
    int r = attaching_end(daemon->attaching, t->pid);
    if (r == 0)
        http_again(call);
    else
        api_failed(call, "its observer does not answer", r);
}

static bool detached(struct http_call *call, struct daemon *daemon, const struct tracked_process *t)
{
    char why[ATTACHING_WHY_MAX];
    if (attaching_state(daemon->attaching, t->pid, why) != ATTACHING_ENDED)
        return false;
    tell(call, daemon, t, "ended");
    switched(call, t->pid, TRACKING_NONE, true);
    return true;
}

static void suspend(struct http_call *call, struct daemon *daemon, const struct tracked_process *t,
                    const struct ledger_book *book, enum tracking before, bool on)
{
    MEMOIR_CLEANUP(closep)
    int fd = ledger_book_open(book);
    int r = fd < 0 ? fd
                   : book_control_ask(book->reader, fd, BOOK_CONTROL_SUSPENDED,
                                      on ? 0 : BOOK_CONTROL_SUSPENDED);
    if (r < 0) {
        api_failed(call, "the process's book could not be written", r);
        return;
    }
    enum tracking now = tracking_of(t->p, book);
    if (now != before)
        tell(call, daemon, t, on ? "switched on" : "suspended");
    switched(call, t->pid, now, now != before);
}

void api_answer_tracking(struct http_call *call, void *context)
{
    struct daemon *daemon = context;
    uint64_t pid = 0;
    bool on = false, children = false;
    (void)http_number(call, "pid", &pid);
    if (!api_wish_on(call, &on, &children))
        return;
    http_audit(call, "tracking of PID %llu %s", (unsigned long long)pid, on ? "on" : "off");
    struct facts facts;
    const struct ledger_process *p = api_process_proved(daemon, (pid_t)pid);
    if (!p && api_pid_gone((pid_t)pid)) {
        no_process(call, (unsigned long long)pid);
        return;
    }
    if (!facts_take(call, daemon, (pid_t)pid, &facts) ||
        (!p && !facts.listed && wait_for_table(call, daemon, (pid_t)pid)))
        return;
    struct tracked_process t = {(pid_t)pid, p ? p->uid : facts.uid, p};
    if (!may_see(call, t.uid)) {
        http_problem(
            call, 403, "not-yours",
            "process %llu belongs to another user: only that user and root switch its tracking",
            (unsigned long long)pid);
        return;
    }
    const struct ledger_book *book = tracker_book(p);
    enum tracking before = tracking_of(p, book);
    if (book && book->identity->source == BOOK_SOURCE_ATTACH) {
        if (on)
            attach(call, daemon, &t, children);
        else
            detach(call, daemon, &t);
    } else if (before == TRACKING_ON || before == TRACKING_SUSPENDED) {
        suspend(call, daemon, &t, book, before, on);
    } else if (on && can_attach(daemon, tracked_of(p, &facts))) {
        attach(call, daemon, &t, children);
    } else if (on || !detached(call, daemon, &t)) {
        cannot_track(call, daemon, p, &facts);
    }
}

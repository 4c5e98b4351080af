/* Events for those who subscribed.
 *
 * memoird never waits for a subscriber: what does not fit into its queue is left out and counted, and the count is
 * the first thing it reads when there is room again. An event is written once for all who may see it, and not
 * at all where none of them has room. */
#include <stdio.h>
#include <string.h>

#include "base/accountable.h"
#include "base/clock.h"
#include "base/sum.h"
#include "daemon/behalf.h"
#include "daemon/cause.h"
#include "daemon/daemon.h"
#include "daemon/native_internal.h"
#include "daemon/native_words.h"
#include "daemon/retired.h"
#include "daemon/server.h"
#include "ledger/ledger.h"
#include "query/query.h"

/* Room that must be there again before a subscriber who lost something gets more. */
enum { EVENTS_ROOM_AGAIN = NATIVE_EVENTS_QUEUED_MAX / 2, LOST_RETRY_MS = 50 };

/* ---- who subscribed ---- */

static void topics_sum(struct native *native)
{
    native->topics = 0;
    for (const struct native_client *c = native->subscribers; c; c = c->next)
        native->topics |= c->topics;
    behalf_listen(native->daemon->behalf, native->topics & NATIVE_REPORTS ? native_reported : NULL,
                  native);
}

void native_subscriber_forget(struct native_client *client)
{
    struct native *native = client->native;
    if (!client->topics)
        return;
    client->topics = 0;
    if (client->previous)
        client->previous->next = client->next;
    else
        native->subscribers = client->next;
    if (client->next)
        client->next->previous = client->previous;
    client->next = client->previous = NULL;
    topics_sum(native);
}

static void answer_topics(struct native_client *client)
{
    struct json json;
    native_answer_begin(client->native, &json);
    json_key(&json, "subscribed");
    json_array_begin(&json);
    for (uint32_t topic = 1; topic <= NATIVE_REPORTS; topic <<= 1)
        if (client->topics & topic)
            json_string(&json, native_topic_name(topic));
    json_array_end(&json);
    if (client->topics)
        json_field_u64(&json, "interval_ms", client->interval_ns / NS_PER_MS);
    native_answer_end(client, &json);
}

/* Each report is handed to each of them. */
static bool one_more_fits(const struct native_client *client)
{
    size_t n = 0;
    uint32_t user = accountable_uid(client->viewer_uid);
    for (const struct native_client *c = client->native->subscribers; c; c = c->next)
        n += accountable_uid(c->viewer_uid) == user;
    return client->sees_all || n < NATIVE_SUBSCRIBERS_PER_USER_MAX;
}

void native_subscribe(struct native_client *client)
{
    struct native *native = client->native;
    const struct native_request *request = &native->parser.request;
    native_subscriber_forget(client);
    if (!one_more_fits(client)) {
        struct native_error error;
        native_error_set(&error, "limit", "%d connections of yours have subscribed: close some",
                         NATIVE_SUBSCRIBERS_PER_USER_MAX);
        native_refuse(client, &error);
        return;
    }
    client->topics = request->topics;
    client->only_pid = (int32_t)request->pid;
    client->interval_ns = request->interval_ms * NS_PER_MS;
    client->due_ns = clock_monotonic_ns();
    client->next = native->subscribers;
    if (client->next)
        client->next->previous = client;
    native->subscribers = client;
    topics_sum(native);
    answer_topics(client);
}

void native_unsubscribe(struct native_client *client)
{
    native_subscriber_forget(client);
    answer_topics(client);
}

/* ---- sending ---- */

/* Tell of what was lost, when there is room. False: there is none, and the next event is lost too. */
static bool lost_tell(struct native_client *client)
{
    char text[48];
    if (client->lost == 0)
        return true;
    if (conn_queued(client->conn) > EVENTS_ROOM_AGAIN)
        return false;
    int n = snprintf(text, sizeof(text), "{\"lost\":%llu}\n", (unsigned long long)client->lost);
    if (conn_send(client->conn, text, (size_t)n) >= 0)
        client->lost = 0;
    return client->lost == 0;
}

static void lose(struct native_client *client)
{
    if (client->lost++ == 0)
        conn_wake_after(client->conn, LOST_RETRY_MS * NS_PER_MS);
}

/* Is there room for anything at all? What it does not get is counted: then nothing need be written. */
static bool has_room(struct native_client *client)
{
    if (lost_tell(client) && conn_queued(client->conn) < NATIVE_EVENTS_QUEUED_MAX)
        return true;
    lose(client);
    return false;
}

/* To one who has_room(). */
static void event_send(struct native_client *client, const struct buffer *event)
{
    if (event->error || conn_queued(client->conn) + event->len > NATIVE_EVENTS_QUEUED_MAX ||
        conn_send(client->conn, event->data, event->len) < 0)
        lose(client);
}

static void event_begin(struct buffer *to, struct json *json, const char *event)
{
    buffer_reset(to);
    json_init(json, to);
    json_object_begin(json);
    json_field_string(json, "event", event);
}

static void event_end(struct buffer *to, struct json *json)
{
    json_object_end(json);
    (void)json_finish(json);
    buffer_append_char(to, '\n');
}

/* Microseconds are enough, and what a double holds. */
static void field_time(struct json *json, uint64_t real_ns)
{
    json_field_double(json, "time", (double)(real_ns / NS_PER_US) / 1e6);
}

static bool may_see(const struct native_client *client, uint32_t uid)
{
    return query_may_see(client->sees_all, client->viewer_uid, uid);
}

static bool wants(const struct native_client *client, uint32_t topic, int32_t pid)
{
    return client->topics & topic && (!client->only_pid || client->only_pid == pid);
}

/* ---- processes ---- */

typedef void process_write(struct json *json, const void *what, bool detailed);

/* Once with what only its own user and root may see, once without. */
static void process_event(struct native *native, const char *what, int32_t pid, uint32_t uid,
                          process_write *write, const void *context)
{
    for (int detailed = 0; detailed <= 1; detailed++) {
        bool written = false;
        for (struct native_client *c = native->subscribers; c; c = c->next) {
            if (!wants(c, NATIVE_PROCESSES, pid) || may_see(c, uid) != (bool)detailed ||
                !has_room(c))
                continue;
            if (!written) {
                struct json json;
                event_begin(&native->out, &json, "process");
                json_field_string(&json, "what", what);
                field_time(&json, clock_real_ns());
                json_field_i64(&json, "pid", pid);
                json_field_u64(&json, "uid", uid);
                write(&json, context, detailed);
                event_end(&native->out, &json);
                written = true;
            }
            event_send(c, &native->out);
        }
    }
}

static void came_write(struct json *json, const void *context, bool detailed)
{
    const struct ledger_process *process = context;
    if (process->host[0])
        json_field_string(json, "host", process->host);
    if (detailed) {
        json_field_string(json, "program", process->name);
        json_field_string(json, "command", process->command);
    }
}

void native_process_came(struct native *native, const struct ledger_process *process)
{
    if (!native || !(native->topics & NATIVE_PROCESSES))
        return;
    int32_t pid = process->valid & LEDGER_HAS_PID ? process->pid : process->book_pid;
    process_event(native, "came", pid, process->uid, came_write, process);
}

struct went {
    const struct retired_process *process;
    const char *line;
};

static void went_write(struct json *json, const void *context, bool detailed)
{
    const struct went *went = context;
    const struct retired_process *p = went->process;
    char text[CAUSE_TEXT_MAX];
    uint64_t bytes = 0, blocks = 0;
    for (size_t i = 0; i < p->n_accounts; i++) {
        if (ledger_space_adds(p->accounts[i].space))
            sum_add(&bytes, p->accounts[i].totals.live_bytes);
        sum_add(&blocks, p->accounts[i].totals.live_blocks);
    }
    if (p->host[0])
        json_field_string(json, "host", p->host);
    json_field_u64(json, "bytes", bytes);
    json_field_u64(json, "blocks", blocks);
    if (detailed) {
        json_field_string(json, "program", p->name);
        json_field_string(json, "cause", cause_text(p->cause, text));
        json_field_string(json, "line", went->line);
    }
}

void native_process_went(struct native *native, const struct retired_process *process,
                         const char *line)
{
    if (!native || !(native->topics & NATIVE_PROCESSES))
        return;
    int32_t pid = process->pid > 0 ? process->pid : process->book_pid;
    process_event(native, "went", pid, process->uid, went_write,
                  &(struct went){.process = process, .line = line});
}

/* ---- reports ---- */

void native_reported(void *context, const struct behalf *behalf, const struct behalf_event *event)
{
    static const char *const names[] = {
        [BEHALF_ALLOC] = "alloc",
        [BEHALF_FREE] = "free",
        [BEHALF_MOVED_IN] = "moved_in",
        [BEHALF_MOVED_OUT] = "moved_out",
    };
    struct native *native = context;
    const struct book_identity *identity = behalf_book(behalf)->identity;
    int32_t pid = behalf_pid(behalf) ? behalf_pid(behalf) : identity->pid;
    uint32_t uid = behalf_uid(behalf);
    bool written = false;
    for (struct native_client *c = native->subscribers; c; c = c->next) {
        if (!wants(c, NATIVE_REPORTS, pid) || !may_see(c, uid) || !has_room(c))
            continue;
        if (!written) {
            struct json json;
            struct behalf_figures figures;
            event_begin(&native->out, &json, names[event->kind]);
            field_time(&json, clock_real_ns());
            json_field_i64(&json, "pid", pid);
            if (!behalf_pid(behalf))
                json_field_string(&json, "host", identity->host);
            if (event->has_device)
                json_field_i64(&json, "ordinal", event->ordinal);
            json_field_string(&json, "space", ledger_space_name(event->space));
            json_field_u64(&json, "id", event->id);
            json_field_u64(&json, "bytes", event->bytes);
            if (event->tag[0])
                json_field_string(&json, "tag", event->tag);
            if (behalf_figures(behalf, event->account, &figures) >= 0)
                json_field_u64(&json, "total", figures.live_bytes);
            event_end(&native->out, &json);
            written = true;
        }
        event_send(c, &native->out);
    }
}

/* ---- devices ---- */

static void space_write(struct json *json, const struct ledger_capacity *space)
{
    json_object_begin(json);
    json_field_string(json, "space", ledger_space_name(space->space));
    json_field_u64(json, "used", space->used);
    json_field_u64(json, "blocks", space->blocks);
    if (space->capacity)
        json_field_u64(json, "capacity", space->capacity);
    if (space->disputed)
        json_field_bool(json, "disputed", true);
    json_object_end(json);
}

static void device_write(struct json *json, const struct ledger_device *device)
{
    json_object_begin(json);
    json_field_i64(json, "ordinal", device->ordinal);
    json_field_string(json, "kind", native_device_kind_name(device->kind));
    json_field_string(json, "name", device->name);
    if (device->uid[0])
        json_field_string(json, "uid", device->uid);
    if (device->bus[0])
        json_field_string(json, "bus", device->bus);
    if (device->host[0])
        json_field_string(json, "host", device->host);
    json_field_u64(json, "processes", device->processes);
    json_key(json, "spaces");
    json_array_begin(json);
    for (size_t i = 0; i <= MEMOIR_SPACE_MAX; i++)
        if (device->spaces[i].space)
            space_write(json, &device->spaces[i]);
    json_array_end(json);
    json_object_end(json);
}

/* What all get until there are new figures, or, where there are very many devices, for longer. */
static void devices_event_write(struct native *native)
{
    const struct server *server = native->daemon->server;
    uint64_t begin = clock_monotonic_ns();
    struct json json;
    size_t n;
    if (native->devices_refreshed_ns == server->refreshed_ns || begin < native->devices_until_ns)
        return;
    native->devices_refreshed_ns = server->refreshed_ns;
    struct ledger_device *const *devices = ledger_devices(native->daemon->ledger, &n);
    event_begin(&native->devices, &json, "devices");
    field_time(&json, clock_real_ns());
    json_key(&json, "devices");
    json_array_begin(&json);
    for (size_t i = 0; i < n; i++)
        device_write(&json, devices[i]);
    json_array_end(&json);
    event_end(&native->devices, &json);
    uint64_t end = clock_monotonic_ns();
    native->devices_until_ns = end + (end - begin) * (NATIVE_DEVICES_SHARE - 1);
}

static void devices_event(struct native_client *client)
{
    struct native *native = client->native;
    if (!has_room(client))
        return;
    server_refresh(native->daemon->server);
    devices_event_write(native);
    event_send(client, &native->devices);
}

uint64_t native_due(struct native_client *client, uint64_t now_ns)
{
    if (!client->topics)
        return 0;
    (void)lost_tell(client);
    uint64_t wait_ns = client->lost ? LOST_RETRY_MS * NS_PER_MS : 0;
    if (!(client->topics & NATIVE_DEVICES))
        return wait_ns;
    if (now_ns >= client->due_ns) {
        devices_event(client);
        client->due_ns += client->interval_ns;
        if (client->due_ns <= now_ns) /* late: skip what was missed */
            client->due_ns = now_ns + client->interval_ns;
    }
    uint64_t due_in = client->due_ns - now_ns;
    return wait_ns && wait_ns < due_in ? wait_ns : due_in;
}

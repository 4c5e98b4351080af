/* What goes through the event streams: a tick each second, and events as they happen.
 *
 * A tick is written once for all, and only while a stream is open. It has only what every viewer may see: pages
 * ask for their own tables after it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/version.h"
#include "daemon/api_internal.h"
#include "daemon/clustering.h"
#include "daemon/daemon.h"
#include "daemon/events.h"
#include "daemon/events_table.h"
#include "daemon/growing.h"
#include "daemon/hosts.h"
#include "daemon/leak_log.h"
#include "daemon/loop.h"
#include "ledger/host.h"
#include "ledger/leaks.h"
#include "ledger/ledger.h"
#include "query/query.h"
#include "query/view.h"

enum {
    TICK_MS = 1000,
    RETRY_MS = 20, /* while the table of processes is being refreshed, */
    RETRIES = 25,  /* so often at most */
    GROWERS = 8,
    TICK_MAX = 1 << 20,
    REPLAY_MAX = 4 << 20,
    LEAKS_EACH_S = 2,   /* between two looks for new leaks, */
    LEAKS_SHARE = 200,  /* which take one part in so many of the time at most, */
    LEAKS_TURN_MS = 10, /* and each so long */
    DEVICES_KNOWN = 256,
};

struct api_stream {
    struct loop_source *timer, *retry;
    unsigned tries;
    uint64_t generation;
    struct buffer text;
    struct buffer
        growers; /* of the last tick that had the table of processes: JSON; empty before the first */
    uint64_t processes; /* and their number */
    uint64_t leaks_due_ns;
    size_t suspects;
    uint64_t known_devices[DEVICES_KNOWN];
    size_t n_known_devices;
};

/* ---- what is new ---- */

static bool remember(uint64_t *known, size_t room, size_t *n, uint64_t key)
{
    for (size_t i = 0; i < *n && i < room; i++)
        if (known[i] == key)
            return false;
    known[(*n)++ % room] = key;
    return true;
}

struct leaks_seen {
    struct daemon *daemon;
    const struct leaks *leaks;
};

static bool has_book(uint64_t dev, uint64_t ino, void *context)
{
    const struct leaks_seen *seen = context;
    return ledger_book_find(seen->daemon->ledger, dev, ino) != NULL;
}

static void leak_tell(const struct leak_entry *entry, size_t row, void *context)
{
    const struct leaks_seen *seen = context;
    struct event event = {.kind = EVENT_LEAK,
                          .pid = entry->pid,
                          .uid = entry->uid,
                          .is_private = true,
                          .has_bytes = true,
                          .bytes = entry->live_bytes};
    struct buffer why = BUFFER_INIT(EVENT_TEXT_MAX);
    detect_explain(&seen->leaks->rows[row].result, &why);
    snprintf(event.program, sizeof(event.program), "%s", entry->program);
    snprintf(event.text, sizeof(event.text), "%s (PID %d) leaks: %.160s", entry->program,
             (int)event.pid, buffer_string(&why));
    buffer_release(&why);
    events_add(seen->daemon->events, &event);
}

/* Leaks that are new, and those that have stopped. */
static void leaks_look(struct api *api)
{
    struct api_stream *s = api->stream;
    struct daemon *daemon = api->daemon;
    uint64_t begin_ns = clock_monotonic_ns();
    struct leaks leaks;
    if (!daemon->growing || begin_ns < s->leaks_due_ns)
        return;
    struct leaks_options options = {.deadline_ns = begin_ns + LEAKS_TURN_MS * NS_PER_MS};
    if (growing_leaks(daemon->growing, &options, &leaks) >= 0) {
        s->suspects = leaks.verdicts[DETECT_LEAK];
        struct leaks_seen seen = {daemon, &leaks};
        leak_log_look(api->leak_log, &leaks, clock_real_ns(), has_book, leak_tell, &seen);
        leaks_release(&leaks);
    }
    uint64_t now_ns = clock_monotonic_ns(), rest_ns = (now_ns - begin_ns) * LEAKS_SHARE;
    uint64_t each_ns = LEAKS_EACH_S * NS_PER_S;
    s->leaks_due_ns = now_ns + (rest_ns > each_ns ? rest_ns : each_ns);
}

static void devices_look(struct api *api)
{
    struct api_stream *s = api->stream;
    size_t n;
    struct ledger_device *const *devices = ledger_devices(api->daemon->ledger, &n);
    for (size_t i = 0; i < n; i++) {
        const struct ledger_device *d = devices[i];
        uint64_t key =
            hash_string(d->host, hash_string(d->uid[0] ? d->uid : d->bus,
                                             hash_string(d->name, (uint64_t)d->ordinal)));
        if (!remember(s->known_devices, DEVICES_KNOWN, &s->n_known_devices, key))
            continue;
        struct event event = {.kind = EVENT_DEVICE};
        snprintf(event.text, sizeof(event.text), "device %d (%s) appeared", d->ordinal, d->name);
        events_add(api->daemon->events, &event);
    }
}

/* ---- a tick ---- */

/* Ask for what all may see. NULL: it cannot be answered, or (`hasty`) not without waiting for the table of processes. */
static struct asked *ask(struct api *api, const struct query_spec *spec, bool hasty)
{
    struct asking *asking = api->daemon->asking;
    struct query_error error;
    struct asked *asked;
    int r = asking_prepare(asking, spec, &asked, &error);
    if (r >= 0)
        r = asking_run(asking, asked,
                       &(struct asking_viewer){.uid = HTTP_VIEWER_NOBODY, .hasty = hasty});
    return r < 0 ? NULL : asked;
}

static void row_json(const struct asked *asked, size_t row, struct json *json)
{
    json_object_begin(json);
    for (size_t i = 0; i < query_outputs(asked->query); i++) {
        const struct query_output *output = query_output(asked->query, i);
        struct query_value value = query_result_value(asked->result, row, i);
        json_key(json, output->name);
        query_value_json(json, output->kind, &value);
    }
    json_object_end(json);
}

static void rows_json(const struct asked *asked, struct json *json)
{
    json_array_begin(json);
    for (size_t row = 0; asked && row < query_result_rows(asked->result); row++)
        row_json(asked, row, json);
    json_array_end(json);
}

static void row_of_system(struct api *api, struct json *json)
{
    const struct query_view *view = query_view_route("system");
    const struct asked *asked =
        ask(api, &(struct query_spec){.table = view->table, .show = view->show}, false);
    if (asked && query_result_rows(asked->result))
        row_json(asked, 0, json);
    else
        json_null(json);
}

/* Processes that grow fastest, and how many there are in all: null while no process was watched for as long as its growth is
 * measured over. Where the table of processes is being refreshed, those of the last tick stay. */
static void growers_take(struct api *api)
{
    struct api_stream *s = api->stream;
    const struct asked *asked =
        ask(api, &(struct query_spec){.table = "host", .show = "count,count(growth)"}, true);
    if (!asked || query_result_rows(asked->result) == 0)
        return;
    uint64_t processes = query_result_value(asked->result, 0, 0).number;
    bool known = query_result_value(asked->result, 0, 1).number > 0;
    struct query_spec fastest = {.table = "host",
                                 .where = "growth>=1",
                                 .show = "pid,program,growth,rss",
                                 .sort = "-growth,+pid",
                                 .limit = GROWERS};
    asked = known ? ask(api, &fastest, true) : NULL;
    if (known && !asked)
        return;
    struct json json;
    buffer_reset(&s->growers);
    json_init(&json, &s->growers);
    if (known)
        rows_json(asked, &json);
    else
        json_null(&json);
    (void)json_finish(&json);
    s->processes = processes;
}

static size_t tracked_count(const struct ledger *ledger)
{
    size_t n, tracked = 0;
    struct ledger_process *const *all = ledger_processes(ledger, &n);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < all[i]->n_books; k++)
            if (book_source_counts_heap(all[i]->books[k]->identity->source)) {
                tracked++;
                break;
            }
    return tracked;
}

static void tick_json(struct api *api, struct json *json)
{
    struct api_stream *s = api->stream;
    struct daemon *daemon = api->daemon;
    api_json_begin(json, NULL);
    json_field_u64(json, "generation", ++s->generation);
    json_key(json, "system");
    row_of_system(api, json);
    json_key(json, "devices");
    rows_json(ask(api,
                  &(struct query_spec){.table = "devices",
                                       .show = "device,device_id,ordinal,device_name,space,"
                                               "used,capacity,percent,processes,driver.used,"
                                               "unattributed",
                                       .limit = DEVICES_KNOWN},
                  false),
              json);
    json_key(json, "growers");
    if (s->growers.len)
        json_raw(json, s->growers.data, s->growers.len);
    else
        json_null(json);
    json_field_u64(json, "processes", s->processes);
    json_field_u64(json, "tracked", tracked_count(daemon->ledger));
    json_field_u64(json, "suspects", s->suspects);
    json_object_end(json);
}

static void publish(struct api *api, const struct http_audience *audience, const char *name,
                    uint64_t id, const struct buffer *text)
{
    int r = text->error ? text->error
                        : http_stream_publish(api->http, audience, name, id, text->data, text->len);
    if (r < 0)
        log_debug("an event '%s' was not published: %s", name, strerror(-r));
}

static void on_tick(void *context)
{
    struct api *api = context;
    struct api_stream *s = api->stream;
    struct hosts *hosts = api->daemon->hosts;
    struct json json;
    devices_look(api);
    leaks_look(api);
    if (http_stream_classes(api->http, NULL, 0) == 0)
        return; /* no stream is open */
    bool ready = hosts && hosts_ready(hosts);
    if (hosts && !ready && (s->tries++ < RETRIES || !s->growers.len)) {
        loop_timer_set(s->retry, RETRY_MS * NS_PER_MS, 0);
        return;
    }
    s->tries = 0;
    if (ready)
        growers_take(api);
    buffer_reset(&s->text);
    json_init(&json, &s->text);
    tick_json(api, &json);
    (void)json_finish(&json);
    publish(api, &(struct http_audience){HTTP_TO_ALL, 0}, "tick", 0, &s->text);
}

/* ---- events ---- */

static const char *user_name(uint32_t uid, void *context)
{
    return asking_user_name(((const struct api *)context)->daemon->asking, uid);
}

/* The rows of the view `events` that `viewer` may see, as objects, one a line; of one event, or with NULL of all after `seq`. */
static int event_rows(struct api *api, const struct event *one, uint64_t seq,
                      const struct asking_viewer *viewer, struct buffer *text)
{
    const struct query_view *view = query_view_route("events");
    struct events_world events = {.events = api->daemon->events, .one = one};
    struct query_world world = {.events = &events,
                                .sees_all = viewer->sees_all,
                                .viewer_uid = viewer->uid,
                                .node = clustering_node_name(api->daemon->clustering),
                                .user_name = user_name,
                                .context = api};
    char where[48];
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    MEMOIR_CLEANUP(query_result_freep)
    struct query_result *result = NULL;
    struct query_error error;
    snprintf(where, sizeof(where), "seq>%" PRIu64, seq);
    buffer_reset(text);
    int r = query_new(
        &(struct query_spec){
            .table = view->table, .where = one ? NULL : where, .show = view->show, .sort = "+seq"},
        &query, &error);
    if (r >= 0)
        r = query_result_new(query, EVENTS_KEPT, &result);
    if (r >= 0)
        r = query_run(query, &world, result);
    if (r >= 0)
        r = query_result_finish(result);
    return r < 0 ? r : query_result_lines(result, text);
}

/* The next line of `text` at `*at`, without its end; false: there is none. */
static bool line_next(const struct buffer *text, size_t *at, const char **ret_line, size_t *ret_len)
{
    const char *from = buffer_string(text) + *at, *end = strchr(from, '\n');
    if (!end)
        return false;
    *ret_line = from;
    *ret_len = (size_t)(end - from);
    *at += *ret_len + 1;
    return true;
}

/* Publish the event as `as` may see it. */
static void tell(struct api *api, const struct event *event, const struct asking_viewer *as,
                 struct http_audience audience)
{
    struct buffer *text = &api->stream->text;
    size_t at = 0, len;
    const char *line;
    int r = event_rows(api, event, 0, as, text);
    if (r >= 0 && line_next(text, &at, &line, &len))
        r = http_stream_publish(api->http, &audience, "event", event->id, line, len);
    if (r < 0)
        log_debug("an event was not published: %s", strerror(-r));
}

static void heard(const struct event *event, void *context)
{
    struct api *api = context;
    struct http_audience classes[1];
    struct asking_viewer all = {.sees_all = true}, others = {.uid = HTTP_VIEWER_NOBODY};
    if (http_stream_classes(api->http, classes, 1) == 0)
        return;
    if (event->pid == 0) {
        tell(api, event, &all, (struct http_audience){HTTP_TO_ALL, 0});
        return;
    }
    tell(api, event, &all, (struct http_audience){HTTP_TO_SEES_ALL, 0});
    tell(api, event, &all, (struct http_audience){HTTP_TO_UID, event->uid});
    tell(api, event, &others, (struct http_audience){HTTP_TO_OTHERS, event->uid});
}

/* ---- a new stream ---- */

static void frame(struct buffer *to, const char *name, uint64_t id, struct buffer *text)
{
    if (!text->error)
        http_frame(to, name, id, text->data, text->len);
    buffer_reset(text);
}

static void hello(struct http_call *call, struct api *api, struct buffer *to)
{
    struct buffer text = BUFFER_INIT(TICK_MAX);
    struct json json;
    char node[256] = "";
    gethostname(node, sizeof(node) - 1);
    json_init(&json, &text);
    json_object_begin(&json);
    json_field_string(&json, "node", node);
    json_field_string(&json, "version", MEMOIR_VERSION);
    json_field_u64(&json, "started", api->started_real_ns / NS_PER_MS);
    json_field_string(&json, "session", http_viewer(call)->name);
    json_field_u64(&json, "last_event", events_last(api->daemon->events));
    json_object_end(&json);
    frame(to, "hello", 0, &text);
    buffer_release(&text);
}

/* What the client missed, in the order in which it happened. A row begins with its number. */
static void replay(struct http_call *call, struct api *api, uint64_t after, struct buffer *to)
{
    static const char start[] = "{\"seq\":";
    struct asking_viewer viewer = api_viewer(call);
    struct buffer text = BUFFER_INIT(REPLAY_MAX);
    size_t at = 0, len;
    const char *line;
    if (event_rows(api, NULL, after, &viewer, &text) >= 0)
        while (line_next(&text, &at, &line, &len))
            http_frame(to, "event", strtoull(line + strlen(start), NULL, 10), line, len);
    buffer_release(&text);
}

void api_answer_stream(struct http_call *call, void *context)
{
    struct daemon *daemon = context;
    const char *last = http_last_event_id(call);
    struct buffer first = BUFFER_INIT(REPLAY_MAX);
    uint64_t after = 0;
    bool missed = http_number(call, "after", &after);
    if (last && *last >= '0' && *last <= '9') {
        after = strtoull(last, NULL, 10);
        missed = true;
    }
    hello(call, daemon->api, &first);
    if (missed)
        replay(call, daemon->api, after, &first);
    http_stream(call, &first);
}

/* ---- life ---- */

int api_stream_start(struct api *api)
{
    struct api_stream *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    api->stream = s;
    buffer_init(&s->text, TICK_MAX);
    buffer_init(&s->growers, TICK_MAX);
    int r = leak_log_new(&api->leak_log);
    if (r >= 0)
        r = loop_add_timer(api->daemon->loop, on_tick, api, &s->timer);
    if (r >= 0)
        r = loop_add_timer(api->daemon->loop, on_tick, api, &s->retry);
    if (r >= 0)
        r = loop_timer_set(s->timer, TICK_MS * NS_PER_MS, TICK_MS * NS_PER_MS);
    if (r < 0)
        return r;
    events_listen(api->daemon->events, heard, api);
    return 0;
}

void api_stream_stop(struct api *api)
{
    struct api_stream *s = api->stream;
    if (!s)
        return;
    events_listen(api->daemon->events, NULL, NULL);
    loop_source_free(s->timer);
    loop_source_free(s->retry);
    buffer_release(&s->text);
    buffer_release(&s->growers);
    leak_log_free(api->leak_log);
    api->leak_log = NULL;
    free(s);
    api->stream = NULL;
}

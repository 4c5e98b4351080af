/* Queries of native clients go to the query core, with the rights of who asks.
 *
 * Programs repeat one query, so the last one is kept ready. The names of users come from /etc/passwd alone:
 * other sources may block, and the loop must not. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "daemon/daemon.h"
#include "daemon/exit_watch.h"
#include "daemon/growing.h"
#include "daemon/hosts.h"
#include "daemon/native_exited.h"
#include "daemon/native_internal.h"
#include "daemon/server.h"
#include "daemon/users.h"
#include "ledger/leaks.h"
#include "ledger/ledger.h"
#include "query/exit_file.h"
#include "query/query.h"

void native_query_release(struct native *native)
{
    query_result_free(native->result);
    query_free(native->query);
    free(native->asked);
    native->result = NULL;
    native->query = NULL;
    native->asked = NULL;
}

static bool same_query(const struct native_query *a, const struct native_query *b)
{
    return a->limit == b->limit && strcmp(a->table, b->table) == 0 && strcmp(a->by, b->by) == 0 &&
           strcmp(a->where, b->where) == 0 && strcmp(a->show, b->show) == 0 &&
           strcmp(a->sort, b->sort) == 0;
}

static int query_make(struct native *native, const struct native_query *asked,
                      struct query_error *error)
{
    if (native->query && same_query(asked, native->asked)) {
        query_result_reset(native->result);
        return 0;
    }
    native_query_release(native);
    struct query_spec spec = {
        .table = asked->table,
        .by = asked->by,
        .where = asked->where,
        .show = asked->show,
        .sort = asked->sort,
        .limit = asked->limit && asked->limit < NATIVE_ROWS_MAX ? asked->limit : NATIVE_ROWS_MAX,
    };
    int r = query_new(&spec, &native->query, error);
    if (r >= 0)
        r = query_result_new(native->query, NATIVE_GROUPS_MAX, &native->result);
    if (r >= 0 && !(native->asked = malloc(sizeof(*asked))))
        r = -ENOMEM;
    if (r < 0)
        native_query_release(native);
    else
        *native->asked = *asked;
    return r;
}

static const char *user_name(uint32_t uid, void *context)
{
    struct native *native = context;
    return users_name(native->users, uid);
}

/* Facts of /proc are refreshed for queries that look at processes, at most as often as the figures. */
static void facts_refresh(struct native *native)
{
    struct daemon *daemon = native->daemon;
    uint64_t now = clock_monotonic_ns();
    size_t n;
    if (now - native->facts_ns < daemon->config.refresh_ns)
        return;
    native->facts_ns = now;
    struct ledger_process *const *processes = ledger_processes(daemon->ledger, &n);
    for (size_t i = 0; i < n && clock_monotonic_ns() - now < NATIVE_FACTS_MS * NS_PER_MS; i++)
        ledger_update_facts(daemon->ledger, processes[i]);
}

/* Blocks and sites are read from the books' files, and whoever likes can make ten thousand processes, or let them
 * end: the loop has other things to do for most of the time. */
static bool is_costly(const char *table)
{
    static const char *const costly[] = {"buffers", "sites", "leaks", "host", "exited"};
    for (size_t i = 0; i < sizeof(costly) / sizeof(*costly); i++)
        if (strcmp(table, costly[i]) == 0)
            return true;
    return false;
}

static bool is_of_host(const char *table)
{
    return strcmp(table, "host") == 0 || strcmp(table, "system") == 0;
}

uint64_t native_query_wait(struct native_client *client)
{
    struct native *native = client->native;
    uint64_t who = client->viewer_uid;
    const char *table = native->parser.request.query.table;
    /* A refresh of many processes takes long: the loop neither does it nor waits for it. */
    if (is_of_host(table) && native->daemon->hosts && !hosts_ready(native->daemon->hosts))
        return NATIVE_HOST_WAIT_MS * NS_PER_MS;
    if (!is_costly(table))
        return 0;
    if (client->identity)
        who = hash_string(client->identity->token, who);
    return turns_wait(&native->turns, &client->turn, who, clock_monotonic_ns());
}

/* Who reports and then asks wants to see it: where reading all figures is cheap, new ones are read whenever
 * something was reported since, and not only when the last ones are a millisecond old. */
static void figures_refresh(struct native *native)
{
    struct server *server = native->daemon->server;
    if (server->figures.reports != native->reports_seen &&
        native->refresh_cost_ns < NATIVE_REFRESH_NS)
        server_figures_changed(server);
    native->reports_seen = server->figures.reports;
    server_refresh(server);
    /* One that was interrupted took longer than it costs: up slowly, down at once. */
    uint64_t more = native->refresh_cost_ns + native->refresh_cost_ns / 8 + 1000;
    native->refresh_cost_ns = server->refresh_cost_ns < more ? server->refresh_cost_ns : more;
}

static bool is_visible(const struct ledger_process *process, void *context)
{
    const struct native_client *client = context;
    return client->sees_all || process->uid == client->viewer_uid;
}

static int query_answer_run(struct native_client *client)
{
    struct native *native = client->native;
    struct daemon *daemon = native->daemon;
    struct query_exited_list exited = {0};
    MEMOIR_CLEANUP(leaks_release)
    struct leaks leaks = {0};
    const char *table = query_table_of(native->query)->name;
    uint64_t begin = clock_monotonic_ns();
    int r = 0;
    users_refresh(native->users);
    if (strcmp(table, "exited") == 0)
        r = native_exited_read(daemon->retired, exit_watch_file(daemon->exits), native->users,
                               &exited);
    if (strcmp(table, "processes") == 0)
        facts_refresh(native);
    if (r >= 0)
        figures_refresh(native);
    if (r >= 0 && strcmp(table, "leaks") == 0)
        r = growing_leaks(daemon->growing,
                          &(struct leaks_options){
                              .all = query_asks_unusual(native->query),
                              .deadline_ns = begin + NATIVE_QUERY_MS * NS_PER_MS,
                              .wanted = is_visible, /* nobody's time goes into others' books */
                              .context = client,
                          },
                          &leaks);
    const struct host *host =
        r >= 0 && is_of_host(table) && daemon->hosts ? hosts_lock(daemon->hosts) : NULL;
    if (r >= 0 && is_of_host(table) && !host)
        r = -ENODEV;
    if (r >= 0) {
        r = query_run(native->query,
                      &(struct query_world){
                          .ledger = daemon->ledger,
                          .exited = exited.rows,
                          .n_exited = exited.n,
                          .leaks = &leaks,
                          .host = host,
                          .sees_all = client->sees_all,
                          .viewer_uid = client->viewer_uid,
                          .user_name = user_name,
                          .context = native,
                          .time_max_ns = NATIVE_QUERY_MS * NS_PER_MS,
                      },
                      native->result);
        if (r == -ETIME)
            r = 0; /* the answer says that it is not complete */
    }
    query_exited_release(&exited);
    if (host)
        hosts_unlock(daemon->hosts);
    if (r >= 0)
        r = query_result_finish(native->result);
    if (is_costly(table))
        turns_done(&native->turns, begin, clock_monotonic_ns());
    return r;
}

static void refuse_query(struct native_client *client, const struct query_error *wrong)
{
    struct native_error error;
    native_error_set(&error, "bad-query", "%s", wrong->text);
    error.part = wrong->part;
    if (wrong->part) {
        error.at = (int64_t)wrong->at;
        error.len = (int64_t)wrong->len;
    }
    native_refuse(client, &error);
}

/* An answer that the client could not be given whole is none. */
static bool answer_fits(struct native_client *client)
{
    struct native *native = client->native;
    struct native_error error;
    size_t room = native->daemon->server->limits.queue_max;
    if (!native->out.error && native->out.len + conn_queued(client->conn) + NATIVE_ID_MAX < room)
        return true;
    native_error_set(&error, "limit",
                     "the answer is too large, or answers were not read: group with 'by', set "
                     "'limit', read before asking more");
    native_refuse(client, &error);
    return false;
}

/* With the processes that ended goes whether their ends are seen at all. */
static void exits_json(const struct exit_file *file, struct json *json)
{
    static const char *const states[] = {"off", "on", "failed"};
    const struct exit_file_header *h = file ? &file->header : NULL;
    json_key(json, "exits");
    json_object_begin(json);
    json_field_string(json, "state", h && h->state <= EXIT_WATCH_CANNOT ? states[h->state] : "off");
    if (h && h->state == EXIT_WATCH_CANNOT)
        json_field_string(json, "why", h->why);
    if (h && h->state == EXIT_WATCH_ON)
        json_field_double(json, "since", (double)(h->since_ns / NS_PER_MS) / 1000);
    if (h) {
        json_field_u64(json, "seen", h->seen);
        json_field_u64(json, "lost", h->lost);
        json_field_u64(json, "forgotten", h->forgotten);
    }
    if (h && h->gap_to_ns) {
        json_field_double(json, "gap_from", (double)(h->gap_from_ns / NS_PER_MS) / 1000);
        json_field_double(json, "gap_to", (double)(h->gap_to_ns / NS_PER_MS) / 1000);
    }
    json_object_end(json);
}

void native_query(struct native_client *client)
{
    struct native *native = client->native;
    struct query_error wrong = {0};
    struct json json;
    int r = query_make(native, &native->parser.request.query, &wrong);
    if (r == -EINVAL) {
        refuse_query(client, &wrong);
        return;
    }
    if (r >= 0)
        r = query_answer_run(client);
    if (r < 0) {
        struct native_error error;
        native_error_set(&error, "internal", "the query failed: %s", strerror(-r));
        native_refuse(client, &error);
        return;
    }
    native_answer_begin(native, &json);
    if (native->parser.request.query.partial) {
        json_key(&json, "partial");
        query_partial_json(native->result, &json);
    } else {
        json_key(&json, "result");
        json_object_begin(&json);
        query_result_json(native->result, &json);
        json_object_end(&json);
    }
    if (strcmp(query_table_of(native->query)->name, "exited") == 0)
        exits_json(exit_watch_file(native->daemon->exits), &json);
    native->daemon->server->figures.queries++;
    if (answer_fits(client))
        native_answer_end(client, &json);
}

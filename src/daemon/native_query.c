/* Queries of native clients: asking.h does them; here is how they come in and go out. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "daemon/asking.h"
#include "daemon/clustering.h"
#include "daemon/daemon.h"
#include "daemon/native_internal.h"
#include "daemon/server.h"
#include "history/past.h"
#include "query/query.h"

uint64_t native_query_wait(struct native_client *client)
{
    struct native *native = client->native;
    uint64_t who = client->viewer_uid;
    if (client->identity)
        who = hash_string(client->identity->token, who);
    const char *name = native->parser.request.query.table;
    const struct query_table *table = query_table_find(*name ? name : query_tables()[0]->name);
    return asking_wait(native->daemon->asking, table, &client->turn, who);
}

void native_refuse_query(struct native_client *client, const struct query_error *wrong)
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
bool native_answer_fits(struct native_client *client)
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

int native_window(const struct native_query *q, struct past_window *ret_window,
                  struct query_error *ret_error)
{
    struct past_window window = {q->since_s, q->until_s, q->step_s};
    const char *why = NULL;
    *ret_window = (struct past_window){0};
    if (!window.since_s && !window.until_s && !window.step_s)
        return 0;
    if (!window.until_s)
        window.until_s = clock_real_ns() / NS_PER_S + 1;
    if (!window.since_s)
        why = "until and step go with since";
    else if (window.until_s <= window.since_s)
        why = "until must be later than since";
    if (why) {
        *ret_error = (struct query_error){.part = "since"};
        snprintf(ret_error->text, sizeof(ret_error->text), "%s", why);
        return -EINVAL;
    }
    clustering_window_settle(&window);
    *ret_window = window;
    return 0;
}

/* The past of a table is another table, which takes long to read: asking_run() refuses it like all of these. */
static int ask(struct native_client *client, struct asked **ret_asked, struct query_error *wrong)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer texts = BUFFER_INIT(4 * QUERY_TEXT_MAX);
    struct past_window window;
    struct asking *asking = client->native->daemon->asking;
    const struct native_query *q = &client->native->parser.request.query;
    struct query_spec spec = {.table = q->table,
                              .by = q->by,
                              .where = q->where,
                              .show = q->show,
                              .sort = q->sort,
                              .limit = q->limit};
    int r = native_window(q, &window, wrong);
    if (r == 0)
        r = past_spec(&spec, &window, &texts, wrong);
    if (r == 0)
        r = asking_prepare(asking, &spec, ret_asked, wrong);
    if (r < 0)
        return r;
    return asking_run(
        asking, *ret_asked,
        &(struct asking_viewer){.sees_all = client->sees_all, .uid = client->viewer_uid});
}

/* Bytes in a text: other machines' answers are merged, not read by people. */
void native_partial_json(const struct query_result *result, size_t size_max, struct json *json)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer bytes = BUFFER_INIT(size_max);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(size_max);
    int r = query_partial_write(result, &bytes);
    if (r == 0)
        r = base64_append(&text, bytes.data, bytes.len);
    if (r == 0)
        json_string_n(json, text.data, text.len);
    else
        json->out->error = r; /* the client is told that it does not fit */
}

void native_query(struct native_client *client)
{
    struct native *native = client->native;
    struct query_error wrong = {0};
    struct asked *asked = NULL;
    struct json json;
    int r = ask(client, &asked, &wrong);
    if (r < 0 && !asked && wrong.text[0]) {
        native_refuse_query(client, &wrong);
        return;
    }
    if (r == -EOPNOTSUPP) {
        struct native_error error;
        native_error_set(
            &error, "bad-query",
            "the table %s takes long to read: ask for it over HTTP, or by 'memoir query'",
            query_table_of(asked->query)->name);
        native_refuse(client, &error);
        return;
    }
    if (r < 0) {
        struct native_error error;
        native_error_set(&error, "internal", "the query failed: %s", strerror(-r));
        native_refuse(client, &error);
        return;
    }
    native_answer_begin(native, &json);
    if (native->parser.request.query.partial) {
        json_key(&json, "partial");
        native_partial_json(asked->result, native->daemon->server->limits.queue_max, &json);
    } else {
        json_key(&json, "result");
        json_object_begin(&json);
        query_result_json(asked->result, &json);
        json_object_end(&json);
    }
    asking_exits_json(native->daemon->asking, asked, &json);
    asking_done(asked);
    native->daemon->server->figures.queries++;
    if (native_answer_fits(client))
        native_answer_end(client, &json);
}

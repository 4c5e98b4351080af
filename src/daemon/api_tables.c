/* Tables over HTTP: the general query, and those with names. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/accountable.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/api_history.h"
#include "daemon/api_internal.h"
#include "daemon/daemon.h"
#include "daemon/server.h"
#include "query/query.h"
#include "query/view.h"
#include "query/vocabulary.h"

struct asking_viewer api_viewer(const struct http_call *call)
{
    const struct http_viewer *viewer = http_viewer(call);
    return (struct asking_viewer){.sees_all = viewer->sees_all, .uid = viewer->uid, .hasty = true};
}

size_t api_viewer_slot(const struct http_call *call)
{
    const struct http_viewer *viewer = http_viewer(call);
    return viewer->sees_all ? 0 : 1 + accountable_uid(viewer->uid) % (API_TURNS - 1);
}

/* Calls of one viewer share a turn: the first call after it is due has it. */
bool api_turn(struct http_call *call, struct api *api, const struct query_table *table)
{
    size_t slot = api_viewer_slot(call);
    uint64_t wait_ns =
        asking_wait(api->daemon->asking, table, &api->turns[slot], http_viewer(call)->uid);
    if (wait_ns == 0)
        return true;
    http_again(call);
    return false;
}

void api_bad_query(struct http_call *call, const struct query_error *error)
{
    http_problem(call, 400, "bad-query", "%s", error->text);
    if (!error->part)
        return;
    struct json *json = http_problem_members(call);
    json_field_string(json, "part", error->part);
    json_field_u64(json, "at", error->at);
    json_field_u64(json, "len", error->len);
}

void api_json_begin(struct json *json, const char *schema)
{
    char time[QUERY_TIME_TEXT_MAX];
    json_object_begin(json);
    if (schema)
        json_field_string(json, "schema", schema);
    json_field_string(json, "time", query_time_text(time, clock_real_ns()));
}

/* ---- questions ---- */

static void answer(struct http_call *call, struct daemon *daemon, struct query_spec *spec)
{
    struct asking_viewer viewer = api_viewer(call);
    struct query_error wrong = {0};
    struct asked *asked;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer texts = BUFFER_INIT(4 * QUERY_TEXT_MAX);
    if (!api_history_spec(call, spec, &texts))
        return;
    if (api_cluster_wanted(call)) {
        api_cluster_query(call, daemon, spec);
        return;
    }
    int r = asking_prepare(daemon->asking, spec, &asked, &wrong);
    if (r < 0 && wrong.text[0]) {
        api_bad_query(call, &wrong);
        return;
    }
    if (r < 0) {
        api_failed(call, "the query failed", r);
        return;
    }
    if (query_needs(asked->query) & QUERY_NEEDS_HISTORY) { /* its file is not read on the loop */
        api_history_query(call, daemon, query_spec_of(asked->query));
        return;
    }
    if (query_needs(asked->query) & QUERY_NEEDS_MAPPINGS) { /* neither are mappings */
        api_explain_query(call, daemon, spec);
        return;
    }
    if (!api_turn(call, daemon->api, query_table_of(asked->query)))
        return;
    r = asking_run(daemon->asking, asked, &viewer);
    if (r == -EAGAIN) {
        http_again(call);
        return;
    }
    if (r < 0) {
        api_failed(call, "the query failed", r);
        return;
    }
    const char *shape = http_argument(call, "shape");
    struct json *json = http_json(call);
    api_json_begin(json, "memoir.query/1");
    if (shape && strcmp(shape, "arrays") == 0)
        query_result_arrays(asked->result, json);
    else
        query_result_json(asked->result, json);
    asking_exits_json(daemon->asking, asked, json);
    json_object_end(json);
    asking_done(asked);
    daemon->server->figures.queries++;
}

struct query_spec api_spec_of(const struct http_call *call)
{
    struct query_spec spec = {
        .by = http_argument(call, "by"),
        .where = http_argument(call, "where"),
        .show = http_argument(call, "show"),
        .sort = http_argument(call, "sort"),
    };
    (void)http_number(call, "limit", &spec.limit);
    return spec;
}

void api_answer_query(struct http_call *call, void *context)
{
    struct query_spec spec = api_spec_of(call);
    spec.table = http_argument(call, "table");
    answer(call, context, &spec);
}

void api_answer_view(struct http_call *call, void *context)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer where = BUFFER_INIT(4 * QUERY_TEXT_MAX);
    struct query_spec asked = api_spec_of(call), spec;
    const struct query_view *view = query_view_route(http_route(call)->name);
    int r = query_view_spec(view, &asked, &where, &spec);
    bool past = http_argument(call, "at") || http_argument(call, "since");
    if (past && spec.show == view->show && query_table_find(view->table) &&
        !(query_table_find(view->table)->needs & QUERY_NEEDS_EXITS))
        spec.show = NULL; /* not all of it is recorded */
    if (r < 0)
        api_failed(call, "the query failed", r);
    else
        answer(call, context, &spec);
}

/* ---- what tables there are ---- */

static void column_json(struct json *json, const struct query_column *column)
{
    json_object_begin(json);
    json_field_string(json, "name", column->name);
    json_field_string(json, "kind", query_kind_name(column->kind));
    json_field_string(json, "unit", query_column_unit(column));
    json_field_string(json, "help", query_column_help(column));
    json_field_bool(json, "private", column->flags & (QUERY_PRIVATE | QUERY_PRIVATE_ENDED));
    json_field_string(json, "cost",
                      column->needs & QUERY_NEEDS_PROBES ? "probe"
                      : column->flags & QUERY_DETAIL     ? "detail"
                                                         : "none");
    json_object_end(json);
}

void api_answer_tables(struct http_call *call, void *context)
{
    struct json *json = http_json(call);
    json_object_begin(json);
    json_key(json, "tables");
    json_array_begin(json);
    for (const struct query_table *const *t = query_tables(); *t; t++) {
        json_object_begin(json);
        json_field_string(json, "name", (*t)->name);
        json_field_string(json, "help", (*t)->help);
        json_field_string(json, "show", (*t)->show);
        json_field_string(json, "sort", (*t)->sort);
        json_field_bool(json, "private", (*t)->private_rows);
        json_key(json, "columns");
        json_array_begin(json);
        for (const struct query_column *c = (*t)->columns; c->name; c++)
            column_json(json, c);
        json_array_end(json);
        json_object_end(json);
    }
    json_array_end(json);
    json_object_end(json);
}

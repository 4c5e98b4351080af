/* The view `leaks` over HTTP: the question is that of every view, and its rows have what takes time to find, which the
 * worker reads from the books: functions and lines, stacks, and blocks. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/api_internal.h"
#include "daemon/asking_world.h"
#include "daemon/daemon.h"
#include "daemon/explaining.h"
#include "daemon/growing.h"
#include "daemon/leak_log.h"
#include "explain/outside.h"
#include "ledger/growth.h"
#include "ledger/leaks.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"
#include "profile/site_names.h"
#include "profile/suspects.h"
#include "query/query.h"
#include "query/view.h"

enum {
    PROCESSES_MAX = 32, /* whose books are read, */
    OUTSIDE_MAX = 4,    /* and whose mappings: 15 ms for a GB */
};

/* What the loop's thread knows. */
struct evidence {
    struct suspects suspects;
    struct part parts[PROCESSES_MAX];
    size_t n_parts;
    struct query *query;
    bool arrays;
    struct query_world world;
    struct growth_counts counts;
    uint64_t looks, needs_ns;
    struct leak_entry stopped[LEAK_LOG_MAX];
    size_t n_stopped;
    uint64_t mono_to_real_ns; /* what to add to a time of the series */
};

static void evidence_free(struct evidence *e)
{
    suspects_release(&e->suspects);
    query_free(e->query);
    for (size_t i = 0; i < e->n_parts; i++)
        part_release(&e->parts[i]);
    free(e);
}

static void evidence_release(struct job *job)
{
    evidence_free(job->more);
}

/* ---- on the loop ---- */

static bool is_wanted(const struct ledger_process *p, void *context)
{
    const struct asking_viewer *viewer = context;
    return query_may_see(viewer->sees_all, viewer->uid, p->uid);
}

struct taking {
    struct evidence *e;
    const struct leaks *leaks;
    size_t n;
};

static int each_series(const struct growth_series *series, void *context)
{
    struct taking *taking = context;
    for (size_t i = 0; i < taking->n; i++) {
        const struct leak *leak = &taking->leaks->rows[i];
        if (leak->site != series->site || leak->book->identity->st_ino != series->ino ||
            leak->book->identity->st_dev != series->dev)
            continue;
        size_t n = series->n < SUSPECT_POINTS_MAX ? series->n : SUSPECT_POINTS_MAX;
        const struct detect_point *from = series->points + (series->n - n);
        struct suspect *to = &taking->e->suspects.rows[i];
        to->points = malloc((n + 1) * sizeof(*to->points));
        if (!to->points)
            return -ENOMEM;
        for (to->n_points = 0; to->n_points < n; to->n_points++)
            to->points[to->n_points] =
                (struct suspect_point){from[to->n_points].time_ns + taking->e->mono_to_real_ns,
                                       detect_live_bytes(&from[to->n_points])};
        break;
    }
    return 0;
}

static void parts_take(struct evidence *e, const struct leaks *leaks, size_t n)
{
    for (size_t i = 0; i < n && e->n_parts < PROCESSES_MAX; i++) {
        const struct ledger_process *p = leaks->rows[i].process;
        bool known = false;
        for (size_t k = 0; k < i && !known; k++)
            known = leaks->rows[k].process == p;
        if (!known)
            part_take(p, &e->parts[e->n_parts++]);
    }
}

/* Those that have stopped, the latest first. */
static int latest_first(const void *a, const void *b)
{
    const struct leak_entry *x = a, *y = b;
    return (x->last_ns < y->last_ns) - (x->last_ns > y->last_ns);
}

static void stopped_take(struct daemon *daemon, const struct asking_viewer *viewer,
                         struct evidence *e)
{
    size_t n;
    const struct leak_entry *all = leak_log_entries(daemon->api->leak_log, &n);
    for (size_t i = 0; i < n; i++)
        if (leak_entry_stopped(&all[i]) && query_may_see(viewer->sees_all, viewer->uid, all[i].uid))
            e->stopped[e->n_stopped++] = all[i];
    qsort(e->stopped, e->n_stopped, sizeof(*e->stopped), latest_first);
}

static int evidence_take(struct daemon *daemon, const struct asking_viewer *viewer,
                         struct evidence *e)
{
    MEMOIR_CLEANUP(leaks_release)
    struct leaks leaks = {0};
    struct leaks_options options = {
        .deadline_ns = clock_monotonic_ns() + ASKING_MS * NS_PER_MS,
        .all = query_asks_unusual(e->query),
        .wanted = is_wanted,
        .context = (void *)viewer,
    };
    int r = growing_leaks(daemon->growing, &options, &leaks);
    if (r < 0)
        return r;
    size_t n = leaks.n;
    e->mono_to_real_ns = clock_real_ns() - proc_monotonic_ns();
    r = asking_suspects(daemon, viewer, &leaks, &e->suspects);
    if (r >= 0)
        r = growing_each(daemon->growing, each_series, &(struct taking){e, &leaks, n});
    if (r < 0)
        return r;
    parts_take(e, &leaks, n);
    growing_facts(daemon->growing, &e->counts, &e->looks, &e->needs_ns);
    stopped_take(daemon, viewer, e);
    return 0;
}

/* ---- on the worker ---- */

static double seconds(uint64_t ns)
{
    return (double)(ns / NS_PER_MS) / 1000;
}

static void stopped_json(const struct leak_entry *s, struct json *json)
{
    char time[QUERY_TIME_TEXT_MAX];
    json_object_begin(json);
    json_field_i64(json, "pid", s->pid);
    json_field_string(json, "program", s->program);
    json_field_string(json, "frame", s->frame[0] ? s->frame : NULL);
    json_field_string(json, "found", query_time_text(time, s->found_ns));
    json_field_string(json, "last", query_time_text(time, s->last_ns));
    json_field_u64(json, "bytes", s->live_bytes);
    json_field_bool(json, "ended", s->ended);
    json_object_end(json);
}

/* Not known yet is not the same as nothing. */
static void watch_json(const struct evidence *e, struct json *json)
{
    json_key(json, "watch");
    json_object_begin(json);
    json_field_bool(json, "ready", e->suspects.span_ns >= e->needs_ns && e->needs_ns > 0);
    json_field_double(json, "watched", seconds(e->suspects.span_ns));
    json_field_double(json, "needs", seconds(e->needs_ns));
    json_field_u64(json, "sites", e->suspects.sites);
    json_field_u64(json, "left_out", e->counts.left_out);
    json_field_u64(json, "looks", e->looks);
    json_field_u64(json, "books", e->counts.books);
    json_key(json, "stopped");
    json_array_begin(json);
    for (size_t i = 0; i < e->n_stopped; i++)
        stopped_json(&e->stopped[i], json);
    json_array_end(json);
    json_object_end(json);
}

/* Of growth outside malloc: whose memory it is. */
static void outside_named(struct job *job, struct suspects *suspects)
{
    MEMOIR_CLEANUP(freep)
    struct explain *e = calloc(1, sizeof(*e));
    const struct asking_viewer viewer = api_viewer(job->call);
    for (size_t i = 0, n = 0; e && i < suspects->n && n < OUTSIDE_MAX; i++) {
        struct suspect *s = &suspects->rows[i];
        if (!s->outside || !s->pid || !api_goes_on(0, 0, job))
            continue;
        n++;
        if (explaining_take(job->api->daemon, &viewer, (pid_t)s->pid, s->uid, e) == 0)
            outside_name(e, s);
    }
}

static void run(struct job *job)
{
    struct evidence *e = job->more;
    struct site_names *names __attribute__((cleanup(site_names_freep))) =
        e->n_parts ? site_names_over(api_symbols(job, NULL)) : NULL;
    for (size_t i = 0; i < e->n_parts && api_goes_on(0, 0, job); i++) {
        MEMOIR_CLEANUP(ledger_freep)
        struct ledger *ledger = NULL;
        struct ledger_process *process;
        (void)api_symbols(job, &e->parts[i]);
        if (part_open(&e->parts[i], &ledger, &process) == 0)
            suspects_name(&e->suspects, e->suspects.n, ledger, names);
    }
    outside_named(job, &e->suspects);
    MEMOIR_CLEANUP(query_result_freep)
    struct query_result *result = NULL;
    e->world.suspects = &e->suspects;
    int r = query_result_new(e->query, 0, &result);
    if (r == 0)
        r = query_run(e->query, &e->world, result);
    if (r == 0)
        r = query_result_finish(result);
    if (r < 0) {
        api_failed(job->call, "the query failed", r);
        return;
    }
    struct json *json = http_json(job->call);
    api_json_begin(json, "memoir.query/1");
    if (e->arrays)
        query_result_arrays(result, json);
    else
        query_result_json(result, json);
    watch_json(e, json);
    json_object_end(json);
}

/* The question, made on the loop, since its words are the call's. 0, or the call has its problem. */
static int question(struct http_call *call, struct evidence *e)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer where = BUFFER_INIT(4 * QUERY_TEXT_MAX);
    struct query_spec asked = api_spec_of(call), spec;
    struct query_error wrong = {0};
    const char *shape = http_argument(call, "shape");
    e->arrays = shape && strcmp(shape, "arrays") == 0;
    if (!asked.limit || asked.limit > API_SUSPECTS_MAX)
        asked.limit = API_SUSPECTS_MAX;
    int r = query_view_spec(query_view_route(http_route(call)->name), &asked, &where, &spec);
    if (r == 0)
        r = query_new(&spec, &e->query, &wrong);
    if (r < 0 && wrong.text[0])
        api_bad_query(call, &wrong);
    else if (r < 0)
        api_failed(call, "the query failed", r);
    return r;
}

void api_answer_leaks(struct http_call *call, void *context)
{
    struct daemon *daemon = context;
    struct asking_viewer viewer = api_viewer(call);
    const char *node = http_argument(call, "node");
    if (node && api_cluster_call(call, daemon, node))
        return;
    bool past = http_argument(call, "at") || http_argument(call, "since"); /* which there is not */
    if (past ||
        (!node && api_cluster_wanted(call))) { /* rows of all nodes, without what the books say */
        api_answer_view(call, context);
        return;
    }
    struct evidence *e = calloc(1, sizeof(*e));
    if (!e) {
        api_failed(call, "the query failed", -ENOMEM);
        return;
    }
    if (question(call, e) < 0 || !api_turn(call, daemon->api, query_table_of(e->query))) {
        evidence_free(e);
        return;
    }
    e->world = (struct query_world){.sees_all = viewer.sees_all, .viewer_uid = viewer.uid};
    uint64_t begin_ns = clock_monotonic_ns();
    int r = evidence_take(daemon, &viewer, e);
    asking_costs(daemon->asking, begin_ns);
    if (r < 0) {
        evidence_free(e);
        api_failed(call, "the watch over call sites failed", r);
        return;
    }
    api_job(call, daemon->api, NULL, run, evidence_release, e);
}

/* Call sites that may leak over HTTP: verdicts and series of memoird's watch, with names, stacks and sample blocks from
 * the books, which the worker reads. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/api_internal.h"
#include "daemon/daemon.h"
#include "daemon/growing.h"
#include "daemon/leak_log.h"
#include "ledger/growth.h"
#include "ledger/leaks.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"
#include "profile/site_names.h"
#include "profile/suspects.h"
#include "query/query.h"

enum { PROCESSES_MAX = 32, POINTS_MAX = 400 }; /* whose books are read; of one series */

struct series {
    struct detect_point *points;
    size_t n;
};

/* What the loop's thread knows. */
struct evidence {
    struct suspects suspects;
    struct series series[API_SUSPECTS_MAX];
    struct part parts[PROCESSES_MAX];
    size_t n_parts;
    size_t all; /* suspects, also those past the limit */
    struct growth_counts counts;
    uint64_t looks, needs_ns, interval_ns;
    struct leak_entry stopped[LEAK_LOG_MAX];
    size_t n_stopped;
    uint64_t mono_to_real_ns; /* what to add to a time of the series */
};

static void evidence_free(struct evidence *e)
{
    suspects_release(&e->suspects);
    for (size_t i = 0; i < API_SUSPECTS_MAX; i++)
        free(e->series[i].points);
    for (size_t i = 0; i < e->n_parts; i++)
        part_release(&e->parts[i]);
    free(e);
}

static void evidence_release(struct job *job)
{
    evidence_free(job->more);
}

/* ---- on the loop ---- */

struct wanted {
    struct asking_viewer viewer;
    uint64_t pid; /* 0: all */
};

static bool is_wanted(const struct ledger_process *p, void *context)
{
    const struct wanted *wanted = context;
    return query_may_see(wanted->viewer.sees_all, wanted->viewer.uid, p->uid) &&
           (!wanted->pid || (p->valid & LEDGER_HAS_PID && (uint64_t)p->pid == wanted->pid));
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
        size_t n = series->n < POINTS_MAX ? series->n : POINTS_MAX;
        struct series *to = &taking->e->series[i];
        to->points = malloc((n + 1) * sizeof(*to->points));
        if (!to->points)
            return -ENOMEM;
        memcpy(to->points, series->points + (series->n - n), n * sizeof(*to->points));
        to->n = n;
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

static void stopped_take(struct daemon *daemon, const struct wanted *wanted, struct evidence *e)
{
    size_t n;
    const struct leak_entry *all = leak_log_entries(daemon->api->leak_log, &n);
    for (size_t i = 0; i < n; i++)
        if (leak_entry_stopped(&all[i]) && (!wanted->pid || all[i].pid == (int64_t)wanted->pid) &&
            query_may_see(wanted->viewer.sees_all, wanted->viewer.uid, all[i].uid))
            e->stopped[e->n_stopped++] = all[i];
    qsort(e->stopped, e->n_stopped, sizeof(*e->stopped), latest_first);
}

static int evidence_take(struct daemon *daemon, const struct wanted *wanted, struct evidence *e)
{
    MEMOIR_CLEANUP(leaks_release)
    struct leaks leaks = {0};
    struct leaks_options options = {
        .deadline_ns = clock_monotonic_ns() + ASKING_MS * NS_PER_MS,
        .wanted = is_wanted,
        .context = (void *)wanted,
    };
    int r = growing_leaks(daemon->growing, &options, &leaks);
    if (r < 0)
        return r;
    e->all = leaks.n;
    size_t n = leaks.n < API_SUSPECTS_MAX ? leaks.n : API_SUSPECTS_MAX;
    struct leaks shown = leaks;
    shown.n = n;
    r = suspects_from(&shown, &e->suspects);
    if (r >= 0)
        r = growing_each(daemon->growing, each_series, &(struct taking){e, &leaks, n});
    if (r < 0)
        return r;
    parts_take(e, &leaks, n);
    growing_facts(daemon->growing, &e->counts, &e->looks, &e->needs_ns);
    stopped_take(daemon, wanted, e);
    e->mono_to_real_ns = clock_real_ns() - proc_monotonic_ns();
    return 0;
}

/* ---- on the worker ---- */

static double seconds(uint64_t ns)
{
    return (double)(ns / NS_PER_MS) / 1000;
}

static void field_known(struct json *json, const char *key, bool known, double value)
{
    json_key(json, key);
    if (known)
        json_double(json, value);
    else
        json_null(json);
}

static void series_json(const struct series *series, uint64_t mono_to_real_ns, struct json *json)
{
    json_key(json, "series");
    json_object_begin(json);
    json_key(json, "t");
    json_array_begin(json);
    for (size_t i = 0; i < series->n; i++)
        json_double(json, seconds(series->points[i].time_ns + mono_to_real_ns));
    json_array_end(json);
    json_key(json, "bytes");
    json_array_begin(json);
    for (size_t i = 0; i < series->n; i++)
        json_u64(json, detect_live_bytes(&series->points[i]));
    json_array_end(json);
    json_key(json, "blocks");
    json_array_begin(json);
    for (size_t i = 0; i < series->n; i++)
        json_u64(json, detect_live_blocks(&series->points[i]));
    json_array_end(json);
    json_object_end(json);
}

static void site_json(const struct suspect *s, struct json *json)
{
    json_key(json, "site");
    json_object_begin(json);
    json_field_string(json, "text", s->site ? s->site : s->frame);
    json_field_string(json, "function", s->function);
    json_field_string(json, "file", s->file);
    json_key(json, "line");
    if (s->line)
        json_u64(json, s->line);
    else
        json_null(json);
    json_field_string(json, "frame", s->frame);
    json_object_end(json);
    json_key(json, "stack");
    json_array_begin(json);
    for (unsigned i = 0; i < s->n_stack; i++)
        json_string(json, s->stack[i]);
    json_array_end(json);
}

static void why_json(const struct suspect *s, struct json *json)
{
    json_key(json, "why");
    json_array_begin(json);
    if (s->why)
        json_string(json, s->why);
    if (s->ever_freed >= 0) {
        char text[96];
        snprintf(text, sizeof(text), "Of all that was ever allocated here, %.1f %% was freed.",
                 s->ever_freed * 100);
        json_string(json, text);
    }
    json_array_end(json);
}

static void suspect_json(const struct evidence *e, size_t i, struct json *json)
{
    const struct suspect *s = &e->suspects.rows[i];
    char time[QUERY_TIME_TEXT_MAX];
    json_object_begin(json);
    json_field_u64(json, "pid", s->pid);
    json_field_string(json, "program", s->program);
    json_field_string(json, "device", s->device);
    json_field_string(json, "space", s->space);
    json_field_string(json, "level", detect_verdict_word(s->verdict));
    json_field_string(json, "reason", s->reason);
    json_field_double(json, "confidence", s->confidence);
    /* What ranks them: sure and fast comes first. */
    json_field_double(json, "score", s->bytes_per_s > 0 ? s->confidence * s->bytes_per_s : 0);
    json_field_double(json, "rate", s->bytes_per_s);
    json_field_double(json, "blocks_rate", s->blocks_per_s);
    json_field_u64(json, "live_bytes", s->live_bytes);
    json_field_u64(json, "live_blocks", s->live_blocks);
    field_known(json, "freed_share", s->ever_freed >= 0, s->ever_freed);
    json_field_double(json, "watched_s", seconds(s->span_ns));
    json_field_string(json, "since", query_time_text(time, clock_real_ns() - s->growing_ns));
    /* It may have grown before: nobody watched. */
    json_field_bool(json, "since_watched", s->growing_ns >= s->span_ns - s->span_ns / 20);
    json_key(json, "limit");
    if (s->left_ns != UINT64_MAX && s->limit) {
        json_object_begin(json);
        json_field_double(json, "in_s", seconds(s->left_ns));
        json_field_u64(json, "bytes", s->limit_bytes);
        json_field_string(json, "what", s->limit);
        json_object_end(json);
    } else {
        json_null(json);
    }
    site_json(s, json);
    why_json(s, json);
    series_json(&e->series[i], e->mono_to_real_ns, json);
    json_key(json, "samples");
    json_array_begin(json);
    for (unsigned k = 0; k < s->n_blocks; k++) {
        char address[24];
        snprintf(address, sizeof(address), "0x%" PRIx64, s->blocks[k].id);
        json_object_begin(json);
        json_field_string(json, "address", address);
        json_field_u64(json, "bytes", s->blocks[k].bytes);
        json_field_double(json, "age", seconds(s->blocks[k].age_ns));
        json_object_end(json);
    }
    json_array_end(json);
    json_object_end(json);
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
    json_field_u64(json, "live_bytes", s->live_bytes);
    json_field_bool(json, "ended", s->ended);
    json_object_end(json);
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
    struct json *json = http_json(job->call);
    api_json_begin(json, "memoir.suspects/1");
    json_key(json, "suspects");
    json_array_begin(json);
    for (size_t i = 0; i < e->suspects.n; i++)
        suspect_json(e, i, json);
    json_array_end(json);
    json_key(json, "stopped");
    json_array_begin(json);
    for (size_t i = 0; i < e->n_stopped; i++)
        stopped_json(&e->stopped[i], json);
    json_array_end(json);
    json_field_u64(json, "matched", e->all);
    json_field_u64(json, "books", e->counts.books);
    json_field_u64(json, "watched", e->suspects.sites);
    json_field_u64(json, "left_out", e->counts.left_out);
    json_field_bool(json, "ready", e->suspects.span_ns >= e->needs_ns && e->needs_ns > 0);
    json_field_double(json, "watched_s", seconds(e->suspects.span_ns));
    json_field_double(json, "needs_s", seconds(e->needs_ns));
    json_field_u64(json, "looks", e->looks);
    json_field_bool(json, "incomplete", e->suspects.incomplete);
    json_object_end(json);
}

void api_answer_suspects(struct http_call *call, void *context)
{
    struct daemon *daemon = context;
    struct wanted wanted = {.viewer = api_viewer(call)};
    (void)http_number(call, "pid", &wanted.pid);
    if (!api_turn(call, daemon->api, query_table_find("leaks")))
        return;
    struct evidence *e = calloc(1, sizeof(*e));
    uint64_t begin_ns = clock_monotonic_ns();
    int r = e ? evidence_take(daemon, &wanted, e) : -ENOMEM;
    asking_costs(daemon->asking, begin_ns);
    if (r < 0) {
        if (e)
            evidence_free(e);
        api_failed(call, "the watch over call sites failed", r);
        return;
    }
    api_job(call, daemon->api, NULL, run, evidence_release, e);
}

/* memoird about itself, who asks, and what happened lately. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/version.h"
#include "daemon/api_internal.h"
#include "daemon/chores.h"
#include "daemon/climbing.h"
#include "daemon/daemon.h"
#include "daemon/driver_facts.h"
#include "daemon/events.h"
#include "daemon/exit_watch.h"
#include "daemon/growing.h"
#include "daemon/history.h"
#include "daemon/loop.h"
#include "daemon/pressure.h"
#include "daemon/reaper.h"
#include "daemon/retired.h"
#include "daemon/server.h"
#include "daemon/tracing.h"
#include "ledger/driver.h"
#include "ledger/growth.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"
#include "query/exit_file.h"
#include "query/query.h"

/* ---- self ---- */

static uint64_t descriptors(void)
{
    struct stat st;
    if (stat("/proc/self/fd", &st) == 0 && st.st_size > 0)
        return (uint64_t)st.st_size; /* newer kernels count them for us */
    DIR *dir = opendir("/proc/self/fd");
    uint64_t n = 0;
    for (; dir && readdir(dir); n++)
        ;
    if (dir)
        closedir(dir);
    return n > 3 ? n - 3 : 0; /* . and .. and the directory's own */
}

static double cpu_seconds(const struct timeval *time)
{
    return (double)time->tv_sec + (double)time->tv_usec / 1e6;
}

static void process_json(const struct api *api, struct json *json)
{
    struct rusage usage = {0};
    struct proc_memory memory;
    struct proc_stat stat;
    char time[QUERY_TIME_TEXT_MAX];
    getrusage(RUSAGE_SELF, &usage);
    json_field_string(json, "version", MEMOIR_VERSION);
    json_field_i64(json, "pid", getpid());
    json_field_u64(json, "uid", geteuid());
    json_field_string(json, "started", query_time_text(time, api->started_real_ns));
    json_field_double(json, "uptime",
                      (double)((clock_real_ns() - api->started_real_ns) / NS_PER_MS) / 1000);
    json_key(json, "cpu");
    json_object_begin(json);
    json_field_double(json, "user", cpu_seconds(&usage.ru_utime));
    json_field_double(json, "system", cpu_seconds(&usage.ru_stime));
    json_object_end(json);
    uint64_t peak = (uint64_t)usage.ru_maxrss * 1024; /* the kernel notes it late */
    json_key(json, "rss");
    if (proc_memory_read(getpid(), &memory) == 0) {
        json_u64(json, memory.rss_bytes);
        peak = memory.rss_bytes > peak ? memory.rss_bytes : peak;
    } else {
        json_null(json);
    }
    json_field_u64(json, "peak_rss", peak);
    json_key(json, "threads");
    if (proc_stat_read(getpid(), &stat) == 0)
        json_u64(json, stat.threads);
    else
        json_null(json);
    json_field_u64(json, "descriptors", descriptors());
}

static void loop_json(struct daemon *daemon, struct json *json)
{
    struct loop_lag lag = loop_lag(daemon->loop);
    json_key(json, "loop");
    json_object_begin(json);
    json_field_u64(json, "turns", lag.turns);
    json_field_double(json, "lag_p50", (double)lag.p50_ns / 1e9);
    json_field_double(json, "lag_p99", (double)lag.p99_ns / 1e9);
    json_field_double(json, "lag_max", (double)lag.max_ns / 1e9);
    json_field_double(json, "refresh", (double)daemon->server->refresh_cost_ns / 1e9);
    json_object_end(json);
}

static void books_json(struct daemon *daemon, struct json *json)
{
    static const char *const problems[LEDGER_PROBLEM_KINDS] = {
        [LEDGER_PROBLEM_UNREADABLE] = "unreadable", [LEDGER_PROBLEM_BAD] = "bad",
        [LEDGER_PROBLEM_NOT_READY] = "not_ready",   [LEDGER_PROBLEM_OWNER] = "owner",
        [LEDGER_PROBLEM_LIMIT] = "limit",           [LEDGER_PROBLEM_PLACE] = "place",
    };
    uint64_t losses = 0, suspended = 0, bytes = 0;
    size_t n;
    struct ledger_process *const *all = ledger_processes(daemon->ledger, &n);
    for (size_t i = 0; i < n; i++) {
        bytes += all[i]->book_bytes;
        for (size_t k = 0; k < BOOK_LOSSES_MAX; k++)
            *(k == BOOK_LOSS_SUSPENDED ? &suspended : &losses) += all[i]->losses[k];
    }
    json_key(json, "books");
    json_object_begin(json);
    json_field_u64(json, "books", ledger_books(daemon->ledger).n);
    json_field_u64(json, "processes", n);
    json_field_u64(json, "bytes", bytes);
    json_field_u64(json, "reports_lost", losses);
    json_field_u64(json, "reports_suspended", suspended);
    json_field_u64(json, "deaths_polled", reaper_polled(daemon->reaper));
    json_field_u64(json, "retired", retired_total(daemon->retired));
    json_field_u64(json, "retired_lost", retired_lost(daemon->retired));
    json_key(json, "problems");
    json_object_begin(json);
    for (int kind = 0; kind < LEDGER_PROBLEM_KINDS; kind++)
        json_field_u64(json, problems[kind],
                       ledger_problem_count(daemon->ledger, (enum ledger_problem_kind)kind));
    json_object_end(json);
    json_object_end(json);
}

static void sockets_json(const struct server_figures *f, struct json *json)
{
    const struct {
        const char *name;
        uint64_t value;
    } all[] = {
        {"connections", f->connections},
        {"accepted", f->accepted},
        {"reports", f->reports},
        {"queries", f->queries},
        {"bytes_in", f->bytes_in},
        {"bytes_out", f->bytes_out},
        {"throttled", f->throttled},
        {"refused_connections",
         f->refused_connections_max + f->refused_connections_per_user_max + f->refused_descriptors},
        {"closed_message", f->closed_message},
        {"closed_stalled", f->closed_stalled},
        {"closed_queue", f->closed_queue},
        {"bad_reports", f->bad_reports},
        {"denied", f->denied_reports + f->denied_questions},
        {"refused_buffers", f->refused_buffers},
        {"refused_books", f->refused_books},
        {"adopted_books", f->adopted_books},
        {"expired_books", f->expired_books},
    };
    json_key(json, "sockets");
    json_object_begin(json);
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        json_field_u64(json, all[i].name, all[i].value);
    json_object_end(json);
}

static void history_self_json(struct daemon *daemon, struct json *json)
{
    json_key(json, "history");
    if (!daemon->history) {
        json_null(json);
        return;
    }
    struct history_counts counts = history_counts(daemon->history);
    json_object_begin(json);
    json_field_bool(json, "stopped", counts.stopped);
    json_field_u64(json, "taken", counts.taken);
    json_field_u64(json, "lost", counts.lost);
    json_field_u64(json, "written", counts.written);
    json_field_u64(json, "dropped", counts.dropped);
    json_field_u64(json, "left_out", counts.left_out);
    json_object_end(json);
}

static void exits_self_json(struct daemon *daemon, struct json *json)
{
    static const char *const states[] = {"off", "on", "failed"};
    const struct exit_file *file = exit_watch_file(daemon->exits);
    json_key(json, "exits");
    json_object_begin(json);
    json_field_string(json, "state",
                      file && file->header.state <= EXIT_WATCH_CANNOT ? states[file->header.state]
                                                                      : "off");
    json_field_u64(json, "seen", file ? file->header.seen : 0);
    json_field_u64(json, "lost", file ? file->header.lost : 0);
    json_object_end(json);
}

/* null where NVML is not asked at all. */
static void driver_json(struct daemon *daemon, struct json *json)
{
    struct driver_facts_status status;
    json_key(json, "driver");
    if (!daemon->driver) {
        json_null(json);
        return;
    }
    driver_facts_status(daemon->driver, &status);
    json_object_begin(json);
    json_field_string(json, "version", ledger_driver_version(daemon->ledger));
    json_field_string(json, "problem", status.why);
    json_field_u64(json, "readings", status.readings);
    json_field_u64(json, "failures", status.failures);
    json_field_double(json, "reading", (double)status.cost_ns / 1e9);
    json_object_end(json);
}

static void tracing_json(struct daemon *daemon, struct json *json)
{
    json_key(json, "tracing");
    json_object_begin(json);
    json_field_string(json, "state", tracing_state_name(tracing_state(daemon->tracing)));
    json_field_string(json, "problem", tracing_why(daemon->tracing));
    json_object_end(json);
}

static void watch_json(struct daemon *daemon, struct json *json)
{
    struct growth_counts counts;
    uint64_t looks, needs_ns;
    growing_facts(daemon->growing, &counts, &looks, &needs_ns);
    json_key(json, "leaks");
    json_object_begin(json);
    json_field_u64(json, "sites", counts.sites);
    json_field_u64(json, "books", counts.books);
    json_field_u64(json, "left_out", counts.left_out);
    json_field_u64(json, "bytes", counts.bytes);
    json_field_u64(json, "looks", looks);
    struct climbing_facts untracked = climbing_facts(daemon->climbing);
    json_field_u64(json, "untracked", untracked.watched);
    json_field_u64(json, "untracked_left_out", untracked.left_out);
    json_field_u64(json, "explanations", untracked.explanations);
    json_field_double(json, "explanations_time", (double)(untracked.explain_ns / NS_PER_MS) / 1000);
    json_object_end(json);
}

static void http_self_json(struct http *http, struct api *api, struct json *json)
{
    struct http_figures f;
    http_figures(http, &f);
    const struct {
        const char *name;
        uint64_t value;
    } all[] = {
        {"requests", f.requests},
        {"answers_kept", f.answers_kept},
        {"answers_waited", f.answers_waited},
        {"not_modified", f.not_modified},
        {"compressed", f.compressed},
        {"problems", f.problems},
        {"bytes_in", f.bytes_in},
        {"bytes_out", f.bytes_out},
        {"refused", f.refused_role + f.refused_host + f.refused_origin},
        {"refused_connections", f.refused_connections + f.refused_streams},
        {"closed_slow", f.closed_slow},
        {"events", f.events},
        {"events_lost", f.events_lost},
        {"connections", f.connections},
        {"streams", f.streams},
        {"waiting", f.waiting},
        {"cache_entries", f.cache_entries},
        {"cache_size", f.cache_bytes},
        {"worker_waiting", chores_waiting(api->chores)},
    };
    json_key(json, "http");
    json_object_begin(json);
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        json_field_u64(json, all[i].name, all[i].value);
    json_object_end(json);
}

void api_answer_self(struct http_call *call, void *context)
{
    struct daemon *daemon = context;
    struct json *json = http_json(call);
    api_json_begin(json, "memoir.self/2");
    process_json(daemon->api, json);
    loop_json(daemon, json);
    books_json(daemon, json);
    sockets_json(&daemon->server->figures, json);
    history_self_json(daemon, json);
    exits_self_json(daemon, json);
    json_key(json, "pressure");
    pressure_json(daemon->pressure, json);
    watch_json(daemon, json);
    driver_json(daemon, json);
    tracing_json(daemon, json);
    http_self_json(http_server(call), daemon->api, json);
    json_key(json, "events");
    json_object_begin(json);
    json_field_u64(json, "last", events_last(daemon->events));
    json_field_u64(json, "left_out", events_left_out(daemon->events));
    json_object_end(json);
    json_object_end(json);
}

/* ---- session ---- */

void api_answer_session(struct http_call *call, void *context)
{
    static const char *const roles[] = {
        [HTTP_NONE] = "none", [HTTP_READ] = "read", [HTTP_CONTROL] = "control"};
    static const char *const bys[] = {[HTTP_BY_NOBODY] = "nobody",
                                      [HTTP_BY_PEER] = "peer",
                                      [HTTP_BY_TOKEN] = "token",
                                      [HTTP_BY_SESSION] = "session"};
    struct daemon *daemon = context;
    const struct http_viewer *viewer = http_viewer(call);
    char node[256] = "";
    gethostname(node, sizeof(node) - 1);
    const char *user =
        viewer->uid == HTTP_VIEWER_NOBODY ? NULL : asking_user_name(daemon->asking, viewer->uid);
    struct json *json = http_json(call);
    json_object_begin(json);
    json_field_string(json, "user", user);
    json_field_string(json, "name", viewer->name);
    json_key(json, "uid");
    if (viewer->uid == HTTP_VIEWER_NOBODY)
        json_null(json);
    else
        json_u64(json, viewer->uid);
    json_field_string(json, "role", roles[viewer->role]);
    json_field_string(json, "by", bys[viewer->by]);
    json_field_bool(json, "sees_all", viewer->sees_all);
    json_field_string(json, "node", node);
    json_field_string(json, "version", MEMOIR_VERSION);
    json_field_bool(json, "tracking_possible", viewer->role == HTTP_CONTROL);
    json_object_end(json);
}

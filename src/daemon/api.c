/* The table of routes, and the life of what stands behind them. */
#include "daemon/api.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/api_internal.h"
#include "daemon/api_trace_json.h"
#include "daemon/chores.h"
#include "daemon/daemon.h"
#include "daemon/symbol_pool.h"
#include "daemon/traces.h"
#include "ledger/ledger.h"
#include "query/query.h"
#include "query/view.h"
#include "site/symbols.h"

enum { API_VIEWS_MAX = 48, API_PATH_MAX = 96 };

/* ---- parameters ---- */

#define PARAM_BY                                                                    \
    {                                                                               \
        .name = "by", .kind = HTTP_TEXT, .max = 4096,                               \
        .help = "columns to group by: one row for each combination of their values" \
    }
#define PARAM_WHERE                                                                \
    {                                                                              \
        .name = "where", .kind = HTTP_TEXT, .max = 4096,                           \
        .help = "which rows: user=ann and rss>1GB (doc/query.md has the language)" \
    }
#define PARAM_SHOW                                                            \
    {                                                                         \
        .name = "show", .kind = HTTP_TEXT, .max = 4096,                       \
        .help = "columns of the answer: rss,max(age),count; /tables has them" \
    }
#define PARAM_SORT                                                                       \
    {                                                                                    \
        .name = "sort", .kind = HTTP_TEXT, .max = 4096,                                  \
        .help = "order of the rows: -rss,program; - is large first and + is small first" \
    }
#define PARAM_LIMIT                                                                          \
    {                                                                                        \
        .name = "limit", .kind = HTTP_NUMBER, .max = ASKING_ROWS_MAX, .help = "rows at most" \
    }
#define PARAM_SHAPE                                                                              \
    {                                                                                            \
        .name = "shape", .kind = HTTP_WORD, .words = "objects|arrays",                           \
        .help =                                                                                  \
            "rows as objects by column (the default), or as arrays, which is about half as long" \
    }
#define PARAM_SCOPE                                                                                \
    {                                                                                              \
        .name = "scope", .kind = HTTP_WORD, .words = "node|cluster",                               \
        .help = "this node (the default), or all nodes of the cluster: their rows together, with " \
                "\"cluster\" telling how many answered and which did not"                          \
    }
#define PARAM_NODE                                                             \
    {                                                                          \
        .name = "node", .kind = HTTP_TEXT, .max = 80,                          \
        .help = "another node of the cluster, by the name that /cluster tells" \
    }
#define PARAM_PID                                                                           \
    {                                                                                       \
        .name = "pid", .in = HTTP_IN_PATH, .kind = HTTP_NUMBER, .min = 1, .max = INT32_MAX, \
        .help = "process id"                                                                \
    }
#define PARAM_SPACE                                                            \
    {                                                                          \
        .name = "space", .kind = HTTP_TEXT, .max = 32,                         \
        .help = "only this kind of memory: heap, mapped, pinned, dram, l1 ..." \
    }

#define PARAM_FROM                                                                 \
    {                                                                              \
        .name = "from", .kind = HTTP_TEXT, .max = 32,                              \
        .help = "seconds since 1970, or a time before now: -1h (the default), -7d" \
    }
#define PARAM_TO                                          \
    {                                                     \
        .name = "to", .kind = HTTP_TEXT, .max = 32,       \
        .help = "until then, the same way (default: now)" \
    }
#define PARAM_POINTS                                                  \
    {                                                                 \
        .name = "points", .kind = HTTP_NUMBER, .min = 1, .max = 5000, \
        .help = "of the past: steps at most (default: 300)"           \
    }

#define PARAM_AT                                                                            \
    {                                                                                       \
        .name = "at", .kind = HTTP_TEXT, .max = 32,                                         \
        .help = "as it was at this time, by the history: seconds since 1970, or -10m; the " \
                "10 seconds, or the longer step that is kept, that it lies in"              \
    }
#define PARAM_SINCE                                                                          \
    {                                                                                        \
        .name = "since", .kind = HTTP_TEXT, .max = 32,                                       \
        .help = "as it was from this time on, by the history, a row for each step (column "  \
                "time): seconds since 1970, or -1h. Of the tables host, processes, system, " \
                "devices and exited; of tables of the history the default is -1h"            \
    }
#define PARAM_UNTIL                                                   \
    {                                                                 \
        .name = "until", .kind = HTTP_TEXT, .max = 32,                \
        .help = "with since: until then, the same way (default: now)" \
    }

static const struct http_param query_params[] = {
    {.name = "table",
     .kind = HTTP_TEXT,
     .max = 64,
     .help = "which table: processes (the default), host, system, devices ..."},
    PARAM_BY,
    PARAM_WHERE,
    PARAM_SHOW,
    PARAM_SORT,
    PARAM_LIMIT,
    PARAM_SHAPE,
    PARAM_SCOPE,
    PARAM_NODE,
    PARAM_AT,
    PARAM_SINCE,
    PARAM_UNTIL,
    PARAM_POINTS,
    {0},
};

static const struct http_param table_params[] = {
    PARAM_BY,   PARAM_WHERE, PARAM_SHOW,  PARAM_SORT,  PARAM_LIMIT,  PARAM_SHAPE, PARAM_SCOPE,
    PARAM_NODE, PARAM_AT,    PARAM_SINCE, PARAM_UNTIL, PARAM_POINTS, {0}};

static const struct http_param process_params[] = {PARAM_PID, {0}};

#define PARAM_AT_PEAK                                                            \
    {                                                                            \
        .name = "at_peak", .kind = HTTP_YES,                                     \
        .help = "live figures of when the process held the most, instead of now" \
    }

static const struct http_param process_rows_params[] = {
    PARAM_PID, PARAM_BY, PARAM_WHERE, PARAM_SHOW, PARAM_SORT, PARAM_LIMIT, PARAM_SHAPE, {0}};

static const struct http_param process_code_params[] = {PARAM_PID,   PARAM_BY,      PARAM_WHERE,
                                                        PARAM_SHOW,  PARAM_SORT,    PARAM_LIMIT,
                                                        PARAM_SHAPE, PARAM_AT_PEAK, {0}};

static const struct http_param flame_params[] = {
    PARAM_PID,
    PARAM_AT_PEAK,
    PARAM_SPACE,
    {.name = "inverted",
     .kind = HTTP_YES,
     .help = "from the functions that asked to their callers"},
    {0},
};

static const struct http_param profile_params[] = {
    PARAM_PID,
    {.name = "format",
     .kind = HTTP_WORD,
     .words = "pprof|folded|speedscope",
     .help = "gzipped pprof (the default), folded stacks, or speedscope's JSON"},
    {.name = "sort",
     .kind = HTTP_WORD,
     .words = "live|allocated|blocks",
     .help = "what folded stacks tell, and the others show first"},
    PARAM_AT_PEAK,
    PARAM_SPACE,
    {0},
};

static const struct http_param ages_params[] = {
    PARAM_PID,
    {.name = "source",
     .kind = HTTP_WORD,
     .words = "heap|device",
     .help = "blocks of the heap, which takes a tracked process, or of devices (default: the "
             "heap where it is known)"},
    {0},
};

static const struct http_param history_params[] = {
    {.name = "what",
     .kind = HTTP_WORD,
     .words = "process|system|device|space",
     .required = true,
     .help = "of one process, of the machine, of devices, or of the host's memory as all "
             "processes report it"},
    {.name = "pid", .kind = HTTP_NUMBER, .min = 1, .max = INT32_MAX, .help = "of which process"},
    {.name = "start",
     .kind = HTTP_NUMBER,
     .help = "when it began, in seconds since 1970, where the PID was used twice"},
    {.name = "device",
     .kind = HTTP_TEXT,
     .max = LEDGER_DEVICE_ID_MAX,
     .help = "of this device only: its device_id, as the table devices has it"},
    PARAM_AT,
    PARAM_FROM,
    PARAM_TO,
    PARAM_POINTS,
    {0},
};

static const struct http_param stream_params[] = {
    {.name = "after",
     .kind = HTTP_NUMBER,
     .help = "begin with the events whose seq is larger, as with the header Last-Event-ID"},
    {0},
};

static const struct http_param explain_params[] = {
    PARAM_PID,
    {0},
};

static const struct http_param trace_params[] = {
    PARAM_PID,
    {.name = "by",
     .kind = HTTP_WORD,
     .words = "bytes|count",
     .help = "what makes a buffer hot: bytes that were copied (the default), or how often"},
    {.name = "k",
     .kind = HTTP_NUMBER,
     .min = 1,
     .max = TRACE_JSON_K_MAX,
     .help = "rows of each list at most (default: 20)"},
    {0},
};

static const struct http_param cluster_programs_params[] = {
    {.name = "measure",
     .kind = HTTP_WORD,
     .words = "rss|pss|heap|pinned|device",
     .help = "what is compared (default: rss)"},
    PARAM_WHERE,
    {.name = "limit",
     .kind = HTTP_NUMBER,
     .min = 1,
     .max = ASKING_ROWS_MAX,
     .help = "programs at most (default: 60)"},
    {.name = "nodes",
     .kind = HTTP_NUMBER,
     .min = 1,
     .max = ASKING_ROWS_MAX,
     .help = "nodes of each program at most, outliers and the largest first (default: 64)"},
    {0},
};

/* ---- routes ---- */

static const char private_help[] =
    "Only for the process's user and for root: others get 403. A process that keeps no book has none (404).";

static const char lines_help[] =
    "The table lines, with names of functions. Only for the process's user and for root: others get 403. A process that keeps no book has none "
    "(404).";

static const char stacks_help[] =
    "The table stacks, with names of functions. Only for the process's user and for root: others get 403. A process that keeps no book has none "
    "(404).";

static const char ages_help[] =
    "Only for the process's user and for root: others get 403. A process that keeps no book has none (404). Where its blocks are not known: "
    "409. Where its memory does not answer within 3 s: 504.";

static const char explain_help[] =
    "Only for the process's user and for root: others get 403. Works without a book, too; then sites is null. Where the process does not answer within "
    "3 s: 504.";

static const char trace_help[] =
    "Only for the process's user and for root: others get 403. A process that is not traced: 404. Where tracing does not run: 503. Where "
    "the observer does not answer within 5 s: 504.";

static const struct http_route fixed[] = {
    {.method = "GET",
     .path = "/api/v1/query",
     .name = "query",
     .summary = "Any question about any table",
     .help = "The same words and the same answers as memoir query. An invalid question is "
             "a 400 problem that tells which part of it is meant (part, at, len).",
     .params = query_params,
     .answer_schema = "Table",
     .role = HTTP_READ,
     .where = HTTP_ON_LOOP,
     .fresh_ms = 900,
     .answer = api_answer_query},
    {.method = "GET",
     .path = "/api/v1/cluster",
     .name = "cluster",
     .summary = "The cluster: its nodes with state, version and last answer",
     .help = "Without a cluster, state is \"none\" and problem says how to join one.",
     .answer_schema = "Cluster",
     .role = HTTP_READ,
     .where = HTTP_ON_LOOP,
     .fresh_ms = 400,
     .answer = api_answer_cluster},
    {.method = "GET",
     .path = "/api/v1/cluster/programs",
     .name = "clusterPrograms",
     .summary = "Programs across the nodes of the cluster, with the nodes that are outliers",
     .help =
         "A node is an outlier where the program grows steadily and does not on most other nodes, or where a process "
         "of it holds half as much again as in the median, or half of it. That takes three nodes. Programs with a node that "
         "grows come first, then the largest.",
     .params = cluster_programs_params,
     .answer_schema = "ClusterPrograms",
     .role = HTTP_READ,
     .where = HTTP_ON_LOOP,
     .fresh_ms = 900,
     .answer = api_answer_cluster_programs},
    {.method = "GET",
     .path = "/api/v1/tables",
     .name = "tables",
     .summary = "The tables and their columns",
     .answer_schema = "Tables",
     .role = HTTP_READ,
     .where = HTTP_HERE,
     .fresh_ms = 60000,
     .answer = api_answer_tables},
    {.method = "GET",
     .path = "/api/v1/processes/{pid}",
     .name = "process",
     .summary = "All that is known of one process",
     .help = "404 when there is none.",
     .params = process_params,
     .answer_schema = "Process",
     .role = HTTP_READ,
     .where = HTTP_ON_LOOP,
     .fresh_ms = 900,
     .answer = api_answer_process},
    {.method = "GET",
     .path = "/api/v1/processes/{pid}/sites",
     .name = "processSites",
     .summary = "The lines of a program that hold its memory",
     .help = lines_help,
     .params = process_code_params,
     .answer_schema = "Table",
     .role = HTTP_READ,
     .where = HTTP_ON_LOOP,
     .fresh_ms = 1900,
     .answer = api_answer_sites},
    {.method = "GET",
     .path = "/api/v1/processes/{pid}/stacks",
     .name = "processStacks",
     .summary = "The stacks that lead to a program's memory, as rows",
     .help = stacks_help,
     .params = process_code_params,
     .answer_schema = "Table",
     .role = HTTP_READ,
     .where = HTTP_ON_LOOP,
     .fresh_ms = 1900,
     .answer = api_answer_stacks},
    {.method = "GET",
     .path = "/api/v1/processes/{pid}/flame",
     .name = "processFlame",
     .summary = "The stacks that lead to a program's memory, as a tree",
     .help = private_help,
     .params = flame_params,
     .answer_schema = "Flame",
     .role = HTTP_READ,
     .where = HTTP_ON_LOOP,
     .fresh_ms = 1900,
     .answer = api_answer_flame},
    {.method = "GET",
     .path = "/api/v1/processes/{pid}/profile",
     .name = "processProfile",
     .summary = "The same for other tools, as a download",
     .help = private_help,
     .params = profile_params,
     .answer_type = "application/octet-stream",
     .role = HTTP_READ,
     .where = HTTP_ON_LOOP,
     .fresh_ms = 1900,
     .answer = api_answer_profile},
    {.method = "GET",
     .path = "/api/v1/processes/{pid}/explain",
     .name = "processExplain",
     .summary = "Where the resident memory of a process goes, in parts that sum to its RSS",
     .help = explain_help,
     .params = explain_params,
     .answer_schema = "Explain",
     .role = HTTP_READ,
     .where = HTTP_ON_LOOP,
     .fresh_ms = 4900,
     .answer = api_answer_explain},
    {.method = "GET",
     .path = "/api/v1/processes/{pid}/ages",
     .name = "processAges",
     .summary = "Live blocks by age and size",
     .help = ages_help,
     .params = ages_params,
     .answer_schema = "Ages",
     .role = HTTP_READ,
     .where = HTTP_ON_LOOP,
     .fresh_ms = 4900,
     .answer = api_answer_ages},
    {.method = "GET",
     .path = "/api/v1/processes/{pid}/buffers",
     .name = "processBuffers",
     .summary = "Single blocks of one process, with the places in its code by name",
     .help = private_help,
     .params = process_rows_params,
     .answer_schema = "Table",
     .role = HTTP_READ,
     .where = HTTP_ON_LOOP,
     .fresh_ms = 900,
     .answer = api_answer_process_buffers},
    {.method = "GET",
     .path = "/api/v1/traced",
     .name = "traced",
     .summary = "CUDA programs that are traced, with what they hold and copy",
     .help =
         "Of your own processes; root sees all. Where nothing is traced, state and problem say why.",
     .answer_schema = "Traced",
     .role = HTTP_READ,
     .where = HTTP_ON_LOOP,
     .fresh_ms = 900,
     .answer = api_answer_traced},
    {.method = "GET",
     .path = "/api/v1/processes/{pid}/trace",
     .name = "processTrace",
     .summary = "The CUDA trace of a process: buffers, copies, failures, holders over time",
     .help = trace_help,
     .params = trace_params,
     .answer_schema = "Trace",
     .role = HTTP_READ,
     .where = HTTP_ON_LOOP,
     .fresh_ms = 900,
     .answer = api_answer_trace},
    {.method = "GET",
     .path = "/api/v1/processes/{pid}/trace/dump",
     .name = "processTraceDump",
     .summary = "The same as a download for memoir trace load",
     .help = trace_help,
     .params = process_params,
     .answer_type = "application/octet-stream",
     .role = HTTP_READ,
     .where = HTTP_ON_LOOP,
     .answer = api_answer_trace_dump},
    {.method = "GET",
     .path = "/api/v1/processes/{pid}/pinning",
     .name = "processPinning",
     .summary = "Why host memory of a process is pinned for CUDA or not",
     .help =
         "Of a process that runs by memoir pin run. Only for the process's user and for root: others get 403. A process that shows no "
         "pinning: 404.",
     .params = process_params,
     .answer_schema = "Pinning",
     .role = HTTP_READ,
     .where = HTTP_ON_LOOP,
     .fresh_ms = 900,
     .answer = api_answer_pinning},
    {.method = "POST",
     .path = "/api/v1/processes/{pid}/tracking",
     .name = "processTracking",
     .summary = "Switch the tracking of a process on or off",
     .help =
         "Takes the role control, and a process of your own or root. Off counts no further "
         "allocations until it is on again. A process that is not tracked is attached: probes on its allocator "
         "account what it allocates from then on, and with children what processes do that it forks; off removes them. 409 where that cannot be.",
     .params = process_params,
     .body_schema = "TrackingWish",
     .answer_schema = "Tracking",
     .role = HTTP_CONTROL,
     .where = HTTP_ON_LOOP,
     .answer = api_answer_tracking},
    {.method = "POST",
     .path = "/api/v1/processes/{pid}/tracing",
     .name = "processTracing",
     .summary = "Begin or stop to record what a process calls of CUDA",
     .help =
         "Takes the role control, and a process of your own or root. Off removes its book, and its probes unless another traced "
         "process uses the same library; its trace so far stays. On begins anew. 404 for a process that is not traced, 503 where tracing "
         "does not run.",
     .params = process_params,
     .body_schema = "TracingWish",
     .answer_schema = "Tracing",
     .role = HTTP_CONTROL,
     .where = HTTP_ON_LOOP,
     .answer = api_answer_tracing},
    {.method = "POST",
     .path = "/api/v1/processes/{pid}/scan",
     .name = "processScan",
     .summary = "Look for heap blocks that a process can no longer reach",
     .help =
         "The process stands still meanwhile, for 8 s at most. Takes the role control, and a process of your own or root. Needs a "
         "process whose heap is tracked: 409 for others. Has the 50 sites that lost most.",
     .params = process_params,
     .answer_schema = "Scan",
     .role = HTTP_CONTROL,
     .where = HTTP_ON_LOOP,
     .answer = api_answer_scan},
    {.method = "GET",
     .path = "/api/v1/history",
     .name = "history",
     .summary = "What was held, over time",
     .params = history_params,
     .answer_schema = "History",
     .role = HTTP_READ,
     .where = HTTP_ON_LOOP,
     .fresh_ms = 900,
     .may_miss = true,
     .answer = api_answer_history},
    {.method = "GET",
     .path = "/api/v1/self",
     .name = "self",
     .summary = "What memoird itself takes, does and loses",
     .answer_schema = "Self",
     .role = HTTP_READ,
     .where = HTTP_ON_LOOP,
     .fresh_ms = 900,
     .answer = api_answer_self},
    {.method = "GET",
     .path = "/api/v1/session",
     .name = "session",
     .summary = "Who you are here",
     .answer_schema = "Session",
     .role = HTTP_READ,
     .where = HTTP_ON_LOOP,
     .answer = api_answer_session},
    {.method = "GET",
     .path = "/api/v1/stream",
     .name = "stream",
     .summary = "Server-sent events: a tick each second, and what happens",
     .help =
         "Begins with an event hello; then tick (schema Tick) each second and event (schema Event, a row of the table "
         "events, whose seq is the id) as they happen. A client that returns with Last-Event-ID gets what it missed.",
     .params = stream_params,
     .answer_type = "text/event-stream",
     .role = HTTP_READ,
     .where = HTTP_ON_LOOP,
     .answer = api_answer_stream},
};

/* ---- other nodes ----
 *
 * Every route that says something about a machine can be asked of another node: it gets the argument node, and a handler in
 * front of its own that sends the call there. Tables do that by themselves: their answers are merged. */

enum { ROUTES_MAX = sizeof(fixed) / sizeof(*fixed) + API_VIEWS_MAX };
static struct http_route routes[ROUTES_MAX];
static struct http_param routes_params[ROUTES_MAX][HTTP_PARAMS_MAX + 1];
static void (*routes_answer[ROUTES_MAX])(struct http_call *call, void *context); /* here */

/* Those of the page itself, of its user, and of the cluster. */
static bool is_of_this_node(const struct http_route *route)
{
    static const char *const names[] = {"cluster", "clusterPrograms", "tables",
                                        "session", "stream",          "self"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(route->name, names[i]) == 0)
            return true;
    return route->where != HTTP_ON_LOOP;
}

static bool has_node(const struct http_route *route)
{
    for (const struct http_param *p = route->params; p && p->name; p++)
        if (strcmp(p->name, "node") == 0)
            return true;
    return false;
}

static void answer_here_or_there(struct http_call *call, void *context)
{
    const char *node = http_argument(call, "node");
    if (node && api_cluster_call(call, context, node))
        return;
    routes_answer[http_route(call) - routes](call, context);
}

static void route_open(size_t i)
{
    static const struct http_param node = PARAM_NODE;
    struct http_route *route = &routes[i];
    size_t n = 0;
    if (is_of_this_node(route))
        return;
    route->visits = true;
    if (has_node(route))
        return;
    for (; route->params && route->params[n].name; n++)
        routes_params[i][n] = route->params[n];
    routes_params[i][n] = node;
    route->params = routes_params[i];
    routes_answer[i] = route->answer;
    route->answer = answer_here_or_there;
}

/* A view as a route: it takes all that a question can have. */
static void route_of(const struct query_view *view, char path[static API_PATH_MAX],
                     struct http_route *ret)
{
    snprintf(path, API_PATH_MAX, "/api/v1/%s", view->route);
    const struct query_table *table = query_table_find(view->table);
    bool named = table && table->needs & QUERY_NEEDS_LEAKS; /* names of functions take a worker */
    *ret = (struct http_route){
        .method = "GET",
        .path = path,
        .name = view->route,
        .summary = view->summary,
        .help = view->help,
        .params = table_params,
        .answer_schema = "Table",
        .role = HTTP_READ,
        .where = HTTP_ON_LOOP,
        .fresh_ms = 900,
        .answer = named ? api_answer_leaks : api_answer_view,
    };
}

const struct http_route *api_routes(size_t *ret_n)
{
    enum { FIXED = sizeof(fixed) / sizeof(*fixed) };
    static char paths[API_VIEWS_MAX][API_PATH_MAX];
    static size_t n; /* made once, before there are threads */
    if (n == 0) {
        routes[n++] = fixed[0];
        for (const struct query_view *v = query_views(); v->name || v->route; v++)
            if (v->route && n <= API_VIEWS_MAX) {
                route_of(v, paths[n - 1], &routes[n]);
                n++;
            }
        for (size_t i = 1; i < FIXED; i++)
            routes[n++] = fixed[i];
        for (size_t i = 0; i < n; i++)
            route_open(i);
    }
    *ret_n = n;
    return routes;
}

/* ---- life ---- */

int api_new(struct daemon *daemon, struct api **ret_api)
{
    struct api *api = calloc(1, sizeof(*api));
    if (!api)
        return -ENOMEM;
    api->daemon = daemon;
    api->started_real_ns = clock_real_ns();
    int r = symbol_pool_new(daemon, API_SYMBOLS_MS, API_SYMBOLS_BYTES, &api->symbols);
    if (r == 0)
        r = chores_new("memoird-books", API_LANES, &api->chores);
    if (r < 0) {
        symbol_pool_free(api->symbols);
        free(api);
        return r;
    }
    *ret_api = api;
    return 0;
}

int api_start(struct api *api, struct http *http)
{
    api->http = http;
    return api_stream_start(api);
}

void api_stop(struct api *api)
{
    if (!api)
        return;
    atomic_store(&api->ending, true);
    api_stream_stop(api);
    chores_free(api->chores);
    api->chores = NULL;
    traces_stop(api->daemon->traces);
    for (size_t i = 0; i < API_TURNS; i++)
        asking_leave(api->daemon->asking, &api->turns[i]);
}

void api_free(struct api *api)
{
    if (!api)
        return;
    api_stop(api);
    symbol_pool_free(api->symbols);
    free(api);
}
